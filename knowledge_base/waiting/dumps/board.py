"""Puts the dumps of all ranks side by side: who entered which operation, and who finished it.

Sequence numbers of one group count the same operations on every rank, so (group, number) names
one collective of the job. Point-to-point numbers are counted by each process alone and are only
comparable in groups of two. A rank without a usable dump is *unknown* here, never absent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rerail.log_parsers.flight_recorder.model import (
    Dump,
    DumpProblem,
    Entry,
    GroupStatus,
    ProcessGroup,
)

# Nobody can finish one of these before everybody has entered it.
NEEDS_EVERYBODY = frozenset(
    {
        "all_reduce",
        "all_reduce_coalesced",
        "all_gather",
        "all_gather_coalesced",
        "reduce_scatter",
        "reduce_scatter_coalesced",
        "all_to_all",
        "barrier",
    }
)
# Gloo never moves an entry to "completed": there, retired means finished. With NCCL an operation
# is also retired when it failed, so only the state counts.
STATE_IS_KEPT = frozenset({"nccl", "ncclx", "rccl", "rcclx", "xccl", "mccl", "hccl"})

# Groups of one name but different ranks are different groups (split communicators do that).
GroupKey = tuple[str, tuple[int, ...]]
OpKey = tuple[GroupKey, int]


@dataclass(slots=True)
class Operation:
    """One collective of the job, as the dumps of its members show it.

    `pending` and `done` map a global rank to its entry; `passed` holds ranks that finished it
    according to their group status alone. `missing` are members whose usable dump shows that
    they never entered; `unknown` are members without a usable dump.
    """

    key: OpKey
    group: ProcessGroup
    pending: dict[int, Entry] = field(default_factory=dict)
    done: dict[int, Entry] = field(default_factory=dict)
    passed: set[int] = field(default_factory=set)
    missing: frozenset[int] = frozenset()
    unknown: frozenset[int] = frozenset()

    @property
    def sample(self) -> Entry:
        """Return the entry of the lowest rank that recorded the operation."""
        entries = self.pending or self.done
        return entries[min(entries)]

    @property
    def created_ns(self) -> int:
        """Return when the first rank entered, in nanoseconds since the epoch; 0 if unknown."""
        times = [e.created_ns for e in (*self.pending.values(), *self.done.values())]
        return min((t for t in times if t), default=0)


class Board:
    """All dumps of one job, indexed by group and sequence number."""

    NO_DUMP = ("it left no dump", "its dump is missing")

    def __init__(self, dumps: Iterable[Dump], problems: Iterable[DumpProblem]) -> None:
        self.dumps: dict[int, Dump] = {}
        self.unknown: dict[int, str] = {}
        self.duplicates: list[Dump] = []
        for dump in sorted(dumps, key=_newest):
            if dump.rank in self.dumps:
                self.duplicates.append(self.dumps[dump.rank])
            self.dumps[dump.rank] = dump
        for problem in problems:
            if problem.rank is not None and problem.rank not in self.dumps:
                self.unknown[problem.rank] = f"its dump is {_WORDS.get(problem.kind, 'unusable')}"
        self.groups: dict[GroupKey, ProcessGroup] = {}
        self._join_groups()
        for group in self.groups.values():
            for rank in group.ranks:
                if rank not in self.dumps:
                    self.unknown.setdefault(rank, "it left no dump")
        self.finished_by_coalescing = {r: _coalesced(d) for r, d in self.dumps.items()}
        self._read_progress()
        self.operations: dict[OpKey, Operation] = {}
        self._join_operations()
        self._set_stale_aside()
        for operation in self.operations.values():
            self._find_absent(operation)

    def key_of(self, dump: Dump, name: str) -> GroupKey:
        """Return the job-wide key of a group of one dump."""
        group = dump.groups.get(name)
        return name, group.ranks if group else ()

    def is_done(self, dump: Dump, entry: Entry) -> bool:
        """Tell whether a rank has finished an operation it recorded."""
        if entry.state == "completed" or entry.completed_ns:
            return True
        if entry.retired and entry.backend not in STATE_IS_KEPT:
            return True
        covered = self.finished_by_coalescing[dump.rank].get(_batch_of(entry))
        if covered is not None:
            return covered
        if entry.is_p2p:
            return False
        passed = self.completed.get((dump.rank, self.key_of(dump, entry.group)))
        return passed is not None and entry.seq <= passed

    def pending_of(self, rank: int) -> list[Entry]:
        """Return what a rank has entered and not finished, oldest first."""
        dump = self.dumps[rank]
        return [e for e in dump.entries if not _is_wrapper(e) and not self.is_done(dump, e)]

    def operation(self, dump: Dump, entry: Entry) -> Operation:
        """Return the job-wide operation that a collective's entry belongs to."""
        return self.operations[self.key_of(dump, entry.group), entry.seq]

    def members(self, key: GroupKey) -> tuple[int, ...]:
        """Return the global ranks of a group, as far as any dump tells them."""
        return self.groups[key].ranks

    def _join_groups(self) -> None:
        seen: defaultdict[GroupKey, set[int]] = defaultdict(set)
        about: dict[GroupKey, str] = {}
        for dump in self.dumps.values():
            for group in dump.groups.values():
                if group.ranks:
                    about.setdefault((group.name, group.ranks), group.description)
            for entry in dump.entries:
                key = self.key_of(dump, entry.group)
                seen[key].add(dump.rank)
                about.setdefault(key, entry.description)
        for key, description in about.items():
            ranks = key[1]
            if not ranks:
                # Gloo writes no members. Whoever used the group belongs to it; everybody belongs
                # to the default group.
                default = description == "default_pg" or (key[0] == "0" and not description)
                known = {*self.dumps, *self.unknown}
                if default and max(known) < 2 * len(known) + 8:
                    known |= set(range(max(known)))  # a gap in the numbering is a rank, too
                ranks = tuple(sorted(known if default else seen[key]))
            self.groups[key] = ProcessGroup(key[0], description, ranks)

    def _read_progress(self) -> None:
        """Find the last collective each rank entered and finished in each group."""
        self.entered: dict[tuple[int, GroupKey], int] = {}
        self.completed: dict[tuple[int, GroupKey], int] = {}
        status_of = {rank: _status_by_group(dump) for rank, dump in self.dumps.items()}
        mixed: set[GroupKey] = set()
        newest: dict[tuple[int, GroupKey], int] = {}
        for rank, dump in self.dumps.items():
            for entry in dump.entries:
                key = self.key_of(dump, entry.group)
                if entry.is_p2p:
                    mixed.add(key)
                newest[rank, key] = max(entry.seq, newest.get((rank, key), 0))
        for rank, dump in self.dumps.items():
            for name, status in status_of[rank].items():
                seen = newest.get((rank, self.key_of(dump, name)))
                if seen is not None and status.enqueued is not None and status.enqueued != seen:
                    mixed.add(self.key_of(dump, name))
        self.entered.update(newest)
        for rank, dump in self.dumps.items():
            for name, status in status_of[rank].items():
                key = self.key_of(dump, name)
                if key in mixed:
                    continue  # the numbers may belong to point-to-point operations
                if status.enqueued is not None:
                    self.entered.setdefault((rank, key), status.enqueued)
                if status.completed is not None:
                    self.completed[rank, key] = status.completed

    def _join_operations(self) -> None:
        for rank, dump in self.dumps.items():
            for entry in dump.entries:
                if entry.is_p2p or _is_wrapper(entry):
                    continue
                key = (self.key_of(dump, entry.group), entry.seq)
                operation = self.operations.get(key)
                if operation is None:
                    operation = self.operations[key] = Operation(key, self.groups[key[0]])
                side = operation.done if self.is_done(dump, entry) else operation.pending
                side[rank] = entry
        for (group, number), operation in self.operations.items():
            for rank in operation.group.ranks:
                if rank not in operation.pending and rank not in operation.done:
                    passed = self.completed.get((rank, group))
                    if passed is not None and passed >= number:
                        operation.passed.add(rank)

    def _set_stale_aside(self) -> None:
        """Drop dumps that were written before the others went on, and join without them.

        If others finished a collective that needs everybody, a member whose dump does not have it
        did enter it, later than its dump was written; such a dump says nothing about the end.
        """
        finished: dict[GroupKey, int] = {}
        one_sided = {
            k for (k, _), o in self.operations.items() if o.sample.op not in NEEDS_EVERYBODY
        }
        for (group, number), operation in self.operations.items():
            if operation.done and operation.sample.op in NEEDS_EVERYBODY:
                finished[group] = max(number, finished.get(group, 0))
        for (_, group), number in self.completed.items():
            if group not in one_sided:
                finished[group] = max(number, finished.get(group, 0))
        stale = {
            rank: "its dump was written before the others went on"
            for (rank, group), entered in self.entered.items()
            if entered < finished.get(group, 0)
        }
        if not stale or len(stale) * 2 >= len(self.dumps):
            return
        self.unknown.update(stale)
        for rank in stale:
            del self.dumps[rank]
        for operation in self.operations.values():
            for side in (operation.pending, operation.done):
                for rank in stale.keys() & side.keys():
                    del side[rank]
            operation.passed -= stale.keys()
        for key in [k for k, o in self.operations.items() if not o.pending and not o.done]:
            del self.operations[key]

    def _find_absent(self, operation: Operation) -> None:
        here = operation.pending.keys() | operation.done.keys() | operation.passed
        absent = [rank for rank in operation.group.ranks if rank not in here]
        group, number = operation.key
        operation.missing = frozenset(
            r for r in absent if r in self.dumps and self.entered.get((r, group), -1) < number
        )
        operation.unknown = frozenset(r for r in absent if r not in self.dumps)


_WORDS = {
    "missing": "missing",
    "truncated": "cut short",
    "refused": "refused because it would run code",
    "too_large": "larger than is read",
    "timed_out": "not readable in bounded time and memory",
    "corrupt": "damaged",
}


def _newest(dump: Dump) -> int:
    return max((e.created_ns or 0 for e in dump.entries), default=0)


def _is_wrapper(entry: Entry) -> bool:
    """Tell whether an entry stands for a batch whose parts are recorded on their own."""
    return entry.op == "coalesced"


def _batch_of(entry: Entry) -> tuple[str, bool, int]:
    return entry.group, entry.is_p2p, entry.number


def _coalesced(dump: Dump) -> Mapping[tuple[str, bool, int], bool]:
    """Map each coalesced batch to whether it is finished; its parts never change state."""
    return {
        _batch_of(e): e.state == "completed" or bool(e.completed_ns)
        for e in dump.entries
        if _is_wrapper(e)
    }


def _status_by_group(dump: Dump) -> dict[str, GroupStatus]:
    """Assign the numbered group reports of a dump to group names.

    Entries tell the name of their number. Groups without entries are assigned by order of
    creation, which both numbers and names follow, if that agrees with every entry.
    """
    known = {e.pg_id: e.group for e in dump.entries}
    if len(dump.groups) == len(dump.status) and all(
        n.isascii() and n.isdigit() for n in dump.groups
    ):
        by_order = dict(zip(sorted(dump.status), sorted(dump.groups, key=int), strict=True))
        if all(by_order.get(number) == name for number, name in known.items()):
            known = by_order
    counts = Counter(known.values())
    return {
        known[number]: status
        for number, status in dump.status.items()
        if number in known and counts[known[number]] == 1
    }
