"""What a runner needs to know of the work: how a shard is scanned, and how results are merged."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rerail.errors import EvidenceError
from rerail.tools.shards.unpack import unpack

VERSION = 1


class ShardWork(Protocol):
    """Pure functions: what `scan` returns depends on the files of the shard only."""

    @property
    def name(self) -> str:
        """Return what the work is called."""

    def scan(self, files: Sequence[str]) -> list[Any]:
        """Return one JSON value for each file, in any order."""

    def key(self, row: Any) -> Any:
        """Return what rows are sorted by; equal keys are the same row."""


@dataclass(frozen=True)
class Merged:
    """All rows of a job in order, and the shards that nobody delivered, as (number, of).

    `differ` says that the shards did not see the same files, so that some may have been left out.
    """

    rows: tuple[Any, ...]
    missing: tuple[tuple[int, int], ...]
    differ: bool = False


def shard_of(files: Sequence[str], number: int, count: int) -> list[str]:
    """Return the files of shard `number` (from 0) of `count`.

    Raises:
        ValueError: there is no such shard.
    """
    if not 0 <= number < count:
        raise ValueError(f"there is no shard {number} of {count}")
    return sorted(files)[number::count]


def scan_shard(work: ShardWork, files: Sequence[str], number: int, count: int) -> bytes:
    """Scan one shard and return its result; the same files give the same bytes."""
    rows = sorted(work.scan(shard_of(files, number, count)), key=work.key)
    listed = hashlib.sha256("\0".join(sorted(files)).encode("utf-8", "surrogateescape")).hexdigest()
    head = {
        "rerail_shard": VERSION, "work": work.name, "shard": number, "of": count,
        "listed": listed[:16],
    }  # fmt: skip
    return _packed([head, *rows])


def merge_shards(work: ShardWork, parts: Sequence[bytes]) -> Merged:
    """Put the results of all shards together, in whatever order they come.

    Raises:
        EvidenceError: a part is damaged, of other work or version, or of another split.
    """
    rows: dict[Any, Any] = {}
    seen: dict[int, int] = {}
    listed: set[str] = set()
    differ = False
    for part in parts:
        head, *found = _unpacked(work, part)
        seen[int(head["shard"])] = int(head["of"])
        listed.add(str(head.get("listed", "")))
        differ |= bool(head.get("differ"))
        for row in found:
            rows[json.dumps(work.key(row))] = row
    if len(set(seen.values())) > 1:
        raise EvidenceError(
            f"the shards are of different splits ({sorted(set(seen.values()))})",
            hint="scan all shards into an empty folder",
        )
    count = max(seen.values(), default=0)
    missing = tuple((n, count) for n in range(count) if n not in seen)
    return Merged(tuple(sorted(rows.values(), key=work.key)), missing, differ or len(listed) > 1)


def merged_bytes(work: ShardWork, merged: Merged) -> bytes:
    """Return a merged result as one file; it does not tell how the files were split."""
    head: Mapping[str, Any] = {"rerail_shard": VERSION, "work": work.name, "shard": 0, "of": 1}
    missing = [list(one) for one in merged.missing]
    return _packed([{**head, "missing": missing, "differ": merged.differ}, *merged.rows])


def read_head(part: bytes) -> dict[str, Any]:
    """Return the first line of a shard's result.

    Raises:
        EvidenceError: the bytes are cut off or no such result.
    """
    try:
        head = json.loads(unpack(part).split(b"\n", 1)[0])
        if head["rerail_shard"] != VERSION:
            raise ValueError(f"version {head['rerail_shard']}")
    except (OSError, EOFError, ValueError, KeyError, TypeError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
        raise EvidenceError(
            f"not the result of a shard ({error})", hint="run `rerail scan` again"
        ) from None
    return dict(head)


def _unpacked(work: ShardWork, part: bytes) -> list[Any]:
    head = read_head(part)
    if head["work"] != work.name:
        raise EvidenceError(f"a shard of {head['work']}, not of {work.name}", hint="rerail scan")
    return [json.loads(line) for line in unpack(part).splitlines()]


def _packed(rows: Sequence[Any]) -> bytes:
    text = "\n".join(json.dumps(row, separators=(",", ":"), sort_keys=True) for row in rows)
    return gzip.compress((text + "\n").encode(), 6, mtime=0)
