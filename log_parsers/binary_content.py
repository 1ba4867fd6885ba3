"""Tells a file that is no text by its first bytes."""

from __future__ import annotations

from rerail.lazy_patterns import lazy

_HOLE = lazy(rb"\x00{64,}")


def looks_binary(chunk: bytes) -> bool:
    """Tell whether a first chunk is not text: a pickle, or mostly bytes that no log holds."""
    # A file that was truncated while its writer went on has a hole of NUL bytes.
    head = _HOLE.sub(b"", chunk)[:4096] if b"\0" in chunk[:4096] else chunk[:4096]
    if head[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05") or head[:4] in (
        b"\x7fELF",
        b"PK\x03\x04",
    ):
        return True
    strange = sum(head.count(bytes([b])) for b in (*range(1, 7), *range(14, 27), *range(28, 32)))
    return bool(head) and (strange > len(head) * 0.1 or head.count(0) > len(head) * 0.6)
