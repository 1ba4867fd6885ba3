"""Small files that recovery writes and a job reads: whole or not at all, and for every account."""

from __future__ import annotations

import os
from pathlib import Path


def write_job_file(path: Path, text: str) -> None:
    """Put `text` and a newline into a file that may be read at any moment.

    Raises:
        OSError: It cannot be written; what stood there before still does.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as out:
        out.write(text + "\n")
        out.flush()
        os.fsync(out.fileno())
    temporary.chmod(0o644)
    temporary.replace(path)
