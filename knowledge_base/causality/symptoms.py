"""What to conclude when nothing but symptoms is there: time-outs, lost peers, exits.

The leaf is what the evidence carries and no more: a rank that is behind with evidence of what it
did is slow, a rank that ran another operation diverged, and a time-out on all ranks alike stays
unexplained.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rerail.domain.diagnosis import Status
from rerail.domain.evidence import LogLine, Observation, Role
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.catalogues import exit_code
from rerail.knowledge_base.causality.collectives import Collectives
from rerail.knowledge_base.causality.exits import ExitFact
from rerail.knowledge_base.causality.progress import survived
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.one_node import GPUS_PER_NODE

_PEER = re.compile(
    r"(?:closed by remote peer|Connection closed by peer|closed by peer|remote peer|"
    r"Broken pipe.{0,40}peer)\s*:?\s*\[?(?P<peer>[A-Za-z][\w.-]*|\d+\.\d+\.\d+\.\d+)"
)


_WAITED = re.compile(
    r"(?i)\btim(?:ed?|es) ?out|timeout|remote (?:rank|process|error)|waiting for|heartbeat|\bEI000[26]\b"
)
_RESTARTS = re.compile(r"(?i)restarting|been restarted|will restart")


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A cause concluded from symptoms; `beside` are further lines that the conclusion rests on."""

    leaf: str
    line: LogLine
    status: Status
    why: str
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    action: str | None = None
    beside: tuple[LogLine, ...] = ()


def from_collectives(case: Case, identities: Identities, found: Collectives) -> Conclusion | None:
    """Conclude from collective time-outs."""
    if found.first is None and found.named_by is None and not found.named:
        return None
    suspects = tuple(found.suspects[:16])
    activity = last_activity(case, found)
    first_line = found.named_by or (found.first.line if found.first else None)
    if found.divergent:
        odd = [t for t in found.timeouts if t.rank in found.divergent]
        line = odd[0].line if odd else first_line
        assert line is not None
        return Conclusion("rank_divergence", line, Status.SUPPORTED, found.describe(), suspects)
    if activity is not None:
        ranks = (activity.line.rank,) if activity.line.rank is not None else suspects
        early = "finished_early" in activity.marks
        if activity.line.rank is None and "first_rank_prints" in activity.marks and found.victims:
            ranks = suspects if found.behind or 0 in found.victims else (0,)
        nodes = (activity.line.node,) if activity.line.node else ()
        if early:
            why = "this rank ended its loop while the others still expect it in the collective"
            return Conclusion("rank_divergence", activity.line, Status.SUPPORTED, why, ranks, nodes)
        why = "this was still going on when the others gave up waiting"
        return Conclusion(
            "nccl_slow_rank_timeout", activity.line, Status.SUPPORTED, why, ranks, nodes
        )
    line = first_line
    if line is None:
        return None
    if found.lost_node is not None:
        why = f"no process of {found.lost_node} answers any more, those of other nodes do"
        return Conclusion("node_crash", line, Status.SUPPORTED, why, suspects, found.nodes)
    return Conclusion(
        "process_exit_unexplained" if found.silent else "nccl_timeout_unexplained",
        line,
        Status.SUPPORTED if suspects or found.nodes else Status.HYPOTHESIS,
        found.describe(),
        suspects,
        found.nodes,
    )


def from_side_thread(found: Collectives, lived_with: Sequence[Observation]) -> Conclusion | None:
    """Conclude from a side thread that died on the only rank that came to no further collective.

    A rank goes on for as many steps as its prefetched batches last, then waits for that thread.
    """
    if len(found.suspects) != 1 or found.divergent:
        return None
    missing = found.suspects[0]
    small = max([missing, *found.victims]) < GPUS_PER_NODE
    for observation in lived_with:
        thread, line = observation.fields.get("thread"), observation.line
        # On one node a launcher's label of the local rank is the rank's.
        rank = line.local_rank if line.rank is None and small else line.rank
        if thread and observation.leaf and rank == missing:
            why = f"its thread or child {thread} died of this, and the rank came to no further collective"
            return Conclusion(observation.leaf, line, Status.SUPPORTED, why, (missing,))
    return None


def last_activity(case: Case, found: Collectives) -> Observation | None:
    """Return what a rank was busy with when the others began to wait, or None.

    It must lie before the first time-out, no training step may follow it, and it must not be the
    work of a rank that itself sat in the collective.
    """
    first = found.first
    if first is None:
        return None
    best: Observation | None = None
    activities = [o for o in case.observations if "activity" in o.marks]
    for observation in activities:
        line = observation.line
        if not _earlier(case, line, first.line):
            continue
        early = "finished_early" in observation.marks
        if line.rank is not None and line.rank in found.victims and not early:
            continue
        if found.behind and line.rank is not None and line.rank not in found.behind:
            continue
        bars = frozenset(o.line.number for o in activities if o.line.file == line.file)
        if survived(case, observation, steps=2 if not early else 50, but=bars):
            continue
        if early and line.rank is not None and line.rank in found.victims:
            continue
        if best is None or (best.rule_id, best.line.rank) != (observation.rule_id, line.rank):
            best = observation
    return best


def _earlier(case: Case, a: LogLine, b: LogLine) -> bool:
    if a.file == b.file:
        return a.number < b.number
    time_a, time_b = case.near_time(a), case.near_time(b)
    return time_a is None or time_b is None or time_a <= time_b


def from_wait(case: Case, order: Observation | None, fact: ExitFact | None) -> Conclusion | None:
    """Conclude from ranks that waited for another one, or lost it, before the job was ended."""
    for observation in case.with_role(Role.CASCADE):
        line = observation.line
        if observation.leaf != "nccl_timeout_unexplained" or not _WAITED.search(line.message):
            continue
        late = (order is not None and not case.before(observation, order)) or (
            fact is not None and not _earlier(case, line, fact.line)
        )
        if late or survived(case, observation):
            continue
        why = "it waited for another rank, or lost it; why is not in the evidence"
        return Conclusion("nccl_timeout_unexplained", line, Status.HYPOTHESIS, why)
    return None


def from_ending(case: Case) -> Conclusion | None:
    """Conclude from a launcher or platform that says that the job failed, without any code."""
    told = [o for o in case.observations if "reports_failure" in o.marks]
    told = [o for o in told if not _RESTARTS.search(o.line.message) and not survived(case, o)]
    if not told:
        return None
    why = "the job is reported as failed, and no line says why"
    return Conclusion("process_exit_unexplained", told[0].line, Status.HYPOTHESIS, why)


def from_exit(case: Case, fact: ExitFact) -> Conclusion | None:
    """Conclude from the first odd exit alone, as the catalogue of exit codes reads it."""
    code = fact.code
    if fact.how == "ordered":
        why = "stopped by a signal from outside the job"
        return Conclusion("job_cancelled_or_hangup", fact.line, Status.SUPPORTED, why)
    known = exit_code(code)
    leaf, action, why = "process_exit_unexplained", None, f"exit code {code} and no trace of why"
    if known is not None and known.signal:
        leaf = known.leaf or "process_segfault"
        why = f"{known.signal}, and the process printed no reason. {known.meaning}"
    elif known is not None and known.leaf and code not in (1, 2):
        # 1 and 2 are what any program returns; only a message would say more.
        leaf, action, why = known.leaf, known.action, f"exit code {code}: {known.meaning}"
    return Conclusion(
        leaf,
        fact.line,
        Status.SUPPORTED,
        why,
        (fact.rank,) if fact.rank is not None else (),
        (fact.node,) if fact.node else (),
        action,
    )


def from_quiet_rank(case: Case, identities: Identities, exits: list[ExitFact]) -> Conclusion | None:
    """Conclude from the one rank that neither failed nor complained while all others lost a peer.

    Its launcher reports no exit code for it, so it ended by itself with code 0: it left early.
    """
    lost = {o.line.rank for o in case.with_role(Role.CASCADE) if o.line.rank is not None}
    failed = {f.rank for f in exits if f.rank is not None}
    if (
        len(lost) < 2
        or not failed
        or any(f.how not in ("plain", "ordered", "aborted") for f in exits)
    ):
        return None
    known = set(identities.ranks_seen)
    if identities.world_size is not None and identities.world_size <= 4096:
        known |= set(range(identities.world_size))
    quiet = sorted(known - lost - failed)
    if len(quiet) != 1:
        return None
    last = _last_line(case, quiet[0])
    line = last or next(o.line for o in case.with_role(Role.CASCADE))
    return Conclusion(
        "rank_divergence", line, Status.SUPPORTED,
        f"rank {quiet[0]} ended without an error while the other ranks still needed it", (quiet[0],),
    )  # fmt: skip


def _last_line(case: Case, rank: int) -> LogLine | None:
    last: LogLine | None = None
    for view in case.views:
        for number in reversed(view.numbers[-2000:]):
            line = view.line(number)
            if line is not None and line.rank == rank and line.message.strip():
                if last is None or _earlier(case, last, line):
                    last = line
                break
    return last


def from_lost_peer(case: Case, identities: Identities) -> Conclusion | None:
    """Conclude from connections that broke: the peer that all others name is gone."""
    peers: dict[str, LogLine] = {}
    first: LogLine | None = None
    for observation in case.observations:
        if observation.role is not Role.CASCADE:
            continue
        first = first or observation.line
        match = _PEER.search(observation.line.text)
        peer = observation.fields.get("peer") or (match["peer"] if match else None)
        if peer:
            peers.setdefault(peer.split("<")[0].split(":")[0].strip("[]"), observation.line)
    named = {
        p: line for p, line in peers.items() if p and p != "localhost" and not p.startswith("127.")
    }
    if len(named) == 1 and first is not None:
        peer, line = next(iter(named.items()))
        # Each host says with which address NCCL starts on it; its peers know it by nothing else.
        node = identities.node_of_address.get(peer, peer)
        if line.node not in (peer, node):
            who = peer if node == peer else f"{node} ({peer})"
            left = "error" if node in identities.nodes_seen else "line"
            return Conclusion(
                "node_crash", line, Status.HYPOTHESIS,
                f"all that is known is that {who} closed its connections; it left no {left} of its own",
                (), (node,), "restart_and_exclude_suspect_node",
            )  # fmt: skip
    return None
