"""The verdict: first fault, status and leaf, in the order of evidence of the taxonomy.

1. A completed run makes what follows teardown. 2. The deepest, earliest initiating line that
training did not survive. 3. What the time-outs say of their culprit. 4. Lost peers and odd exits.
5. Numbers. 6. Nothing: no failure if the job moved to its end, else inconclusive.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from rerail.domain.diagnosis import Outcome, Status
from rerail.domain.evidence import Blames, LogLine, Observation, Role, Tier
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality import exits, numeric, roots, select, symptoms, teardown
from rerail.knowledge_base.causality.conclusion import Conclusion
from rerail.knowledge_base.causality.end_of_log import behind, says_done
from rerail.knowledge_base.causality.error_lines import first_cry
from rerail.knowledge_base.causality.failed_starts import starts_failed_on
from rerail.knowledge_base.causality.left_behind import LeftBehind, left_behind, lost_with_host
from rerail.knowledge_base.causality.odd_host import leaf_of_odd_host
from rerail.knowledge_base.causality.overruled import (
    BY_A_SIGNAL,
    killed_before,
    killed_by_its_monitor,
    later,
    others_miss_another,
)
from rerail.knowledge_base.causality.own_failures import in_doubt
from rerail.knowledge_base.causality.progress import (
    LastStep,
    last_report,
    last_step,
    looked_into,
    survived,
)
from rerail.knowledge_base.causality.set_aside import only_checks_passed
from rerail.knowledge_base.causality.several_jobs import jobs_in
from rerail.knowledge_base.causality.stood_still import only_others_spoke, stood_still
from rerail.knowledge_base.phrases import says
from rerail.knowledge_base.placement.allocation import foreign
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.names import named
from rerail.knowledge_base.placement.one_node import node_around
from rerail.knowledge_base.placement.place import Place, Reason, place, runs_there
from rerail.knowledge_base.placement.who_is_who import build
from rerail.knowledge_base.placement.witnesses import ended_before_order
from rerail.knowledge_base.rules import Rule
from rerail.knowledge_base.statements import read
from rerail.knowledge_base.taxonomy import NO_FAILURE, Kind, has, leaves
from rerail.knowledge_base.waiting import conclude
from rerail.knowledge_base.waiting.engine import How, Waiting
from rerail.late_dataclass import dataclass
from rerail.log_parsers.host_names import is_local

if TYPE_CHECKING:
    from rerail.knowledge_base.waiting.dumps.verdict import DumpVerdict

# Exits that follow from a lost peer as well as from anything else.
_SAYS_NOTHING = frozenset({"plain", "aborted", "ordered"})


@dataclass(slots=True)
class Verdict:
    """Everything the analysis concluded, before it is put into words."""

    outcome: Outcome
    status: Status
    leaf: str | None
    line: LogLine | None = None
    why: str = ""
    rule: Rule | None = None
    observation: Observation | None = None
    ranks: list[int] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    pci: str | None = None
    gpu: int | None = None
    action: str | None = None
    selection: select.Selection = field(default_factory=select.Selection)
    waiting: Waiting | None = None
    exits: list[exits.ExitFact] = field(default_factory=list)
    numeric: list[numeric.NumericFinding] = field(default_factory=list)
    identities: Identities = field(default_factory=Identities)
    everywhere: list[int] = field(default_factory=list)
    """The ranks that failed alike, none of which is to blame."""
    nobody: bool = False
    """It is known that the rank that prints the first fault is not to blame."""
    reasons: list[Reason] = field(default_factory=list)
    """Why the fault is placed where it is: one link for rank, node and GPU each."""
    last: LastStep | None = None
    moving: bool = False
    """Nothing but steps: the run goes on, hangs, or its log was cut; the log cannot tell."""
    late: dict[int, int] = field(default_factory=dict)
    """Ranks of such a log that were last seen steps behind the others, with their last steps."""
    dumps: DumpVerdict | None = None
    beside: tuple[LogLine, ...] = ()
    """Further lines that the conclusion rests on."""
    silence: str = ""


def judge(case: Case, rules: dict[str, Rule], dumps: DumpVerdict | None = None) -> Verdict:
    """Return the verdict on a case; pure, and never raises on any evidence.

    Args:
        case: what was read and matched.
        rules: the rules by their names.
        dumps: what the flight-recorder dumps of the job say, if it left any.
    """
    statements = read(case.views)
    identities = build(case, statements)
    facts = exits.collect(case, identities, statements)
    selection = select.select(
        case, rules, foreign(case, identities), one_ended=exits.one_ended(facts)
    )
    facts = exits.of_last_attempt(case, selection.attempt_starts, facts)
    facts = [exits.on_one_node(fact, identities) for fact in facts]
    if case.only_rank is not None:
        facts = [fact for fact in facts if case.only_rank in (fact.rank, fact.line.rank)]
    verdict = Verdict(
        Outcome.INCONCLUSIVE,
        Status.UNKNOWN,
        None,
        selection=selection,
        identities=identities,
        exits=facts,
        last=last_step(case),
        waiting=conclude.waiting_in(case, identities),
    )
    steps = (
        _completed, _initiating, _stacks, _timeouts, _peers, _waited, _died, _stopped, _numbers,
        _silent, _reported,
    )  # fmt: skip
    if not any(step(case, rules, verdict) for step in steps):
        _nothing(case, verdict)
    if verdict.status is Status.ESTABLISHED and jobs_in(case):
        verdict.status = Status.SUPPORTED
    if dumps is not None:
        from rerail.knowledge_base.waiting.dumps.merge import apply

        apply(verdict, dumps)
    if case.withheld and verdict.outcome is not Outcome.NO_FAILURE and not verdict.ranks:
        unread = ", ".join(case.withheld)
        verdict.why += f"; what was not read {unread} may hold the lines of whoever seems silent"
    if case.missing_shards:
        _of_a_part(case, verdict)
    return verdict


def _of_a_part(case: Case, verdict: Verdict) -> None:
    """A part of the logs was not read: what failed first, or that nothing failed, may stand there."""
    if verdict.status is Status.ESTABLISHED:
        verdict.status = Status.SUPPORTED
    if verdict.outcome is Outcome.NO_FAILURE:
        parts = "a part" if case.missing_shards == 1 else f"{case.missing_shards} parts"
        verdict.outcome, verdict.status, verdict.leaf = Outcome.INCONCLUSIVE, Status.UNKNOWN, None
        verdict.why = f"{parts} of the logs was not read; nothing failed in what was"
        verdict.moving = False


def _completed(case: Case, rules: dict[str, Rule], verdict: Verdict) -> bool:
    """The run finished: either nothing happened, or only its teardown failed."""
    success = verdict.selection.success
    if success is None:
        return False
    if verdict.selection.candidates or _gave_up_before(case, verdict, success):
        return False
    if "of_a_benchmark" in success.marks and looked_into(case, success.line):
        return False
    if not select.is_record(success) and teardown.cut_a_save(case, verdict.exits, success):
        return False
    if not case.before(success, case.observations[-1] if case.observations else success):
        bad: list[LogLine] = []
    else:
        bad = teardown.bad(case, verdict.selection, verdict.exits, success)
    waited = (o for o in case.observations if "others_run_on" in o.marks)
    if not bad and any(case.known_before(success, one) for one in waited):
        return False
    verdict.observation = success
    verdict.rule = rules.get(success.rule_id)
    if bad:
        verdict.outcome, verdict.status = Outcome.NO_FAILURE, Status.ESTABLISHED
        verdict.leaf, verdict.line = "teardown_hang_or_abort", bad[0]
        ranks, nodes = teardown.of_one_process(case, verdict.exits, success)
        if bad[0].rank in (None, *ranks):
            verdict.ranks, verdict.nodes = ranks, nodes
        verdict.why = "the run had completed before it; only its teardown failed"
        verdict.action = "no_action_results_complete"
        return True
    if _numbers(case, rules, verdict):
        verdict.observation, verdict.rule = None, None
        verdict.why += "; the run completed all the same"
        return True
    _nothing_failed(verdict, Status.ESTABLISHED, "the run reports its completion")
    return True


def _nothing_failed(verdict: Verdict, status: Status, why: str) -> None:
    verdict.outcome, verdict.status, verdict.leaf = Outcome.NO_FAILURE, status, NO_FAILURE
    verdict.why, verdict.action = why, "none"


def _gave_up_before(case: Case, verdict: Verdict, success: Observation) -> bool:
    """A collective timed out and no step followed: a sentence of success behind it is not believed.

    The watchdog ends the process of every rank that it reports.
    """
    found = verdict.waiting
    if found is None or found.first is None or select.is_record(success):
        return False
    first = found.first.line
    return later(case, success.line, first) and select.trained_until(case, first)


def _initiating(case: Case, rules: dict[str, Rule], verdict: Verdict) -> bool:
    """A line that can be a first fault was found."""
    winner = verdict.selection.winner
    if winner is None or winner.leaf is None:
        return False
    kind = leaves()[winner.leaf].kind
    if kind is Kind.SYMPTOM and verdict.waiting is not None:
        return False
    if has(winner.leaf, "ends_a_hang") and _hung_before(case, verdict, winner):
        return False
    if killed_before(case, verdict.exits, winner) or others_miss_another(
        verdict.waiting, verdict.identities, winner
    ):
        return False
    if "waits_for_data" in winner.marks and _stacks(case, rules, verdict):
        return True
    if winner.tier is Tier.GENERIC and _victims_exception(case, verdict, winner):
        return False
    if "interrupted" in winner.marks:
        order = _cancelled_near(case, winner)
        if order is not None:
            # The exception is what the scheduler's signal raised in each process.
            return _cancelled(rules, verdict, order)
    verdict.outcome = Outcome.FAILURE
    verdict.leaf, verdict.line, verdict.observation = winner.leaf, winner.line, winner
    verdict.rule = rules.get(winner.rule_id)
    verdict.action = winner.action
    verdict.status = _status(case, verdict, winner, kind)
    if has(winner.leaf, "whole_run"):
        return True
    awaited = verdict.waiting.silent if verdict.waiting is not None else ()
    told = verdict.waiting.by(How.NAMED) if verdict.waiting is not None else None
    missed_by = told.line if told is not None else None
    if not awaited:
        seen = conclude.by_stacks(case, verdict.identities, verdict.waiting)
        if seen is not None and len(seen.ranks) == 1:
            awaited, missed_by = seen.ranks, seen.line
    at = place(
        case, verdict.selection, verdict.identities, verdict.exits, winner, awaited, missed_by
    )
    _put(case, verdict, winner, at)
    return True


def _put(case: Case, verdict: Verdict, winner: Observation, at: Place) -> None:
    """Take over where the first fault was."""
    verdict.pci, verdict.gpu, verdict.reasons = at.pci, at.gpu, at.reasons
    verdict.why = at.why or verdict.why
    verdict.ranks, verdict.everywhere, verdict.nobody = at.ranks, at.everywhere, at.nobody
    found = verdict.waiting
    other = found.by(How.ANOTHER_CALL) if found is not None else None
    if (
        other is not None
        and winner.leaf == "rank_divergence"
        and not set(other.ranks) & set(verdict.ranks)
    ):
        # Who prints that ranks differ is not the one that differs.
        verdict.ranks, verdict.reasons, at.nodes = [], [], []
    if not verdict.ranks and winner.leaf == "rank_divergence" and found is not None:
        verdict.ranks = list(other.ranks if other is not None else found.suspects)
        if verdict.ranks:
            verdict.reasons.append(Reason(named(verdict.ranks), found.describe(), found.line))
            nodes = {verdict.identities.undisputed(rank) for rank in verdict.ranks}
            at.nodes = [node for node in nodes if node is not None] if len(nodes) == 1 else []
            verdict.reasons += [
                runs_there(verdict.identities, verdict.ranks, node) for node in at.nodes
            ]
    # A limit, a preemption or a cancellation is nobody's fault; its line only says who carried it out.
    if winner.blames is not Blames.NOBODY:
        verdict.nodes = at.nodes
    elif has(winner.leaf, "ends_a_hang") and not winner.lines:
        verdict.ranks, verdict.nobody = [], True
        _stopped_first(verdict, left_behind(case, winner.line))
    if has(winner.leaf, "whole_host") and not at.nodes:
        _stopped_first(verdict, lost_with_host(case, verdict.identities, winner))
    if odd := leaf_of_odd_host(
        case, verdict.rule, winner, verdict.identities, verdict.exits, at.rank
    ):
        verdict.leaf, verdict.status = odd, Status.SUPPORTED
    if len(at.nodes) == 1 and (times := starts_failed_on(case, winner, at.nodes[0])):
        verdict.why = f"{times} starts failed on {at.nodes[0]} and on no other node: it fails every job that it gets"
        verdict.action = "restart_and_exclude_suspect_node"


def _stopped_first(verdict: Verdict, late: LeftBehind | None) -> None:
    if late is not None:
        verdict.nobody, verdict.ranks, verdict.why = False, list(late.ranks), late.why
        verdict.nodes, verdict.reasons = late.place(verdict.identities)


def _hung_before(case: Case, verdict: Verdict, winner: Observation) -> bool:
    """A limit, or somebody, ended a job whose ranks had already given up on a collective."""
    found = verdict.waiting
    hung = None if found is None else found.first.line if found.first else found.line
    if hung is None:
        return False
    if hung.file == winner.line.file and (winner.line.time is None or hung.time is None):
        return hung.number < winner.line.number
    limit, first = case.near_time(winner.line), case.near_time(hung)
    return limit is not None and first is not None and first < limit - 1.0


def _victims_exception(case: Case, verdict: Verdict, winner: Observation) -> bool:
    """A generic exception on ranks that had already timed out is what the time-out raised."""
    found = verdict.waiting
    if found is None or found.first is None:
        return False
    first = found.first
    if winner.line.rank is None or winner.line.rank not in found.victims:
        return False
    mine = next((p for p in found.positions if p.rank == winner.line.rank), first)
    return mine.line.file == winner.line.file and mine.line.number < winner.line.number


def _status(case: Case, verdict: Verdict, winner: Observation, kind: Kind) -> Status:
    rivals = [
        c
        for c in verdict.selection.candidates
        if c.leaf != winner.leaf and abs(roots.level(c) - roots.level(winner)) < 1.0
    ]
    supports = {"learned", "words_alone"} & set(winner.marks)
    if supports or (verdict.rule is not None and verdict.rule.hint):
        # A few incidents of one site, words of any program, or what only may slow a run, establish no cause.
        return Status.SUPPORTED
    if "waits_for_data" in winner.marks:
        return Status.HYPOTHESIS if verdict.waiting is None else Status.SUPPORTED
    if kind is Kind.ROOT and winner.tier not in (Tier.GENERIC, Tier.EXIT):
        contested = [r for r in rivals if (gap := case.seconds_between(winner, r)) is not None and abs(gap) < 1.0
                     and r.line.label != winner.line.label]  # fmt: skip
        doubt = contested or verdict.selection.contested or in_doubt(case, winner)
        return Status.SUPPORTED if doubt else Status.ESTABLISHED
    return Status.SUPPORTED


def _stacks(case: Case, rules: dict[str, Rule], verdict: Verdict) -> bool:
    """Somebody looked where all processes are; whom time-outs name they name with more right, and stacks tell why."""
    found = verdict.waiting
    surer = found is not None and (found.by(How.NAMED) or found.by(How.ANOTHER_CALL))
    ended = exits.first_odd(verdict.exits)
    # Who waited in vain is aborted or told to end.
    waited = found is not None and ended is not None and ended.how in ("aborted", "ordered")
    if ended is not None and not waited:
        return False
    conclusion = conclude.by_stacks(case, verdict.identities, found)
    if conclusion is None or (found is not None and not conclusion.ranks):
        return False
    if found is not None and surer and conclusion.ranks != found.suspects:
        return False
    return _take(verdict, conclusion, Outcome.FAILURE)


def _timeouts(case: Case, rules: dict[str, Rule], verdict: Verdict) -> bool:
    found = verdict.waiting
    if found is None:
        return False
    before = ended_before_order(case, verdict.exits)
    odd = exits.first_odd([f for f in before if f.how not in ("aborted", "plain")])
    waits = [one.line for one in found.positions]
    odd = odd or exits.ended_before_waits(case, before, waits, verdict.identities)
    monitored = odd is not None and killed_by_its_monitor(case, found, odd)
    if (
        odd is not None
        and odd.how in (*BY_A_SIGNAL, "aborted")
        and not (found.by(How.ANOTHER_CALL) or monitored)
    ):
        # A process that died of a signal is why the others waited.
        conclusion = symptoms.from_exit(case, odd)
    else:
        rejected = verdict.selection.rejected
        lived_with = [r.observation for r in rejected]
        conclusion = conclude.from_side_thread(found, verdict.identities, lived_with)
        if conclusion is None:
            conclusion = conclude.from_waiting(case, found, verdict.identities)
        else:
            verdict.selection.rejected = [
                r for r in rejected if r.observation.line != conclusion.line
            ]
    # Who tells first that it waited is not whom the others wait for.
    verdict.nobody = conclusion is not None and not conclusion.ranks and not conclusion.nodes
    return _take(verdict, conclusion, Outcome.FAILURE)


def _peers(case: Case, rules: dict[str, Rule], verdict: Verdict) -> bool:
    left = symptoms.from_quiet_rank(case, verdict.identities, verdict.exits)
    if left is not None:
        return _take(verdict, left, Outcome.FAILURE)
    odd = exits.first_odd(verdict.exits)
    if odd is not None and odd.how not in _SAYS_NOTHING:
        return False
    if odd is None and all(_after_the_end(case, o) for o in case.with_role(Role.CASCADE)):
        return False
    return _take(verdict, symptoms.from_lost_peer(case, verdict.identities), Outcome.FAILURE)


def _waited(case: Case, rules: dict[str, Rule], verdict: Verdict) -> bool:
    """Ranks lost another one, without the lines of a watchdog, and then the job was ended."""
    odd = exits.first_odd(verdict.exits)
    order = next((o for o in case.observations if "cancelled" in o.marks), None)
    if (odd is None and order is None) or (odd is not None and odd.how not in _SAYS_NOTHING):
        return False
    return _take(verdict, conclude.from_wait(case, order, odd), Outcome.FAILURE)


def _died(case: Case, rules: dict[str, Rule], verdict: Verdict) -> bool:
    odd = exits.first_odd(verdict.exits)
    if odd is None or odd.how == "ordered":
        return False
    return _take(verdict, symptoms.from_exit(case, odd), Outcome.FAILURE)


def _cancelled_near(case: Case, interrupt: Observation) -> Observation | None:
    """Return the scheduler's cancellation that an interrupt belongs to, if there is one."""
    for observation in case.observations:
        if "cancelled" in observation.marks:
            # A traceback carries no time; that of the last step may be long before it.
            gap = case.seconds_between(interrupt, observation)
            if interrupt.line.time is None or gap is None or abs(gap) <= roots.SLACK_S:
                return observation
    return None


def _cancelled(rules: dict[str, Rule], verdict: Verdict, order: Observation) -> bool:
    verdict.observation, verdict.rule = order, rules.get(order.rule_id)
    return _take(
        verdict,
        Conclusion(
            "job_cancelled_or_hangup", order.line, Status.SUPPORTED,
            "the scheduler gives no reason and nothing failed before: somebody cancelled it",
            (), (), "no_action_user_stop",
        ),
        Outcome.FAILURE,
    )  # fmt: skip


def _stopped(case: Case, rules: dict[str, Rule], verdict: Verdict) -> bool:
    """Nothing failed before somebody stopped the job."""
    for observation in case.observations:
        if "cancelled" in observation.marks and not case.with_role(Role.CASCADE):
            return _cancelled(rules, verdict, observation)
    odd = exits.first_odd(verdict.exits)
    if odd is not None:
        return _take(verdict, symptoms.from_exit(case, odd), Outcome.FAILURE)
    cascade = case.with_role(Role.CASCADE)
    cascade = [o for o in cascade if not survived(case, o) and not _after_the_end(case, o)]
    if cascade and verdict.selection.success is None:
        verdict.line = cascade[0].line
        verdict.outcome, verdict.status = Outcome.INCONCLUSIVE, Status.HYPOTHESIS
        verdict.leaf = None
        verdict.nobody = True  # who tells of a consequence has not the fault
        verdict.why = "only consequences are in the evidence; the fault that caused them is not"
        return True
    return False


def _after_the_end(case: Case, observation: Observation) -> bool:
    """Another process had come to its end by itself, and this one missed the store that went with it."""
    return "store_lost" in observation.marks and any(
        "ended_by_itself" in o.marks and later(case, observation.line, o.line)
        for o in case.observations
    )


def _numbers(case: Case, rules: dict[str, Rule], verdict: Verdict) -> bool:
    verdict.numeric = numeric.analyse(case)
    if not verdict.numeric:
        return False
    first = verdict.numeric[0]
    verdict.outcome = Outcome.FAILURE
    verdict.status = Status.ESTABLISHED if first.established else Status.SUPPORTED
    verdict.leaf, verdict.line, verdict.why = first.leaf, first.line, first.what
    verdict.ranks = [first.rank] if first.rank is not None else []
    node = verdict.identities.undisputed(first.rank) if first.rank is not None else None
    if node is not None:
        verdict.nodes, verdict.reasons = (
            [node],
            [runs_there(verdict.identities, verdict.ranks, node)],
        )
    verdict.action = first.action
    return True


def _silent(case: Case, rules: dict[str, Rule], verdict: Verdict) -> bool:
    """Nothing was printed for long before somebody asked for the time."""
    return _take(verdict, stood_still(case, verdict.last, verdict.identities), Outcome.FAILURE)


def _reported(case: Case, rules: dict[str, Rule], verdict: Verdict) -> bool:
    """Somebody reports the job as failed; steps up to the last line do not make that untrue."""
    return _take(verdict, symptoms.from_ending(case), Outcome.FAILURE)


def _take(verdict: Verdict, conclusion: Conclusion | None, outcome: Outcome) -> bool:
    if conclusion is None:
        return False
    verdict.outcome, verdict.status, verdict.leaf = outcome, conclusion.status, conclusion.leaf
    verdict.line, verdict.why = conclusion.line, conclusion.why
    verdict.ranks = list(conclusion.ranks)
    hosts = verdict.identities.hosts(conclusion.nodes)
    at_work = (n for n in hosts if not is_local(n) and not says("no-compute-host", n))
    verdict.nodes = list(at_work)
    verdict.action, verdict.beside = conclusion.action, conclusion.beside
    verdict.silence = conclusion.silence
    verdict.reasons = []
    if verdict.ranks or verdict.nodes:
        who = named(verdict.ranks) if verdict.ranks else f"node {', '.join(verdict.nodes)}"
        verdict.reasons.append(Reason(who, conclusion.why, conclusion.line))
    if not verdict.nodes:
        nodes = {verdict.identities.node_of_rank.get(r) for r in verdict.ranks} - {None}
        if not nodes:
            nodes = {node_around(verdict.identities, verdict.ranks)}
        verdict.nodes = sorted(n for n in nodes if n and not is_local(n))
        verdict.reasons += [
            runs_there(verdict.identities, verdict.ranks, node) for node in verdict.nodes
        ]
    return True


def _asked_once(case: Case, verdict: Verdict) -> bool:
    """Somebody asked a job that printed nothing more, once: what it shows is no answer yet."""
    if not any("ras_mismatch" in o.marks for o in case.observations):
        return False
    from rerail.knowledge_base.waiting.ras import one_look

    found = one_look(case)
    if found is None:
        return False
    verdict.outcome, verdict.status = Outcome.INCONCLUSIVE, Status.HYPOTHESIS
    verdict.line, verdict.why = found.line, found.words
    verdict.ranks, verdict.nodes = list(found.ranks), list(verdict.identities.hosts(found.nodes))
    return True


def _nothing(case: Case, verdict: Verdict) -> None:
    """No error, no odd exit, no odd number."""
    if any(problem.cut for problem in case.problems):
        verdict.why = (
            "nothing failed in what could be read, and a file could not be read to its end"
        )
        verdict.line = verdict.last.line if verdict.last else None
        return
    started = any("run_started" in o.marks for o in case.observations)
    if started:
        verdict.why = "the run announces its start and never its end, and no error was printed"
        verdict.line = verdict.last.line if verdict.last else None
        return
    if verdict.last is None and any("ended_by_itself" in o.marks for o in case.observations):
        why = "the processes came to the end of their program, and no error was printed"
        _nothing_failed(verdict, Status.SUPPORTED, why)
        return
    last = verdict.last.line if verdict.last is not None else last_report(case)
    moved = last is not None
    # What a program prints before it ends by its own check, a rule may know as context alone.
    checked = any("orderly_end" in o.marks for o in case.observations)
    words = ("cry", "cry-at-the-end")
    cry = first_cry(case, last, judged=checked, words=words) if last is not None else None
    if cry is not None:
        verdict.outcome, verdict.status = Outcome.INCONCLUSIVE, Status.HYPOTHESIS
        verdict.line = cry
        verdict.why = "behind the last step stands an error or an end that no rule explains"
        return
    if _asked_once(case, verdict):
        return
    if (still := only_others_spoke(case, verdict.last)) is not None:
        verdict.why, verdict.line = still, last
        return
    if not moved and only_checks_passed(case):
        why = "checks of machines are all there is, and none of them found anything"
        _nothing_failed(verdict, Status.SUPPORTED, why)
        return
    if last is not None and looked_into(case, last):
        verdict.why, verdict.line = (
            "behind its last step somebody looked for a reason; none is shown",
            last,
        )
        return
    if moved:
        verdict.moving = verdict.last is not None
        verdict.late = behind(case) if verdict.moving else {}
        _nothing_failed(verdict, Status.SUPPORTED, "nothing failed up to the last line")
        return
    if says_done(case):
        _nothing_failed(
            verdict, Status.SUPPORTED, "its last line says that it is done, and nothing failed"
        )
        return
    verdict.why = "no error, no exit and no training step was found"
