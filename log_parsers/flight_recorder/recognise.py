"""Recognises flight-recorder dumps, and the rank that wrote one, by first bytes and file name.

Every file that is read passes here, so nothing of what reads dumps is loaded for it.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path

from rerail.lazy_patterns import lazy

_HEAD = 4096
_NAME = lazy(
    r"(?:^|[^a-z])(?:rank|dump)[_\-.]?(?P<rank>\d{1,7})"
    r"(?:\.(?:json|pkl|pickle|pt|bin|dump|trace))*(?:\.gz)?$",
    re.IGNORECASE,
)
_LAST_NUMBER = lazy(r"(\d{1,7})(?:\.[a-z]{1,6})*$", re.IGNORECASE)
_KNOWN_NAME = lazy(
    r"(?:nccl_trace_rank_|comm_lib_trace_rank_|(?:^|_)dump_)\d{1,7}(?:\.json|\.pkl|\.pickle)?(?:\.gz)?$"
)
_MARKS = (b"pg_config", b"collective_seq_id", b"p2p_seq_id", b"pg_status")


def looks_like_flight_recorder(head: bytes, name: str) -> bool:
    """Tell from the first bytes and the file name whether a file is a flight-recorder dump.

    Args:
        head: The first bytes of the file, 4 kB or more if it has them.
        name: The file name, with or without folders.
    """
    known = _KNOWN_NAME.search(name.rpartition("/")[2]) is not None
    if head[:2] == b"\x1f\x8b":
        try:
            head = zlib.decompressobj(31).decompress(head, _HEAD)
        except zlib.error:
            return known
    if not head:
        return known
    start = head.lstrip()[:1]
    if head[0] != 0x80 and start not in (b"{", b"["):
        return False
    return known or any(mark in head[:_HEAD] for mark in _MARKS)


def rank_in_name(name: str) -> int | None:
    """Read the rank from a dump's file name: `nccl_trace_rank_3`, `_dump_12`, `n4_rank_7.json`."""
    base = Path(name).name
    match = _NAME.search(base)
    if match:
        return int(match["rank"])
    match = _LAST_NUMBER.search(base)
    return int(match[1]) if match else None
