"""A real `rerail serve` in a process of its own, for benchmarks and pictures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

CALL = [sys.executable, "-c", "from rerail.assistant.entry import main; main()"]
"""The command line of this installation."""
_END_S = 60


@contextmanager
def serving(logs: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Serve the page over a folder of logs, yield its address, and end the server."""
    process = subprocess.Popen(
        [*CALL, "serve", "--port", "0", "--logs", str(logs)],
        env=dict(environment), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split("/   ")[0]
    finally:
        process.terminate()
        process.communicate(timeout=_END_S)
