"""What a flight-recorder dump says, as typed values.

Ranks in `ProcessGroup.ranks` are global. Ranks in the name of a point-to-point operation are
positions in its group; `Entry.peers` still holds them as written, `Dump.peer_ranks` translates.
This module judges nothing: it does not know which rank is at fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rerail.lazy_patterns import lazy

_P2P = lazy(r"^(send|recv) (\d{1,9})(->|<-)(\d{1,9})$")
# PyTorch prints the entry point that was called; ranks may reach one collective through several.
_SAME_OP = {
    "allgather": "all_gather",
    "allgather_base": "all_gather",
    "all_gather_base": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather_coalesced",
    "allgather_coalesced": "all_gather_coalesced",
    "allgather_into_tensor_coalesced": "all_gather_coalesced",
    "reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_coalesced",
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "all_reduce_barrier": "barrier",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_allv": "all_to_all",
}


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """One process group: the name PyTorch gave it, what its creator called it, global ranks."""

    name: str
    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The last sequence numbers a rank reports for one group; None where it reports none.

    In a group that also carries point-to-point operations the number belongs to whichever kind
    came last, so it is not always a collective's number.
    """

    enqueued: int | None
    started: int | None
    completed: int | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One recorded operation.

    `index` is the position in the file. `op` is the operation with spelling variants unified,
    `name` is as recorded. `created_ns` and the other times are in nanoseconds since the epoch,
    None where the recorder had none.
    """

    index: int
    record_id: int
    pg_id: int
    group: str
    description: str
    seq: int
    p2p_seq: int
    op: str
    name: str
    backend: str
    is_p2p: bool
    peers: tuple[int, int] | None
    state: str
    retired: bool
    input_sizes: tuple[tuple[int, ...], ...]
    output_sizes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    created_ns: int | None
    started_ns: int | None
    completed_ns: int | None
    timeout_ms: int | None
    frame: str | None

    @property
    def number(self) -> int:
        """Return the sequence number that identifies the operation in its group."""
        return self.p2p_seq if self.is_p2p else self.seq


@dataclass(frozen=True, slots=True)
class Dump:
    """One rank's dump.

    `rank` is global; `rank_from` says whether the content or the file name told it. `clipped` is
    true if entries were left out because the file holds more than the reader keeps.
    """

    file: str
    rank: int
    rank_from: str
    version: str
    groups: Mapping[str, ProcessGroup]
    status: Mapping[int, GroupStatus]
    entries: tuple[Entry, ...]
    clipped: bool = False

    def peer_ranks(self, entry: Entry) -> tuple[int, int] | None:
        """Return the global (source, destination) of a point-to-point entry, if they are known."""
        group = self.groups.get(entry.group)
        if entry.peers is None or group is None or max(entry.peers) >= len(group.ranks):
            return None
        return group.ranks[entry.peers[0]], group.ranks[entry.peers[1]]


@dataclass(frozen=True, slots=True)
class DumpProblem:
    """A dump that could not be used, and why.

    `kind` is missing, unreadable, truncated, corrupt, refused, too_large, timed_out, not_a_dump,
    no_rank or duplicate.
    """

    file: str
    rank: int | None
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class _Row:
    """Reads fields of an untrusted mapping, with a default in place of a wrong type."""

    values: Mapping[str, Any]

    def integer(self, key: str, default: int = 0) -> int:
        value = self.values.get(key)
        return int(value) if isinstance(value, int | float) else default

    def maybe(self, key: str) -> int | None:
        # JSON dumps print 0 where pickled ones hold None: no event happened at the epoch.
        return self.integer(key) or None

    def text(self, key: str) -> str:
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key)
        return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()

    def sizes(self, key: str) -> tuple[tuple[int, ...], ...]:
        value = self.values.get(key)
        if not isinstance(value, list):
            return ()
        return tuple(
            tuple(n for n in size if isinstance(n, int)) for size in value if isinstance(size, list)
        )


@dataclass(frozen=True, slots=True)
class _Name:
    """The parts of a profiling name: `nccl:_all_gather_base`, `nccl:send 0->1`."""

    backend: str = ""
    op: str = ""
    peers: tuple[int, int] | None = field(default=None)

    @classmethod
    def parse(cls, text: str) -> _Name:
        backend, colon, op = text.partition(":")
        if not colon:
            backend, op = "", text
        if match := _P2P.match(op):
            left, right = int(match[2]), int(match[4])
            peers = (left, right) if match[3] == "->" else (right, left)
            return cls(backend, match[1], peers)
        op = op.lower().lstrip("_")
        return cls(backend.lower(), _SAME_OP.get(op, op))


def entry_from_plain(values: Mapping[str, Any]) -> Entry:
    """Build an entry from plain values of any content; wrong types become defaults."""
    row = _Row(values)
    name = _Name.parse(row.text("profiling_name"))
    group = row.texts("process_group")
    return Entry(
        index=row.integer("index"),
        record_id=row.integer("record_id"),
        pg_id=row.integer("pg_id", -1),
        group=group[0] if group else "",
        description=group[1] if len(group) > 1 else "",
        seq=row.integer("collective_seq_id", row.integer("seq_id")),
        p2p_seq=row.integer("p2p_seq_id"),
        op=name.op,
        name=row.text("profiling_name"),
        backend=name.backend,
        is_p2p=values.get("is_p2p") is True or name.peers is not None,
        peers=name.peers,
        state=row.text("state"),
        retired=values.get("retired") is True,
        input_sizes=row.sizes("input_sizes"),
        output_sizes=row.sizes("output_sizes"),
        input_dtypes=row.texts("input_dtypes"),
        output_dtypes=row.texts("output_dtypes"),
        created_ns=row.maybe("time_created_ns"),
        started_ns=row.maybe("time_discovered_started_ns"),
        completed_ns=row.maybe("time_discovered_completed_ns"),
        timeout_ms=row.maybe("timeout_ms"),
        frame=row.text("frame") or None,
    )


def dump_from_plain(
    file: str, values: Mapping[str, Any], rank_in_name: int | None
) -> Dump | DumpProblem:
    """Build a dump from the plain values that the reading process sent.

    The content decides the rank if all groups of the dump share exactly one; file names of a
    multi-node job often carry only the position in the node.
    """
    config = values.get("pg_config")
    groups: dict[str, ProcessGroup] = {}
    for name, value in (config if isinstance(config, dict) else {}).items():
        ranks = tuple(r for r in value.get("ranks", ()) if isinstance(r, int))
        groups[name] = ProcessGroup(name, str(value.get("desc") or ""), ranks)
    rows = values.get("entries")
    entries = tuple(entry_from_plain(row) for row in rows) if isinstance(rows, list) else ()
    rank, source = _find_rank(values.get("rank"), groups, entries, rank_in_name)
    if rank is None:
        return DumpProblem(file, None, "no_rank", "neither content nor name tells the rank")
    status: dict[int, GroupStatus] = {}
    reported = values.get("pg_status")
    for key, value in (reported if isinstance(reported, dict) else {}).items():
        if key.isascii() and key.isdigit() and len(key) < 10 and isinstance(value, dict):
            status[int(key)] = _status(value)
    return Dump(
        file=file,
        rank=rank,
        rank_from=source,
        version=str(values.get("version") or ""),
        groups=groups,
        status=status,
        entries=entries,
        clipped=values.get("clipped") is True,
    )


def _status(value: Mapping[str, Any]) -> GroupStatus:
    row = _Row(value)
    found = [row.integer(f"last_{what}_collective", -1) for what in ("enqueued", "started")]
    done = row.integer("last_completed_collective", -1)
    enqueued, started, completed = (n if n >= 0 else None for n in (*found, done))
    return GroupStatus(enqueued, started, completed)


def _find_rank(
    stated: object,
    groups: Mapping[str, ProcessGroup],
    entries: tuple[Entry, ...],
    rank_in_name: int | None,
) -> tuple[int | None, str]:
    if isinstance(stated, int) and not isinstance(stated, bool) and stated >= 0:
        return stated, "content"
    possible: set[int] | None = None
    for group in groups.values():
        if group.ranks:
            possible = set(group.ranks) if possible is None else possible & set(group.ranks)
    for entry in entries:
        # Who sends names itself first, who receives names itself as the destination.
        known = groups.get(entry.group)
        if entry.peers is not None and known is not None and max(entry.peers) < len(known.ranks):
            own = known.ranks[entry.peers[0 if entry.op == "send" else 1]]
            possible = {own} if possible is None else possible & {own}
            break
    if possible is not None and len(possible) == 1:
        return possible.pop(), "content"
    return rank_in_name, "file name"
