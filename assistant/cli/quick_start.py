"""What a command that lives for half a second does without."""

from __future__ import annotations

import gc
import os

_POOL = "OPENBLAS_NUM_THREADS"


def collect_seldom() -> None:
    """Look for garbage cycles after 50,000 new objects and not after 700.

    Loading modules and rules makes half a million objects that all stay; going through them again
    and again is a tenth of a diagnosis.
    """
    gc.set_threshold(50_000, 20, 20)


def load_numpy() -> None:
    """Load numpy without the threads that its linear algebra starts for every core.

    Starting them costs more than all else that loading numpy does, and a diagnosis multiplies no
    matrices. The variable is taken back, because what is started from here (a launcher, a health
    test) decides for itself.
    """
    if _POOL in os.environ:
        return
    os.environ[_POOL] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[_POOL]
