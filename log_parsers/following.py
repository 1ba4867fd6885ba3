"""A file that grows: each look reads only what is new, and the survey of all of it is to be had any time."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import IO

from rerail.log_parsers.binary_content import looks_binary
from rerail.log_parsers.opening import Joined, is_damage, is_packed, open_source
from rerail.log_parsers.scan import Scanner, Signature
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import CHUNK, FilePass, FileSurvey, survey

_LONGEST = 8 << 20
_KEPT = 4096  # bytes at the beginning, and in front of where the last look ended


class FollowedFile:
    """One file from its beginning on; a line counts when it is ended.

    What is packed or no text cannot be read from its middle: it is read again as a whole when it changed. The older
    parts of a rotated log are read at the first look.
    """

    def __init__(self, source: Source, signatures: tuple[Signature, ...], scanner: Scanner) -> None:
        self._held: IO[bytes] | None = None
        if source.path is None:
            raise ValueError("standard input cannot be followed")
        self._source = source
        self.path: Path = source.path
        self._signatures = signatures
        self._scanner = scanner
        self._pass = FilePass(source, signatures, scanner)
        self._open = b""
        self._whole: FileSurvey | None = None
        self._begun = False
        self.inode = 0
        self.read_bytes = 0
        """How much of the file was read so far, its older parts left out."""
        self._first = self._last = b""

    def look(self, *, hold: bool = False) -> int:
        """Read what is new, and return how many bytes that were.

        Args:
            hold: Keep the file open until the next look, so that what comes is not lost with its name.

        Raises:
            OSError: when the file cannot be opened or read.
        """
        self.let_go()
        file = self.path.open("rb", buffering=0)
        try:
            return self._look(file)
        finally:
            if hold and self._whole is None:
                self._held = file
            else:
                file.close()

    def let_go(self) -> None:
        """Close the file where it is held open."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def __del__(self) -> None:
        """Let go of the file with the last who knows of it."""
        self.let_go()

    def _look(self, file: IO[bytes]) -> int:
        self.inode = os.fstat(file.fileno()).st_ino
        if self._whole is None and not self.read_bytes:
            head = file.read(CHUNK)
            if is_packed(head[:6]) or looks_binary(head):
                self._whole = FileSurvey(self._source)
        if self._whole is not None:
            return self._again(os.fstat(file.fileno()).st_size)
        new = 0 if self._begun else self._begin()
        file.seek(self.read_bytes)
        before = self.read_bytes
        while block := file.read(CHUNK):
            self.read_bytes += len(block)
            self._first += block[: _KEPT - len(self._first)]
            self._last = (self._last + block)[-_KEPT:]
            self._take(block)
        return new + self.read_bytes - before

    def is_written_anew(self) -> bool:
        """Tell whether the file no longer begins with what was read, or no longer has it where the last look ended.

        What a file server shows as zeros may become text later, and tells nothing.

        Raises:
            OSError: when the file cannot be opened or read.
        """
        if self._whole is not None or not self.read_bytes:
            return False
        with self.path.open("rb", buffering=0) as file:
            for at, known in self._places():
                now = os.pread(file.fileno(), len(known), at)
                if now != known and b"\0" not in known and b"\0" not in now:
                    return True
        return False

    def read_to_its_end(self, path: Path) -> int | None:
        """Read what stands behind the last look in another name of the file or a copy of it, packed or not.

        Returns:
            How many bytes that were; None where the other file does not begin with what was read of this one.
        """
        if self._whole is not None or not self.read_bytes:
            return None
        try:
            with path.open("rb", buffering=0) as file:
                if is_packed(file.read(6)):
                    with open_source(Source(path, path.name)) as packed:
                        return self._rest(packed) if self._goes_by(packed) else None
                for at, known in self._places():
                    if os.pread(file.fileno(), len(known), at) != known:
                        return None
                file.seek(self.read_bytes)
                return self._rest(file)
        except Exception as error:
            if not is_damage(error):
                raise
            return None

    def read_what_is_held(self) -> int | None:
        """Read a file that was held open to its end, wherever it lies now, or nowhere.

        Returns:
            How many bytes that were; None where it was not held, or lost what was read of it.
        """
        if self._held is None or os.fstat(self._held.fileno()).st_size < self.read_bytes:
            return None
        self._held.seek(self.read_bytes)
        return self._rest(self._held)

    def _places(self) -> tuple[tuple[int, bytes], tuple[int, bytes]]:
        """Return what was read at the beginning and in front of where the last look ended, each with its place."""
        return (0, self._first), (self.read_bytes - len(self._last), self._last)

    def _goes_by(self, file: IO[bytes]) -> bool:
        """Read on in a file to where the last look ended, and tell whether it holds what was read of this one."""
        left, first, last = self.read_bytes, b"", b""
        while left and (block := file.read(min(CHUNK, left))):
            left -= len(block)
            first += block[: len(self._first) - len(first)]
            last = (last + block)[-_KEPT:]
        return not left and first == self._first and last == self._last

    def _rest(self, file: IO[bytes]) -> int:
        before = self.read_bytes
        while block := file.read(CHUNK):
            self.read_bytes += len(block)
            self._take(block)
        if self._open:
            self._take(b"\n")  # it goes on no more
        return self.read_bytes - before

    def _begin(self) -> int:
        """Read the older parts, which grow no more, and return how many bytes that were."""
        self._begun = True
        if not self.parts:
            return 0
        result = self._pass.result
        with Joined(self.parts[:-1]) as older:
            while block := older.read(CHUNK):
                self._take(block)
            size = sum(part.size for part in older.parts)
            older.begin(self.parts[-1])
        result.parts = older.parts
        result.problems += older.problems
        return size

    def _again(self, size: int) -> int:
        new = size - self.read_bytes
        if new:
            self._whole = survey(self._source, self._signatures, self._scanner)
            self.read_bytes = size
        return new

    def _take(self, block: bytes) -> None:
        held = self._open + block.replace(b"\0", b"")
        cut = len(held) if len(held) > _LONGEST else held.rfind(b"\n") + 1
        if cut:
            self._pass.feed(held[:cut])
        self._open = held[cut:]

    @property
    def lines(self) -> int:
        """How many lines were read."""
        return self._pass.result.lines

    @property
    def name(self) -> str:
        """What the file is called, without its folder; what is no file has a name with blanks."""
        name = self._source.name
        return name if " " in name else name.rpartition("/")[2]

    @property
    def parts(self) -> tuple[Source, ...]:
        """The parts of a rotated log, the oldest first; of any other there are none."""
        return self._source.parts

    def goes_on_in(self, path: Path) -> bool:
        """Tell whether another file begins with all that was read of this one.

        Raises:
            OSError: when one of the two cannot be read.
        """
        left = self.read_bytes
        with self.path.open("rb") as mine, path.open("rb") as other:
            while left > 0:
                piece = mine.read(min(CHUNK, left))
                if not piece or other.read(len(piece)) != piece:
                    return False
                left -= len(piece)
        return True

    def move(self, path: Path, inode: int) -> None:
        """Read on from another name of the same file, or from a file that begins with all that was read."""
        self.path, self.inode = path, inode
        parts = self.parts and (*self.parts[:-1], replace(self.parts[-1], path=path))
        self._source = replace(self._source, path=path, parts=parts)

    def survey(self) -> FileSurvey:
        """Return the survey of all that was read."""
        return self._whole if self._whole is not None else self._pass.survey()
