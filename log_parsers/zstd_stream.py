"""Zstandard streams that say when their end is missing.

The library gives out what a torn file holds and then ends as if it were whole. Behind the last
byte the frames are walked once by their block headers, without inflating, to tell the two apart
(format: RFC 8878, sections 3.1.1 and 3.1.2).
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, Any

_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50


class ZstdStream(io.RawIOBase):
    """Inflates a file and raises at its end if a frame was cut."""

    def __init__(self, path: Path, raw: IO[bytes]) -> None:
        import zstandard

        self._path = path
        self._stream: Any = zstandard.ZstdDecompressor().stream_reader(
            io.BufferedReader(raw, 1 << 18),  # type: ignore[type-var]
            read_across_frames=True,
            closefd=True,
        )

    def readable(self) -> bool:
        """Tell that the stream can be read."""
        return True

    def close(self) -> None:
        """Close the compressed file as well."""
        self._stream.close()
        super().close()

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` inflated bytes.

        Raises:
            EOFError: when the file ends inside a frame, after all that could be inflated.
        """
        block: bytes = self._stream.read(size)
        if not block and size and not frames_are_whole(self._path):
            raise EOFError("the compressed file ends before its end marker")
        return block


def frames_are_whole(path: Path) -> bool:
    """Tell whether the last frame of a file has all its blocks; foreign bytes behind it are whole."""
    with path.open("rb") as file:
        while True:
            magic = file.read(4)
            if not magic:
                return True
            if len(magic) < 4:
                return False
            number = int.from_bytes(magic, "little")
            if number & 0xFFFFFFF0 == _SKIPPABLE:
                size = file.read(4)
                if len(size) < 4 or not _skip(file, int.from_bytes(size, "little")):
                    return False
            elif number != _MAGIC:
                return True
            elif not _walk_frame(file):
                return False


def _walk_frame(file: IO[bytes]) -> bool:
    head = file.read(1)
    if not head:
        return False
    descriptor = head[0]
    single = descriptor >> 5 & 1
    content = (single, 2, 4, 8)[descriptor >> 6]
    dictionary = (0, 1, 2, 4)[descriptor & 3]
    if not _skip(file, (0 if single else 1) + dictionary + content):
        return False
    while True:
        block = file.read(3)
        if len(block) < 3:
            return False
        header = int.from_bytes(block, "little")
        # A run-length block holds one byte, whatever its size says.
        size = 1 if header >> 1 & 3 == 1 else header >> 3
        if not _skip(file, size):
            return False
        if header & 1:
            return _skip(file, 4 if descriptor >> 2 & 1 else 0)


def _skip(file: IO[bytes], count: int) -> bool:
    while count > 0:
        block = file.read(min(count, 1 << 20))
        if not block:
            return False
        count -= len(block)
    return True
