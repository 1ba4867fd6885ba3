"""What waiting comes to: the leaf that the evidence carries, and no more.

A rank that is behind with evidence of what it did is slow, a rank that ran another operation
diverged, and a time-out on all ranks alike stays unexplained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rerail.domain.diagnosis import Status
from rerail.domain.evidence import LogLine, Observation, Role
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.conclusion import Conclusion
from rerail.knowledge_base.causality.exits import ExitFact
from rerail.knowledge_base.causality.left_behind import LeftBehind, item_of, left_behind
from rerail.knowledge_base.causality.progress import survived
from rerail.knowledge_base.causality.symptoms import earlier
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.names import same_host
from rerail.knowledge_base.placement.one_node import local_that_is_rank, one_node
from rerail.knowledge_base.waiting.behind_in_steps import behind_in_steps
from rerail.knowledge_base.waiting.engine import Finding, How, Waiting, ask
from rerail.knowledge_base.waiting.read import Position, read
from rerail.knowledge_base.waiting.spoke import still_speaking, warns
from rerail.knowledge_base.waiting.took_longest import took_longest
from rerail.knowledge_base.waiting.torn import without_torn

_MOST_STEPS_OF_PREFETCH = 50


def waiting_in(case: Case, identities: Identities) -> Waiting | None:
    """Return who waits for whom, or None where nothing tells of waiting."""
    facts = read(case)
    without_torn(case, facts)
    if any("ras_report" in o.marks for o in case.observations):
        from rerail.knowledge_base.waiting.ras import told_by_report

        facts.report = told_by_report(case, facts.victims)
    if any("rank_columns" in o.marks for o in case.observations):
        from rerail.knowledge_base.waiting.rank_columns import behind_in_tables

        facts.told += behind_in_tables(case)
    if not facts.positions and not facts.told and facts.report is None:
        return None
    result = Waiting(facts.positions, facts.victims, some_unknown=facts.some_unknown)
    result.findings = ask(
        facts, identities, partial(_heard_of, case), partial(_before_all, case, facts.positions)
    )
    # NCCL knows nodes by their addresses.
    result.findings = [replace(f, nodes=identities.hosts(f.nodes)) for f in result.findings]
    # Who seems to be silent may have written into what nobody read, or in lines that were only counted.
    result.findings = [
        one
        for one in result.findings
        if one.how is not How.ABSENT
        or (not facts.some_unknown and _was_read(case, identities, facts.victims, one))
    ]
    if not result.positions and not result.findings:
        return None
    if result.positions:
        result.first = min(result.positions, key=lambda one: _when(case, one))
        when = case.near_time(result.first.line)
        if when is not None and result.first.limit_s is not None:
            result.started = when - result.first.limit_s
    late = (
        None
        if result.findings
        else took_longest(case, result)
        or _left_behind(case, result)
        or behind_in_steps(case, result)
    )
    if late is not None:
        result.findings.append(late)
    if not facts.some_unknown and (spoke := still_speaking(case, identities, result)):
        # Before whoever is only absent: that one was heard.
        at = next((at for at, one in enumerate(result.findings) if one.how is How.ABSENT), None)
        result.findings.insert(len(result.findings) if at is None else at, spoke)
    return result


def _left_behind(case: Case, waiting: Waiting) -> Finding | None:
    """Return who stopped before all others in what ranks print, where it gave up waiting itself on no line."""
    late = (
        left_behind(case, waiting.first.line, stood=False, rounds=False)
        if waiting.first is not None
        else None
    )
    if late is None or waiting.victims & set(late.ranks) or _speak_below(case, late):
        return None
    return Finding(How.BEHIND, late.ranks, late.why, late.line)


def _speak_below(case: Case, late: LeftBehind) -> bool:
    """Tell whether one of these ranks says anything behind its line: lines of ranks come in no order of time."""
    view = case.view(late.line)
    last = view.numbers[-1] if view.numbers else 0
    below = (view.line(number) for number in view.between(late.line.number + 1, last))
    told = {o.line.number for o in case.observations if o.line.file == late.line.file}
    return any(
        line is not None and line.rank in late.ranks and line.number not in told for line in below
    )


def _was_read(case: Case, identities: Identities, victims: set[int], found: Finding) -> bool:
    """Tell whether what a silent rank prints would stand in what was read.

    It does not where each file is of a rank, or the only file is of one host's launcher, and theirs is not among them.
    """
    if case.unread_of(found.ranks):
        return False
    if len(case.views) == 1 and case.says("ranks-left-out"):
        return False
    own = [view.origin.rank for view in case.views if view.origin.rank is not None]
    if len(own) > 1 and len(own) == len(case.views):
        return bool(set(own) & set(found.ranks))
    hosts = {identities.node_of_rank.get(rank) for rank in victims}
    heard = case.facts.ranks_heard() & set(found.ranks)
    one_launcher = len(identities.launchers) == 1 and len(hosts) == 1
    return found.lost_node is None or bool(heard) or not one_launcher


def _heard_of(case: Case, host: str, ranks: set[int]) -> bool:
    """Tell whether a host's processes or its launcher reported an end or an error that training did not survive."""
    return any(
        not survived(case, o)
        for o in case.observations
        if o.role is not Role.BENIGN
        and (
            o.line.rank in ranks
            or same_host(o.line.node, host)
            or same_host(o.fields.get("node"), host)
        )
    )


def _before_all(case: Case, positions: Sequence[Position], line: LogLine) -> bool:
    """Tell whether a line is known to be older than all time-outs of ranks."""
    time = case.near_time(line)
    others = [case.near_time(one.line) for one in positions]
    return time is not None and all(other is not None and time < other for other in others)


def _when(case: Case, position: Position) -> tuple[float, int]:
    time = case.near_time(position.line)
    return (time if time is not None else float("inf"), position.line.number)


def from_waiting(case: Case, waiting: Waiting, identities: Identities) -> Conclusion | None:
    """Conclude from who waits for whom."""
    line = waiting.line
    if line is None:
        return None
    suspects = waiting.suspects
    other, spoke = waiting.by(How.ANOTHER_CALL), waiting.by(How.SPOKE)
    says = spoke.line if spoke is not None else None
    if other is not None:
        if says is None or not warns(says):
            says = other.line or line
        return Conclusion("rank_divergence", says, Status.SUPPORTED, waiting.describe(), suspects)
    activity = _last_activity(case, waiting, identities)
    if activity is not None:
        rank = None if _of_several(case, activity) else _rank_of(identities, activity.line)
        return _busy(waiting, activity, rank, suspects)
    found = waiting.found
    nodes = found.nodes if found is not None else ()
    if says is not None and found is not None:
        return Conclusion(
            "nccl_slow_rank_timeout", says, Status.SUPPORTED, waiting.describe(), suspects
        )
    if found is not None and found.lost_node is not None:
        why = f"no process of {found.lost_node} answers any more, those of other nodes do"
        return Conclusion("node_crash", line, Status.SUPPORTED, why, suspects, nodes)
    leaf = "process_exit_unexplained" if found and found.gone else "nccl_timeout_unexplained"
    if found is not None and found.how is How.STOOD_STILL:
        leaf = "nccl_watchdog_heartbeat"
    return Conclusion(
        leaf,
        line,
        Status.SUPPORTED if suspects or nodes else Status.HYPOTHESIS,
        waiting.describe(),
        suspects,
        nodes,
    )


def by_stacks(case: Case, identities: Identities, waiting: Waiting | None) -> Conclusion | None:
    """Conclude from where all processes are, where somebody looked; or return None."""
    if not any("stack" in o.marks for o in case.observations):
        return None
    from rerail.knowledge_base.waiting.stacks import from_stacks

    return from_stacks(case, identities, waiting)


def _rank_of(identities: Identities, line: LogLine) -> int | None:
    """Return the rank that prints a line, by its label or by that of its local rank on a job of one node."""
    local = local_that_is_rank(identities, line)
    return local if local is not None and one_node(identities, local) else line.rank


def _busy(
    waiting: Waiting, activity: Observation, rank: int | None, suspects: tuple[int, ...]
) -> Conclusion:
    """Conclude from what a rank did while the others waited for it; it is not known which one where several say so."""
    line = activity.line
    ranks = (rank,) if rank is not None else suspects
    if line.rank is None and "first_rank_prints" in activity.marks and waiting.victims:
        ranks = suspects if waiting.by(How.BEHIND) or 0 in waiting.victims else (0,)
    # Who prints without a rank may print for others: its host need not be theirs.
    nodes = (line.node,) if line.node and (line.rank is not None or not ranks) else ()
    if "finished_early" in activity.marks:
        who = "this rank" if ranks else "a rank"
        why = f"{who} ended its loop while the others still expect it in the collective"
        return Conclusion("rank_divergence", line, Status.SUPPORTED, why, ranks, nodes)
    why = "this was still going on when the others gave up waiting"
    return Conclusion("nccl_slow_rank_timeout", line, Status.SUPPORTED, why, ranks, nodes)


def from_side_thread(
    waiting: Waiting, identities: Identities, lived_with: Sequence[Observation]
) -> Conclusion | None:
    """Conclude from a side thread that died on the only rank that came to no further collective.

    A rank goes on for as many steps as its prefetched batches last, then waits for that thread.
    """
    if len(waiting.suspects) != 1 or waiting.by(How.ANOTHER_CALL):
        return None
    missing = waiting.suspects[0]
    alone = one_node(identities, max([missing, *waiting.victims]))
    for observation in lived_with:
        thread, line = observation.fields.get("thread"), observation.line
        # On one node a launcher's label of the local rank is the rank's.
        rank = line.local_rank if line.rank is None and alone else line.rank
        if thread and observation.leaf and rank == missing:
            why = f"its thread or child {thread} died of this, and the rank came to no further collective"
            return Conclusion(observation.leaf, line, Status.SUPPORTED, why, (missing,))
    return None


def _last_activity(case: Case, waiting: Waiting, identities: Identities) -> Observation | None:
    """Return what a rank was busy with when the others began to wait, or None.

    It must lie before the first time-out, no training step may follow it, and it must not be the
    work of a rank that itself sat in the collective, or of a host that is none of those waited for.
    """
    report = waiting.first.line if waiting.first is not None else waiting.line
    if report is None:
        return None
    few = waiting.by(How.NAMED) or waiting.by(How.STOOD_STILL) or waiting.by(How.BEHIND)
    victims = waiting.victims
    hosts = {identities.undisputed(rank) for rank in waiting.suspects}
    best: Observation | None = None
    activities = [o for o in case.observations if "activity" in o.marks]
    for observation in activities:
        line = observation.line
        if not earlier(case, line, report):
            continue
        rank = _rank_of(identities, line)
        if rank is not None and (
            rank in victims or (few is not None and few.ranks and rank not in few.ranks)
        ):
            continue
        if line.rank is None and line.node and hosts and not _of_one(line.node, hosts):
            continue
        bars = frozenset(o.line.number for o in activities if o.line.file == line.file)
        steps = _MOST_STEPS_OF_PREFETCH if "finished_early" in observation.marks else 2
        if survived(case, observation, steps=steps, but=bars):
            continue
        again = best is not None and (best.rule_id, best.line.rank) == (
            observation.rule_id,
            line.rank,
        )
        # Of a bar the last line tells how far it came; who left its loop did so at the first.
        if not again or "finished_early" not in observation.marks:
            best = observation
    return best


def _of_several(case: Case, activity: Observation) -> bool:
    """Tell whether another rank says the same, down to the numbers: who says it last is not the one that is busy."""
    own, rank = item_of(activity.line), activity.line.rank
    return any(
        o.rule_id == activity.rule_id and o.line.rank not in (None, rank) and item_of(o.line) == own
        for o in case.observations
    )


def _of_one(node: str, hosts: set[str | None]) -> bool:
    """Tell whether a host may be one of some, of which None is one that is not known."""
    return any(host is None or same_host(node, host) for host in hosts)


def from_wait(case: Case, order: Observation | None, fact: ExitFact | None) -> Conclusion | None:
    """Conclude from ranks that waited for another one, or lost it, before the job was ended."""
    for observation in case.observations:
        line = observation.line
        if "waited" not in observation.marks:
            continue
        late = (order is not None and not case.before(observation, order)) or (
            fact is not None and not earlier(case, line, fact.line)
        )
        if late or survived(case, observation):
            continue
        why = "it waited for another rank, or lost it; why is not in the evidence"
        return Conclusion("nccl_timeout_unexplained", line, Status.HYPOTHESIS, why)
    return None
