"""Standard output, or error, that cannot be written: a full disk, a closed descriptor, a reader that has gone.

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

EXIT_NO_MEMORY = 11
"""The evidence could not be read: there is not enough memory for it."""


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


class _MayBeLost:
    """Standard error: what cannot be written is lost, and the program ends with the code of what it found."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or leave it."""
        try:
            return self._stream.write(text)
        except OSError:
            _to_nowhere(2)
            return len(text)

    def flush(self) -> None:
        """Flush, or leave it."""
        try:
            self._stream.flush()
        except OSError:
            _to_nowhere(2)


def guard() -> None:
    """Put a guard before both outputs; where standard error is closed or nobody reads it, what goes there is lost."""
    sys.stdout = cast("Any", _Guarded(sys.stdout))
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")
    else:
        sys.stderr = cast("Any", _MayBeLost(sys.stderr))


def _to_nowhere(descriptor: int) -> None:
    # What is still in the buffer would fail once more at exit.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, descriptor)
    os.close(nothing)


def _failed(error: OSError) -> NoReturn:
    _to_nowhere(1)
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
