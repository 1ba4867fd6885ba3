"""A part of an open file as a file of its own."""

from __future__ import annotations

import io
from typing import BinaryIO


def ranged(stream: BinaryIO, first: int, length: int | None) -> BinaryIO:
    """Return the stream itself from byte `first` on, or `length` bytes of it as a stream in memory."""
    stream.seek(first)
    if length is None:
        return stream
    with stream:
        return io.BytesIO(stream.read(length))
