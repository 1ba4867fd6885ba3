"""Standard output that cannot be written: a full disk, a closed descriptor, a reader that has gone.

The command line's library would end with 1, or Python with a traceback; here each has a word and a code.
"""

from __future__ import annotations

import errno
import os
import sys
from functools import lru_cache
from typing import IO, Any, NoReturn, cast

EXIT_UNWRITABLE = 74
"""Standard output could not be written (EX_IOERR)."""

EXIT_NO_READER = 141
"""The reader of the pipe has gone; what shells report of a program that SIGPIPE ended."""

EXIT_INTERRUPTED = 130


class _Guarded:
    """Standard output whose failures end the program with one sentence."""

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        if self._stream is None:
            if name in ("isatty", "fileno"):
                raise OSError(errno.EBADF, "standard output is closed")
            _unwritable("it is closed")
        return getattr(self._stream, name)

    def isatty(self) -> bool:
        """Tell whether it is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def write(self, text: str) -> int:
        """Write, or end the program."""
        if self._stream is None:
            _unwritable("it is closed")
        try:
            return self._stream.write(text)
        except OSError as error:
            _failed(error)

    def flush(self) -> None:
        """Flush, or end the program."""
        if self._stream is None:
            return
        try:
            self._stream.flush()
        except OSError as error:
            _failed(error)


def guard() -> None:
    """Put the guard before standard output; where standard error is closed, what goes there is lost."""
    sys.stdout = cast("Any", _Guarded(sys.stdout))
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")


def _failed(error: OSError) -> NoReturn:
    # What is still in the buffer would fail once more at exit.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
    if error.errno == errno.EPIPE:
        raise SystemExit(EXIT_NO_READER) from None
    _unwritable(error.strerror or str(error))


@lru_cache(maxsize=1)
def _tell(why: str) -> None:
    """Say it once: a closed output is met again when the interpreter ends."""
    if sys.stderr is not None:
        print(f"rerail: standard output cannot be written: {why}", file=sys.stderr)


def _unwritable(why: str) -> NoReturn:
    _tell(why)
    raise SystemExit(EXIT_UNWRITABLE) from None
