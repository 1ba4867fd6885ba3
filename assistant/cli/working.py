"""One line on a terminal that says what is being done while a model is waited for."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

_EVERY_S = 0.2


def styled() -> bool:
    """Tell whether text may carry styles: not under NO_COLOR (https://no-color.org), not on a dumb one."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Working:
    """Rewrites one line on standard error until it is left; silent where that is no terminal.

    Args:
        doing: returns what is being done, in a few words; it is asked five times a second.
    """

    def __init__(self, doing: Callable[[], str], *, enabled: bool = True) -> None:
        self._doing = doing
        self._enabled = enabled and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._began = time.monotonic()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Working:
        if self._enabled:
            self._draw()  # at once: a thread may have to wait while modules are imported
            self._thread = threading.Thread(target=self._run, daemon=True, name="rerail-working")
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)
        self._clear()

    def above(self, show: Callable[[], None]) -> None:
        """Print something where the line stands; the line goes on below it."""
        with self._lock:
            self._clear()
            show()
            sys.stdout.flush()

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_S):
            with self._lock:
                if not self._ended.is_set():
                    self._draw()

    def _draw(self) -> None:
        seconds = time.monotonic() - self._began
        # A terminal that was told no size says 0 columns.
        width = (os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1
        text = f"{seconds:.0f} s  {self._doing()}"[:width]
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()

    def _clear(self) -> None:
        if self._enabled:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
