"""Opens a source for reading: whatever its compression, a pipe, standard input, a file that grows.

What could wait for ever is given a time; what a file held when it was opened must come out of it.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, cast

from rerail.late_dataclass import dataclass
from rerail.log_parsers.binary_content import holes_in, junk_in
from rerail.log_parsers.sources import STDIN_HINT, Problem, Source

WRITER_S = 10.0
"""Seconds that a named pipe is given until somebody writes into it."""

_GZIP, _ZSTD, _XZ, _BZIP2 = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"BZh"


_MOST_RESCUED = 64 << 20
UNPACKERS = frozenset("zstd zstandard _lzma lzma zlib isal backend_c".split())
"""Modules whose own errors tell that a packed file is damaged."""


def is_packed(magic: bytes) -> bool:
    """Tell by its first six bytes whether a file is a packed one."""
    return magic.startswith((_GZIP, _ZSTD, _XZ, _BZIP2))


def open_source(source: Source) -> IO[bytes]:
    """Open a source for reading decompressed bytes.

    Compression is recognised by content, not by name: gzip, zstandard, xz, bzip2; of what is piped in too.

    Raises:
        OSError: when the file cannot be opened, standard input is closed, or nobody writes into a pipe.
    """
    if source.path is None:
        # Python leaves nothing in its place where a program is started with it closed.
        if sys.stdin is None:
            raise OSError(errno.EBADF, "standard input is closed")
        return _open_stream(sys.stdin.buffer)
    if source.path.is_fifo():
        return _open_stream(_open_pipe(source.path))
    raw = source.path.open("rb", buffering=0)
    magic = raw.read(6)
    raw.seek(0)
    return _inflated(magic, raw) or cast("IO[bytes]", _Whole(raw))


def _open_stream(stream: IO[bytes]) -> IO[bytes]:
    """Open what can be read only once: its first bytes are looked at and given out again."""
    peeks = hasattr(stream, "peek")
    buffered = cast(
        "io.BufferedReader", stream if peeks else io.BufferedReader(cast("Any", stream))
    )
    magic = buffered.peek(6)[:6]
    return _inflated(magic, buffered) or buffered


def _inflated(magic: bytes, raw: Any) -> IO[bytes] | None:
    if magic.startswith(_ZSTD):
        from rerail.log_parsers.zstd_stream import ZstdStream

        return cast("IO[bytes]", ZstdStream(raw))
    if magic.startswith(_GZIP):
        return cast("IO[bytes]", _Inflating(raw))
    if magic.startswith(_XZ):
        import lzma

        return cast("IO[bytes]", _PieceByPiece(lzma.LZMAFile(raw), raw))
    if magic.startswith(_BZIP2):
        import bz2

        return cast("IO[bytes]", _PieceByPiece(bz2.BZ2File(raw), raw))
    return None


def _open_pipe(path: Path) -> io.BufferedReader:
    """Open a named pipe without waiting for ever for somebody who writes into it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    if not ready.poll(1000 * WRITER_S):
        os.close(descriptor)
        raise OSError(
            errno.ETIMEDOUT, f"it is a pipe, and nobody wrote into it within {WRITER_S:g} s"
        )
    os.set_blocking(descriptor, True)
    return io.BufferedReader(io.FileIO(descriptor, "rb"))


class Counted:
    """Counts the bytes of a stream, those that are left out of its pieces as well.

    `line` tells how many lines were taken from it; it is asked for where a hole of NUL bytes begins.
    """

    def __init__(self, stream: IO[bytes] | Joined, line: Callable[[], int] = int) -> None:
        self._stream = stream
        self._line = line
        self.size = self._leading = 0
        self._padded = False
        self.lost = 0
        """Bytes of holes behind the beginning: what was written there is gone."""
        self.first_hole = 0
        """The line in which the first of them begins."""
        self.junk = self.first_junk = 0
        """Bytes of stretches that are no text, and the line in which the first of them begins."""

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, none only at the end."""
        block = self._stream.read(size)
        if not self.size:
            self._padded = block[257:262] == b"ustar"  # an archive of tar fills its blocks up
        if b"\0" in block and not self._padded:
            self._look_for_holes(block)
        if not self._padded:
            self._look_for_junk(block)
        self.size += len(block)
        return block

    def _look_for_holes(self, block: bytes) -> None:
        for start, end in holes_in(block):
            if self.size + start == self._leading:
                self._leading += (
                    end - start
                )  # truncated under its writer: its beginning was moved away
                continue
            if not self.lost:
                self.first_hole = self._line() + block.count(b"\n", 0, start) + 1
            self.lost += end - start

    def _look_for_junk(self, block: bytes) -> None:
        for start, end in junk_in(block):
            if not self.junk:
                self.first_junk = self._line() + block.count(b"\n", 0, start) + 1
            self.junk += end - start


def is_damage(error: Exception) -> bool:
    """Tell whether an error is of reading: zstandard, lzma and zlib each have an error class of their own."""
    known = isinstance(error, OSError | EOFError | ValueError)
    return known or type(error).__module__.split(".")[0] in UNPACKERS


def unopened(source: Source, error: OSError) -> Problem:
    """Return that a source could not be opened."""
    hint = f"ls -l {source.path}" if source.path else "name the log file"
    if source.path is not None and error.errno == errno.ETIMEDOUT:
        hint = f"write into it; {STDIN_HINT}"
    return Problem(source.name, f"cannot be opened: {error.strerror or error}", hint, unread=True)


def stopped(name: str, line: int, error: Exception) -> Problem:
    """Return that a file could be read to a line only."""
    return Problem(
        name,
        f"reading stopped behind line {line}: {error or type(error).__name__}",
        "the file is truncated or damaged; copy it again",
        cut=True,
    )


def with_hole(name: str, line: int, size: int) -> Problem:
    """Return that a file has a hole in its middle."""
    return Problem(
        name,
        f"{size:,} NUL bytes stand in it, the first in line {line}: what was written there is lost",
        "look for another copy of the log",
        unread=True,
    )


def with_junk(name: str, line: int, size: int) -> Problem:
    """Return that bytes which are no text stand among the lines of a file."""
    return Problem(
        name,
        f"about {size:,} bytes in it are no text, the first in line {line}: what was written there is lost",
        "look for another copy of the log",
        unread=True,
    )


@dataclass(slots=True)
class Part:
    """One part of a rotated log: the lines in front of it, its first own line as the whole log counts, its bytes.

    `ends` tells whether its last line is whole: else the next part begins in the middle of that line.
    """

    source: Source
    above: int = 0
    first: int = 1
    size: int = 0
    ends: bool = True


def lies_at(parts: Sequence[Part], number: int) -> tuple[str, int]:
    """Return in which part a line of the whole log lies, and its number there."""
    part = parts[max(0, bisect_right(parts, number, key=attrgetter("first")) - 1)]
    return part.source.name, number - part.above


class Joined:
    """The parts of a rotated log, read one behind the other as `cat` puts them; a damaged one ends with its last line."""

    def __init__(
        self, sources: Sequence[Source], opened: Callable[[Source], IO[bytes]] = open_source
    ) -> None:
        self.parts: list[Part] = []
        self.problems: list[Problem] = []
        self._left = list(reversed(sources))
        self._opened = opened
        self._stream: IO[bytes] | None = None
        self._lines, self._ends = 0, True

    def __enter__(self) -> Joined:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, none only at the end of the newest part."""
        while self._stream is not None or self._next():
            block = self._of_part(size)
            if block:
                self._lines += block.count(b"\n")
                self._ends = self.parts[-1].ends = block.endswith(b"\n")
                return block
            self._close()
        return b""

    def begin(self, source: Source) -> Part:
        """Begin the part that lies behind all that was read so far, and return it."""
        self.parts.append(Part(source, self._lines, self._lines + 1 + (not self._ends)))
        return self.parts[-1]

    def _of_part(self, size: int) -> bytes:
        part = self.parts[-1]
        if self._stream is None:
            return b""
        try:
            block = self._stream.read(size)
        except Exception as error:
            if not is_damage(error):
                raise
            self.problems.append(stopped(part.source.name, self._lines - part.above, error))
            self._close()
            return b"" if self._ends else b"\n"
        part.size += len(block)
        return block

    def _next(self) -> bool:
        while self._left:
            source = self.begin(self._left.pop()).source
            try:
                self._stream = self._opened(source)
            except OSError as error:
                self.problems.append(unopened(source, error))
                continue
            return True
        return False


class _Whole(io.RawIOBase):
    """A file as it lies there, which says when it became shorter while it was read."""

    def __init__(self, raw: io.FileIO) -> None:
        self._raw = raw
        self._size = os.fstat(raw.fileno()).st_size
        self._read = 0

    def readable(self) -> bool:
        """Tell that the stream can be read."""
        return True

    def close(self) -> None:
        """Close the file as well."""
        self._raw.close()
        super().close()

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, none only at the end.

        Raises:
            EOFError: at the end of a file that held more when it was opened.
        """
        block = self._raw.read(size) or b""
        self._read += len(block)
        if not block and size and self._read < self._size:
            lost, self._size = self._size - self._read, 0
            raise EOFError(f"the file was truncated while it was read: {lost:,} bytes are gone")
        return block


class _PieceByPiece(io.RawIOBase):
    """Gives out what one look into a compressed file brings, so that a torn end loses nothing before it."""

    def __init__(self, file: Any, raw: IO[bytes]) -> None:
        self._file = file
        self._raw = raw

    def readable(self) -> bool:
        """Tell that the stream can be read."""
        return True

    def close(self) -> None:
        """Close the compressed file as well."""
        self._file.close()
        self._raw.close()
        super().close()

    def read(self, size: int = -1) -> bytes:
        """Return some bytes, up to `size`; none only at the end."""
        return cast("bytes", self._file.read1(size))


class _Inflating(io.RawIOBase):
    """Inflates gzip members one after the other, and gives out all that a torn file still holds.

    The library's own file object fails a whole read when the end is missing; here what was
    inflated before comes first and the error at the next read.
    """

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._seekable = raw.seekable()
        self._inflate = self._inflater()
        self._ready = b""
        self._error: Exception | None = None
        self._ended = False
        self._fresh = True
        # Where the file was read to, where its member begins, and how many bytes that gave.
        self._came = self._member = raw.tell() if self._seekable else 0
        self._given = 0
        self._size = 1 << 18 if self._seekable else 1 << 13

    def readable(self) -> bool:
        """Tell that the stream can be read."""
        return True

    def close(self) -> None:
        """Close the compressed file as well."""
        self._raw.close()
        super().close()

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` inflated bytes, fewer at the end.

        Raises:
            EOFError: when the file ends inside a member, after all that could be inflated.
            ValueError: when the data is damaged, likewise.
        """
        wanted = size if size >= 0 else 1 << 62
        parts: list[bytes] = []
        held = 0
        while held < wanted and (self._ready or self._fill()):
            piece, self._ready = self._ready[: wanted - held], self._ready[wanted - held :]
            parts.append(piece)
            held += len(piece)
        if not parts and self._error is not None:
            raise self._error
        return b"".join(parts)

    def _fill(self) -> bool:
        while not self._ready and not self._ended:
            block = self._inflate.unconsumed_tail
            if self._inflate.eof:
                block = self._inflate.unused_data.lstrip(b"\0")
                self._inflate = self._inflater()
                self._fresh = True
                self._member, self._given = self._came - len(block), 0
            if not block:
                block = self._raw.read(self._size)
                self._came += len(block)
            if not block:
                self._ended = True
                if not self._fresh:
                    self._error = EOFError("the compressed file ends before its end marker")
                break
            before = None if self._seekable else self._inflate.copy()
            try:
                # A few kilobytes can hold gigabytes of zeros: never more than this at once.
                self._ready = self._inflate.decompress(block, 4 << 20)
            except Exception as error:  # zlib and isal each have an error class of their own
                self._ended = True
                self._error = ValueError(f"damaged gzip data: {error}")
                self._ready = self._before_the_damage(before, block)
                break
            self._fresh = False
            self._given += len(self._ready)
        return bool(self._ready)

    def _inflater(self) -> Any:
        """Return what inflates a member; what comes through a pipe is read by the one that can be copied."""
        import zlib

        return _fast_inflater() if self._seekable else zlib.decompressobj(31)

    def _before_the_damage(self, before: Any, last: bytes) -> bytes:
        """Return what the last call swallowed with its error, inflated once more, slower and slower.

        Of a pipe that is its `last` block, by what inflated all `before` it; of a file the whole member is read again.
        """
        import zlib

        left, raw = 0, io.BytesIO(last)
        inflate = before
        if before is None:
            self._raw.seek(self._member)
            inflate, left, raw = zlib.decompressobj(31), self._given, cast("Any", self._raw)
        found: list[bytes] = []
        size = 1 << 14
        block = b""
        while block := block or raw.read(size):
            kept = inflate.copy()
            try:
                piece = inflate.decompress(block[:size])
            except zlib.error:
                if size == 1:
                    break
                inflate, size = kept, size // 16 or 1
                continue
            block = block[size:]
            found.append(piece[left:])
            left = max(0, left - len(piece))
            if inflate.eof or sum(map(len, found)) > _MOST_RESCUED:
                break
        return b"".join(found)


def _fast_inflater() -> Any:
    try:
        from isal import isal_zlib
    except ImportError:
        import zlib

        return zlib.decompressobj(31)
    return isal_zlib.decompressobj(31)
