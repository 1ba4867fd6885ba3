"""TFRecord framing: length, its checksum, the data, its checksum.

https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/lib/io/record_writer.h
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from rerail.log_parsers.sources import Readable

LONGEST = (
    8 << 20
)  # bytes of a record that is held; graphs and images may be longer and are passed over
_BLOCK = 1 << 20
_HEADER = struct.Struct("<QI")
_CHECK = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Record:
    """One record: number from 1, first byte in the file, data (None if it is too long to hold), checksum."""

    number: int
    offset: int
    data: bytes | None
    check: int

    def is_whole(self) -> bool:
        """Tell whether the data are what was written."""
        return self.data is None or masked_crc(self.data) == self.check


class DamagedRecordError(ValueError):
    """The length of a record is damaged, so that no later one can be found."""


def records(stream: Readable) -> Iterator[Record]:
    """Yield the records of a stream; one that is cut at the end is left out, as a killed writer leaves it.

    Raises:
        DamagedRecordError: the checksum of a length is wrong.
    """
    source = _Bytes(stream)
    number = 0
    while True:
        offset = source.offset
        header = source.take(_HEADER.size)
        if len(header) < _HEADER.size:
            return
        length, check = _HEADER.unpack(header)
        number += 1
        if masked_crc(header[:8]) != check:
            # A writer that was killed on a full disk leaves zeros behind its last record.
            if not header.strip(b"\0") and not source.rest_has_data():
                return
            raise DamagedRecordError(f"record {number} (byte {offset})")
        if length > LONGEST:
            if not source.skip(length + _CHECK.size):
                return
            yield Record(number, offset, None, 0)
            continue
        body = source.take(length + _CHECK.size)
        if len(body) < length + _CHECK.size:
            return
        yield Record(number, offset, body[:length], _CHECK.unpack_from(body, length)[0])


def looks_like_records(head: bytes) -> bool:
    """Tell whether a file begins with a record: the checksum of its length is right."""
    if len(head) < _HEADER.size:
        return False
    check = int.from_bytes(head[8:12], "little")
    return masked_crc(head[:8]) == check


def masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C of some bytes, as records carry it."""
    crc = 0xFFFFFFFF
    table = _table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(maxsize=1)
def _table() -> tuple[int, ...]:
    values = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        values.append(value)
    return tuple(values)


class _Bytes:
    """A stream from which exactly as many bytes are taken as are asked for, or what is left."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._buffer = b""
        self._at = 0
        self.offset = 0

    def take(self, size: int) -> bytes:
        left = len(self._buffer) - self._at
        if left < size:
            parts = [self._buffer[self._at :]]
            while left < size:
                block = self._stream.read(max(_BLOCK, size - left))
                if not block:
                    break
                parts.append(block)
                left += len(block)
            self._buffer, self._at = b"".join(parts), 0
        data = self._buffer[self._at : self._at + size]
        self._at += len(data)
        self.offset += len(data)
        return data

    def skip(self, size: int) -> bool:
        """Pass over bytes; False where fewer are left."""
        while size > 0:
            passed = len(self.take(min(size, _BLOCK)))
            if not passed:
                return False
            size -= passed
        return True

    def rest_has_data(self) -> bool:
        while block := self.take(_BLOCK):
            if block.strip(b"\0"):
                return True
        return False
