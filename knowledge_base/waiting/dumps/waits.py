"""Finds who waits for whom, and at whom the waiting ends.

Each rank's unfinished operations are read in the order it entered them. The first one that a
member has not entered is what the rank waits at, and those members are whom it waits for. If all
members entered, the operation can still be held up by a member that is blocked at something
earlier. Following these edges, cascades across groups (tensor, pipeline, data, expert parallel)
end at ranks that wait for nobody: the culprits, or ranks about which nothing is known.

The module knows nothing of why a rank stopped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from rerail.knowledge_base.waiting.dumps.board import NEEDS_EVERYBODY, Board, OpKey
from rerail.log_parsers.flight_recorder.model import Entry

# One unfinished operation that others finished may be polling delay, if the rank went on to all
# that others entered; two are a device that stopped.
_LEAST_LAG = 2


@dataclass(frozen=True, slots=True)
class Wait:
    """What one rank waits at: its entry, the members it waits for, and how that is known.

    `kind` is `absent` (members have a usable dump without the operation), `behind` (all entered,
    some are held up earlier) or `unknown` (only members without a usable dump can be absent).
    """

    rank: int
    entry: Entry
    on: frozenset[int]
    kind: str


@dataclass(slots=True)
class Waits:
    """The waiting of all ranks: edges, stalled ranks, and the ends of the chains."""

    waiting: dict[int, Wait] = field(default_factory=dict)
    stalled: dict[int, Entry] = field(default_factory=dict)
    entered_by_all: list[tuple[int, Entry]] = field(default_factory=list)
    ends: list[frozenset[int]] = field(default_factory=list)


def find_waits(board: Board) -> Waits:
    """Build the wait-for graph of a job and the groups of ranks at which it ends."""
    waits = Waits(stalled=_stalled(board))
    pending = {rank: board.pending_of(rank) for rank in sorted(board.dumps)}
    partners = _Partners(board, pending)
    soft: dict[int, Wait] = {}
    for rank, entries in pending.items():
        if rank in waits.stalled:
            continue
        for entry in entries:
            absent, unknown = partners.not_there(rank, entry)
            if absent:
                waits.waiting[rank] = Wait(rank, entry, absent, "absent")
                break
            if unknown:
                soft.setdefault(rank, Wait(rank, entry, unknown, "unknown"))
    _spread(board, pending, partners, waits)
    for rank, wait in soft.items():
        waits.waiting.setdefault(rank, wait)
    waits.entered_by_all = [
        (rank, entries[0])
        for rank, entries in pending.items()
        if entries and rank not in waits.waiting and rank not in waits.stalled
    ]
    waits.ends = _ends({rank: wait.on for rank, wait in waits.waiting.items()})
    return waits


def _stalled(board: Board) -> dict[int, Entry]:
    """Find ranks that did not finish what others finished with their help.

    A collective that needs everybody and is finished on one member has been entered and served by
    all, so a rank that still holds it stopped by itself: its device or its watchdog did.
    """
    lag: defaultdict[int, list[Entry]] = defaultdict(list)
    for operation in board.operations.values():
        if operation.missing or not (operation.done or operation.passed):
            continue
        for rank, entry in operation.pending.items():
            if entry.op in NEEDS_EVERYBODY:
                lag[rank].append(entry)
    absent = {r for o in board.operations.values() if o.pending for r in o.missing}
    stalled = {
        rank: min(entries, key=lambda e: e.index)
        for rank, entries in lag.items()
        if len(entries) >= _LEAST_LAG or rank in absent
    }
    # Dumps taken of a running job at different moments make many ranks look late: no evidence.
    return stalled if len(stalled) * 2 < len(board.dumps) else {}


class _Partners:
    """Tells which partners of an entry have not entered it."""

    def __init__(self, board: Board, pending: Mapping[int, list[Entry]]) -> None:
        self.board = board
        # Point-to-point entries a rank has open, by channel: (group, source, destination).
        self.open: defaultdict[tuple[int, str, tuple[int, int]], list[Entry]] = defaultdict(list)
        self.last: dict[tuple[int, str], int] = {}
        for rank, entries in pending.items():
            dump = board.dumps[rank]
            for entry in entries:
                channel = dump.peer_ranks(entry)
                if channel is not None:
                    self.open[rank, entry.group, channel].append(entry)
            for entry in dump.entries:
                if entry.is_p2p:
                    key = (rank, entry.group)
                    self.last[key] = max(entry.p2p_seq, self.last.get(key, 0))

    def not_there(self, rank: int, entry: Entry) -> tuple[frozenset[int], frozenset[int]]:
        """Return the partners that are absent, and those about whom nothing is known."""
        dump = self.board.dumps[rank]
        if not entry.is_p2p:
            operation = self.board.operation(dump, entry)
            if (operation.done or operation.passed) and entry.op not in ("reduce", "gather"):
                # Somebody finished it, so nobody the waiting rank needs has stayed away; in a
                # reduce or gather the senders may finish while the root still waits.
                return frozenset(), frozenset()
            return operation.missing - {rank}, operation.unknown
        channel = dump.peer_ranks(entry)
        if channel is None or rank not in channel or channel[0] == channel[1]:
            return frozenset(), frozenset()
        peer = channel[0] if channel[1] == rank else channel[1]
        if peer not in self.board.dumps:
            return frozenset(), frozenset({peer})
        if self._peer_is_there(rank, peer, entry, channel):
            return frozenset(), frozenset()
        return frozenset({peer}), frozenset()

    def _peer_is_there(self, rank: int, peer: int, entry: Entry, channel: tuple[int, int]) -> bool:
        last = self.last.get((peer, entry.group))
        group = self.board.dumps[rank].groups[entry.group]
        if last is not None and len(group.ranks) == 2:
            return last >= entry.p2p_seq
        # In larger groups the numbers of two ranks do not correspond; count what is open.
        mine = self.open[rank, entry.group, channel]
        theirs = self.open.get((peer, entry.group, channel), [])
        return mine.index(entry) < len(theirs)

    def matching(self, rank: int, entry: Entry) -> list[tuple[int, Entry]]:
        """Return the partners that hold the same operation unfinished, with their entries."""
        dump = self.board.dumps[rank]
        if not entry.is_p2p:
            operation = self.board.operation(dump, entry)
            return [(r, e) for r, e in operation.pending.items() if r != rank]
        channel = dump.peer_ranks(entry)
        if channel is None or rank not in channel:
            return []
        peer = channel[0] if channel[1] == rank else channel[1]
        theirs = self.open.get((peer, entry.group, channel), [])
        position = self.open[rank, entry.group, channel].index(entry)
        return [(peer, theirs[position])] if position < len(theirs) else []


def _spread(
    board: Board, pending: Mapping[int, list[Entry]], partners: _Partners, waits: Waits
) -> None:
    """Let ranks whose partners all entered wait for those partners that are held up earlier."""
    held = {rank: wait.entry.index for rank, wait in waits.waiting.items()}
    held |= {rank: entry.index for rank, entry in waits.stalled.items()}
    changed = True
    while changed:
        changed = False
        late: dict[OpKey, frozenset[int]] = {}
        for rank, entries in pending.items():
            if rank in held:
                continue
            for entry in entries:
                on = _held_earlier(board, partners, rank, entry, held, late)
                if on:
                    waits.waiting[rank] = Wait(rank, entry, on, "behind")
                    held[rank] = entry.index
                    changed = True
                    break


def _held_earlier(
    board: Board,
    partners: _Partners,
    rank: int,
    entry: Entry,
    held: Mapping[int, int],
    late: dict[OpKey, frozenset[int]],
) -> frozenset[int]:
    if entry.is_p2p:
        same = partners.matching(rank, entry)
        return frozenset(r for r, e in same if held.get(r, e.index) < e.index)
    operation = board.operation(board.dumps[rank], entry)
    if operation.key not in late:
        late[operation.key] = frozenset(
            r for r, e in operation.pending.items() if held.get(r, e.index) < e.index
        )
    return late[operation.key] - {rank}


def _ends(edges: Mapping[int, frozenset[int]]) -> list[frozenset[int]]:
    """Return the sets of ranks that the edges lead to and do not lead out of.

    Ranks that wait for each other in a circle form one set (Tarjan's strongly connected
    components, without recursion).
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    component: dict[int, int] = {}
    members: list[frozenset[int]] = []
    for root in sorted({*edges, *(r for on in edges.values() for r in on)}):
        if root in index:
            continue
        work = [(root, iter(sorted(edges.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            rank, following = work[-1]
            step = next(following, None)
            if step is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[rank])
                if low[rank] == index[rank]:
                    cut = stack.index(rank)
                    found = frozenset(stack[cut:])
                    del stack[cut:]
                    on_stack -= found
                    component.update(dict.fromkeys(found, len(members)))
                    members.append(found)
            elif step not in index:
                index[step] = low[step] = len(index)
                stack.append(step)
                on_stack.add(step)
                work.append((step, iter(sorted(edges.get(step, ())))))
            elif step in on_stack:
                low[rank] = min(low[rank], index[step])
    leaving = {
        component[rank] for rank, on in edges.items() for r in on if component[r] != component[rank]
    }
    return [found for number, found in enumerate(members) if number not in leaving]
