"""What a command that lives for half a second does without."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_POOL = "OPENBLAS_NUM_THREADS"


def collect_seldom() -> None:
    """Look for garbage cycles after 50,000 new objects and not after 700.

    Loading modules and rules makes half a million objects that all stay; going through them again
    and again is a tenth of a diagnosis.
    """
    gc.set_threshold(50_000, 20, 20)


@contextmanager
def no_thread_pool() -> Iterator[None]:
    """Let numpy, where it is needed, load without the threads of its linear algebra.

    Starting one for every core costs more than all else that loading numpy does, and a diagnosis
    multiplies no matrices. The variable is taken back: whatever is started later decides for itself.
    """
    if _POOL in os.environ:
        yield
        return
    os.environ[_POOL] = "1"
    try:
        yield
    finally:
        os.environ.pop(_POOL, None)
