"""Protocol-buffer messages as their fields on the wire; bounded, and without a schema compiler.

Event files need four small messages. The protobuf package would be a dependency of the core for them,
and its generated classes come with TensorBoard only.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class WireError(ValueError):
    """The bytes are no message."""


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield (number, wire type, value) of each field: an int of a varint, bytes of anything else.

    Raises:
        WireError: the bytes end inside a field, or hold a kind that is not in use any more.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield number, kind, value
            continue
        if kind == BYTES:
            size, at = _varint(data, at)
        elif kind == FIXED64:
            size = 8
        elif kind == FIXED32:
            size = 4
        else:
            raise WireError(f"field {number} has the kind {kind}")
        if at + size > end:
            raise WireError(f"field {number} is cut")
        yield number, kind, data[at : at + size]
        at += size


def signed(value: int) -> int:
    """Return an int64 that was written as a varint."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for _ in range(_LONGEST_VARINT):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & ((1 << 64) - 1), at
        shift += 7
    raise WireError("a number is cut")
