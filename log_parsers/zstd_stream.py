"""Zstandard streams that say when their end is missing.

The library gives out what a torn stream holds and then ends as if it were whole. So its frames are
walked by their block headers while the bytes come by, without inflating, to tell the two apart
(format: RFC 8878, sections 3.1.1 and 3.1.2).
"""

from __future__ import annotations

import io
from collections.abc import Generator
from typing import IO, Any

_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50
_ALL = 1 << 62
_PIECE = 1 << 17  # bytes; no block of a frame holds more


class ZstdStream(io.RawIOBase):
    """Inflates a file or a pipe and raises at its end if a frame was cut."""

    def __init__(self, raw: IO[bytes]) -> None:
        import zstandard

        self._frames = _Frames(raw)
        self._error: Exception | None = None
        self._stream: Any = zstandard.ZstdDecompressor().stream_reader(
            io.BufferedReader(self._frames, 1 << 18),
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
        """Return up to `size` inflated bytes; what came before a damage comes before its error.

        Raises:
            EOFError: when the stream ends inside a frame, after all that could be inflated.
        """
        wanted = size if size >= 0 else _ALL
        parts: list[bytes] = []
        held = 0
        while held < wanted and self._error is None:
            try:
                # The library's own loop gives out nothing at all of a read that ends with an error.
                piece: bytes = self._stream.read1(min(wanted - held, _PIECE))
            except Exception as error:  # an error class of the library's own
                self._error = error
                break
            if not piece:
                break
            parts.append(piece)
            held += len(piece)
        if not parts and size:
            if self._error is not None:
                raise self._error
            if not self._frames.whole:
                raise EOFError("the compressed file ends before its end marker")
        return b"".join(parts)


class _Frames(io.RawIOBase):
    """Hands bytes through, and knows whether all frames among them are whole."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._between = True
        self._left_out = 0  # bytes that say nothing of where blocks begin
        self._held = b""
        self._walk = self._headers()
        self._wanted = next(self._walk)

    @property
    def whole(self) -> bool:
        """Whether the bytes so far end with a frame."""
        return self._between and not self._held

    def readable(self) -> bool:
        """Tell that the stream can be read."""
        return True

    def close(self) -> None:
        """Close what is read as well."""
        self._raw.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        """Read into `buffer` and return how many bytes it was; none only at the end."""
        block = self._raw.read(len(buffer)) or b""
        buffer[: len(block)] = block
        at = 0
        while at < len(block):
            if self._left_out:
                step = min(self._left_out, len(block) - at)
                self._left_out -= step
            else:
                step = min(self._wanted - len(self._held), len(block) - at)
                self._held += block[at : at + step]
            at += step
            self._go_on()
        return len(block)

    def _go_on(self) -> None:
        while not self._left_out and len(self._held) == self._wanted:
            header, self._held = self._held, b""
            self._wanted = self._walk.send(header)

    def _headers(self) -> Generator[int, bytes, None]:
        """Ask for one header after the other, by its size; what stands between them is left out."""
        while True:
            self._between = True
            number = int.from_bytes((yield 4), "little")
            self._between = False
            if number & 0xFFFFFFF0 == _SKIPPABLE:
                self._left_out = int.from_bytes((yield 4), "little")
                yield 0
            elif number == _MAGIC:
                yield from self._blocks()
            else:
                self._between, self._left_out = True, _ALL
                yield 0

    def _blocks(self) -> Generator[int, bytes, None]:
        descriptor = (yield 1)[0]
        single = descriptor >> 5 & 1
        content = (single, 2, 4, 8)[descriptor >> 6]
        dictionary = (0, 1, 2, 4)[descriptor & 3]
        self._left_out = (0 if single else 1) + dictionary + content
        yield 0
        while True:
            header = int.from_bytes((yield 3), "little")
            # A run-length block holds one byte, whatever its size says.
            self._left_out = 1 if header >> 1 & 3 == 1 else header >> 3
            if header & 1:
                self._left_out += 4 if descriptor >> 2 & 1 else 0
                yield 0
                return
            yield 0
