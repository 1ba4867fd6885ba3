"""What all tests share: a cache folder of their own, and a job folder made from texts.

The cache of compiled rules lies in a folder of the test session, for the tests and for every
process they start, so that no test reads or writes the user's own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rerail.domain.diagnosis import Diagnosis

_OWN = "RERAIL_TEST_CACHE"

if _OWN not in os.environ:  # the workers of xdist inherit the folder of their controller
    for _name in [name for name in os.environ if name.startswith("RERAIL_")]:
        del os.environ[_name]
    os.environ[_OWN] = str(os.getpid())
    os.environ["RERAIL_CACHE_DIR"] = tempfile.mkdtemp(prefix="rerail-test-cache-")


def pytest_unconfigure() -> None:
    if os.environ.get(_OWN) == str(os.getpid()):
        shutil.rmtree(os.environ["RERAIL_CACHE_DIR"], ignore_errors=True)


Texts = str | bytes | dict[str, str | bytes]


@pytest.fixture
def job(tmp_path: Path) -> Callable[[Texts], Path]:
    """Write the files of a job, given as name to content, and return their folder."""

    def write(texts: Texts) -> Path:
        folder = tmp_path / "job"
        files = texts if isinstance(texts, dict) else {"train.log": texts}
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder

    return write


@pytest.fixture
def diagnose(job: Callable[[Texts], Path]) -> Callable[[Texts], Diagnosis]:
    """Write the files of a job and return its diagnosis."""
    from rerail.assistant.pipeline import diagnose_paths

    def run(texts: Texts) -> Diagnosis:
        return diagnose_paths([job(texts)]).diagnosis

    return run


@pytest.fixture
def diagnose_files(diagnose: Callable[[Texts], Diagnosis]) -> Callable[..., Diagnosis]:
    """Diagnose files given as keyword arguments; `__` in a name stands for a dot."""

    def run(**files: str) -> Diagnosis:
        return diagnose({name.replace("__", "."): text for name, text in files.items()})

    return run
