"""Judges a job from its flight-recorder dumps.

Order of reasoning: a collective entered with different calls explains itself; otherwise the
waiting of all ranks is followed to its ends. Ends with a usable dump are culprits. Ends without
one are suspects: a missing or truncated dump is *unknown*. Such a rank is named only if it alone
can have stayed away, left no dump at all, and most of the job did leave one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from rerail.knowledge_base.waiting.dumps import wording
from rerail.knowledge_base.waiting.dumps.board import STATE_IS_KEPT, Board
from rerail.knowledge_base.waiting.dumps.case import DumpCase
from rerail.knowledge_base.waiting.dumps.mismatch import Mismatch, find_mismatch
from rerail.knowledge_base.waiting.dumps.verdict import DumpVerdict, Firmness, Kind
from rerail.knowledge_base.waiting.dumps.waits import Wait, Waits, find_waits
from rerail.log_parsers.flight_recorder.loader import Limits, load_dumps
from rerail.log_parsers.flight_recorder.model import Dump, DumpProblem

_WITNESSES = 4
_DIVERGED = "rank_divergence"
# A dump does not tell what a rank did instead; with nothing else the time-out is unexplained.
_UNEXPLAINED = "nccl_timeout_unexplained"


def diagnose_dumps(
    paths: Sequence[str | os.PathLike[str]], *, limits: Limits | None = None
) -> DumpVerdict:
    """Read dumps and judge them."""
    answers = load_dumps(paths, limits=limits)
    return judge(
        [a for a in answers if isinstance(a, Dump)],
        [a for a in answers if isinstance(a, DumpProblem)],
    )


def judge(dumps: Iterable[Dump], problems: Iterable[DumpProblem] = ()) -> DumpVerdict:
    """Give the verdict on one job from its usable dumps and the problems with the others."""
    problems = tuple(problems)
    board = Board(dumps, problems)
    case = DumpCase(board, problems)
    if not board.dumps:
        return case.close("unknown", "unknown", "No usable flight-recorder dump was found.")
    mismatch = find_mismatch(board)
    if mismatch is not None:
        return _judge_mismatch(case, mismatch)
    waits = find_waits(board)
    case.waiting = tuple(sorted(waits.waiting))
    culprits = _culprits(board, waits)
    if culprits:
        idle = culprits - waits.waiting.keys() - waits.stalled.keys()
        if idle == culprits and len(idle) > len(waits.waiting):
            return _judge_ahead(case, waits, idle)
        return _judge_culprits(case, waits, culprits)
    if waits.waiting:
        return _judge_unknown(case, waits)
    if waits.entered_by_all:
        return _judge_in_flight(case, waits)
    if len(board.dumps) <= len(board.unknown):
        reason = "Nothing is unfinished in the few usable dumps, which says nothing of the others."
        return case.close("unknown", "unknown", reason)
    reason = "No rank waits for another: every recorded collective was finished."
    return case.close("healthy", "supported" if board.unknown else "established", reason)


def _judge_mismatch(case: DumpCase, found: Mismatch) -> DumpVerdict:
    operation = found.operation
    entries = {**operation.done, **operation.pending}
    for _, ranks in found.variants:
        for rank in ranks[:_WITNESSES]:
            entry = entries[rank]
            case.cite(rank, f"called {wording.call(entry)} as number {entry.seq}", entry)
    (common, many), *others = found.variants
    where = f"number {operation.key[1]} of {wording.group(operation.group)}"
    if found.tied:
        calls = " and ".join(f"{wording.ranks(r)} called {text}" for text, r in found.variants)
        reason = f"At {where} {calls}; the dumps cannot tell which call is wrong."
    else:
        calls = " and ".join(f"{wording.ranks(r)} called {text}" for text, r in others)
        reason = f"At {where} {calls}, while {wording.ranks(many)} called {common}."
    first = found.odd[0]
    return case.close(
        "mismatch",
        "supported" if found.tied else "established",
        reason,
        culprits=found.odd,
        at=(first, entries[first]),
        variants=found.variants,
        leaf=_DIVERGED,
    )


def _culprits(board: Board, waits: Waits) -> set[int]:
    """Collect the ends of the waiting that have a usable dump, and the ranks that stalled."""
    culprits = set(waits.stalled)
    for end in waits.ends:
        if len(end) == 1:
            culprits |= end & board.dumps.keys()
            continue
        # A circle: only those who stayed away from what others of it wait at can be at fault.
        for rank in end:
            wait = waits.waiting[rank]
            if wait.kind == "absent":
                culprits |= wait.on & end
    return culprits


def _judge_culprits(case: DumpCase, waits: Waits, culprits: set[int]) -> DumpVerdict:
    clauses, at = [], None
    left = set(culprits)
    while left and (wait := _best_wait(waits, left)):
        named = wait.on & left
        missed = "took its part in" if wait.entry.is_p2p else "entered"
        place = case.place(wait.rank, wait.entry)
        clauses.append(f"{wording.ranks(named)} never {missed} {place}")
        at = at or (wait.rank, wait.entry)
        for rank in sorted(named):
            _cite_absent(case, waits, rank, wait)
        left -= named
    for rank in sorted(left & waits.stalled.keys()):
        entry = waits.stalled[rank]
        clauses.append(f"rank {rank} did not finish {case.place(rank, entry)}, which others did")
        case.cite(rank, f"still holds {case.label(rank, entry)}, which others finished", entry)
        at = at or (rank, entry)
    witnesses = [w for w in waits.waiting.values() if w.on & culprits]
    for wait in sorted(witnesses, key=lambda w: (at is None or w.entry.op != at[1].op, w.rank)):
        if len(case.evidence) >= len(culprits) + _WITNESSES:
            break
        shows = f"waits in {case.label(wait.rank, wait.entry)} for {wording.ranks(wait.on)}"
        case.cite(wait.rank, shows, wait.entry)
    reason = wording.sentence("; ".join(clauses))
    if waiting := waits.waiting.keys() - culprits:
        reason += f"; {wording.ranks(waiting)} {wording.verb(waiting, 'waits', 'wait')}"
        reason += f" for {wording.verb(culprits, 'it', 'them')}"
        if any(not waits.waiting[rank].on & culprits for rank in waiting):
            reason += ", directly or through others"
    unseen = {r for w in waits.waiting.values() if w.on & culprits for r in _unseen(case, w)}
    if unseen:
        reason += f"; {wording.ranks(unseen)} may be absent, too, without a usable dump"
    status = _firmness(case.board, waits, culprits)
    circle = culprits & waits.waiting.keys()
    if len(circle) > 1:
        reason += "; they wait for each other, so the ranks issue collectives in different orders"
        return case.close(
            "mismatch", status, f"{reason}.", culprits=culprits, at=at, leaf=_DIVERGED
        )
    kind: Kind = "stuck_in_collective" if culprits <= waits.stalled.keys() else "missing_rank"
    if any(w.kind == "absent" and w.on & culprits for w in waits.waiting.values()):
        kind = "missing_rank"
    return case.close(kind, status, f"{reason}.", culprits=culprits, at=at, leaf=_UNEXPLAINED)


def _unseen(case: DumpCase, wait: Wait) -> frozenset[int]:
    """Return members of an awaited collective about which nothing is known."""
    if wait.kind != "absent" or wait.entry.is_p2p:
        return frozenset()
    return case.board.operation(case.board.dumps[wait.rank], wait.entry).unknown


def _best_wait(waits: Waits, culprits: set[int]) -> Wait | None:
    """Choose the wait that names most culprits and fewest others, then the earliest."""
    absent = [w for w in waits.waiting.values() if w.kind == "absent" and w.on & culprits]
    return min(
        absent,
        key=lambda w: (
            -len(w.on & culprits),
            len(w.on - culprits),
            w.entry.is_p2p,
            w.entry.created_ns or 0,
            w.rank,
        ),
        default=None,
    )


def _cite_absent(case: DumpCase, waits: Waits, rank: int, wait: Wait) -> None:
    board = case.board
    dump = board.dumps[rank]
    key = board.key_of(board.dumps[wait.rank], wait.entry.group)
    last = board.entered.get((rank, key))
    side = "counterpart of " if wait.entry.is_p2p else ""
    shows = f"has no {side}{case.label(wait.rank, wait.entry)}"
    if not wait.entry.is_p2p and last is not None:
        shows += f"; its last collective in that group is {last}"
    if rank in waits.stalled:
        shows += f"; still holds {case.label(rank, waits.stalled[rank])}, which others finished"
    newest = max(dump.entries, key=lambda e: (e.record_id, e.index), default=None)
    if newest is not None:
        shows += f"; its newest entry is {case.label(rank, newest)}"
        shows += f" at {newest.frame}" if newest.frame else ""
    case.cite(rank, shows, newest)


def _firmness(board: Board, waits: Waits, culprits: set[int]) -> Firmness:
    """Say how firmly the dumps hold the culprits."""
    if culprits & waits.waiting.keys():
        return "supported"
    open_end = any(end & board.unknown.keys() for end in waits.ends)
    # Only NCCL writes dumps by itself when a job hangs; others are snapshots at any moment.
    snapshot = not any(e.backend in STATE_IS_KEPT for d in board.dumps.values() for e in d.entries)
    if open_end or snapshot or not any(w.kind == "absent" for w in waits.waiting.values()):
        return "supported"
    return "established"


def _judge_ahead(case: DumpCase, waits: Waits, idle: set[int]) -> DumpVerdict:
    """Judge a few ranks waiting for many that have nothing left to do: the few went too far."""
    ahead = sorted(r for r, w in waits.waiting.items() if w.kind == "absent")
    first = min((waits.waiting[r] for r in ahead), key=lambda w: (w.entry.created_ns or 0, w.rank))
    steps = max(len(case.board.pending_of(rank)) for rank in ahead)
    at = (first.rank, first.entry)
    for rank in ahead[:_WITNESSES]:
        entry = waits.waiting[rank].entry
        case.cite(rank, f"waits in {case.label(rank, entry)}, which no other rank entered", entry)
    place = case.place(*at)
    subject = f"{wording.ranks(ahead)} {wording.verb(ahead, 'is', 'are')}"
    if steps == 1 and first.entry.backend not in STATE_IS_KEPT:
        reason = f"{subject} one collective ahead, at {place}, which is normal in a running job."
        return case.close("healthy", "hypothesis", wording.sentence(reason), at=at)
    reason = (
        f"{subject} alone in {place}; {wording.ranks(idle)} never entered it and "
        f"{wording.verb(idle, 'waits', 'wait')} for nothing."
    )
    status: Firmness = "supported" if steps > 1 else "hypothesis"
    return case.close(
        "mismatch", status, wording.sentence(reason), culprits=ahead, at=at, leaf=_DIVERGED
    )


def _judge_unknown(case: DumpCase, waits: Waits) -> DumpVerdict:
    """Judge waiting that ends only at ranks without a usable dump."""
    board = case.board
    suspects = {r for end in waits.ends for r in end if r in board.unknown}
    wait = min(waits.waiting.values(), key=lambda w: (w.kind != "unknown", len(w.on), w.rank))
    at = (wait.rank, wait.entry)
    for witness in list(waits.waiting.values())[:_WITNESSES]:
        shows = (
            f"waits in {case.label(witness.rank, witness.entry)} for {wording.ranks(witness.on)}"
        )
        case.cite(witness.rank, shows, witness.entry)
    broken = {p.rank for p in case.problems if p.kind != "missing"}
    if len(suspects) == 1 and not suspects & broken and _left_nothing(board, suspects):
        reason = (
            f"{wording.ranks(suspects)} left no dump and is the only rank that can be absent from "
            f"{case.place(*at)}; all others entered it."
        )
        return case.close(
            "missing_rank",
            "supported",
            wording.sentence(reason),
            culprits=suspects,
            at=at,
            leaf=_UNEXPLAINED,
        )
    reason = (
        f"Every rank with a usable dump waits, first at {case.place(*at)}; at least one of "
        f"{wording.ranks(suspects)} is absent or the network is stuck, but "
        f"{wording.verb(suspects, 'it has', 'they have')} no usable dump."
    )
    return case.close(
        "all_waiting_unknown",
        "hypothesis" if len(suspects) == 1 else "unknown",
        reason,
        suspects=suspects,
        at=at,
        leaf=_UNEXPLAINED,
    )


def _left_nothing(board: Board, suspects: set[int]) -> bool:
    """Tell whether suspects lack a file although most of the job left one."""
    none = all(board.unknown[r] in Board.NO_DUMP for r in suspects)
    return none and len(board.dumps) > len(board.unknown)


def _judge_in_flight(case: DumpCase, waits: Waits) -> DumpVerdict:
    """Judge unfinished operations that every member has entered."""
    board = case.board
    rank, entry = min(waits.entered_by_all, key=lambda w: (w[1].created_ns or 0, w[0]))
    at = (rank, entry)
    place = case.place(*at)
    keeps_state = entry.backend in STATE_IS_KEPT
    most = max(len(board.pending_of(r)) for r, _ in waits.entered_by_all)
    operations = [
        board.operation(board.dumps[r], e) for r, e in waits.entered_by_all if not e.is_p2p
    ]
    moving = any(o.done or o.passed for o in operations)
    for r, e in waits.entered_by_all[:_WITNESSES]:
        case.cite(r, f"has not finished {case.label(r, e)} ({e.state})", e)
    if moving or (not keeps_state and most == 1):
        reason = f"All members entered {place}, and nothing shows that it does not move on."
        return case.close("healthy", "hypothesis", reason, at=at)
    operation = next((o for o in operations if entry in o.pending.values()), None)
    held = {r for r, e in operation.pending.items() if not e.started_ns} if operation else set()
    if operation and held and len(held) < len(operation.pending):
        reason = (
            f"All members entered {place}, but on {wording.ranks(held)} it never started: "
            f"something else keeps the device."
        )
        return case.close(
            "stuck_in_collective",
            "supported",
            reason,
            culprits=held,
            at=at,
            leaf=_UNEXPLAINED,
        )
    reason = f"All members entered {place} and none finished it: a link or a device is stuck."
    status: Firmness = "hypothesis" if board.unknown else "supported"
    return case.close("stuck_in_collective", status, reason, at=at, leaf=_UNEXPLAINED)
