"""Chooses the first fault among the observations that could be one.

Deeper explains shallower: a kernel line explains a CUDA error, a CUDA error explains a time-out.
Among equals the earlier wins. What training survived was not fatal. What came after a completed
run is teardown.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection
from dataclasses import field

from rerail.domain.evidence import LogLine, Observation, Role, Stream, Tier
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality import roots
from rerail.knowledge_base.causality.end_of_log import planned_steps
from rerail.knowledge_base.causality.error_lines import first_cry
from rerail.knowledge_base.causality.few_rows import rose
from rerail.knowledge_base.causality.old_kernel_lines import (
    told_before_the_job,
    told_hours_before,
)
from rerail.knowledge_base.causality.own_failures import outweighed
from rerail.knowledge_base.causality.progress import (
    LastStep,
    ends_non_finite,
    step_rows,
    survived,
)
from rerail.knowledge_base.causality.set_aside import (
    no_fault_told,
    only_tests_ran,
    reached_its_end,
    test_session,
    told_before_start,
)
from rerail.knowledge_base.causality.several_jobs import next_run, of_other_jobs
from rerail.knowledge_base.rules import Rule
from rerail.knowledge_base.taxonomy import Kind, has, leaves
from rerail.late_dataclass import dataclass
from rerail.log_parsers.sections import heading
from rerail.log_parsers.text import without_digits
from rerail.log_parsers.tracebacks import looks_like_exception
from rerail.log_parsers.view import LogView

_GRACE_STEPS = 50
_APART_S = 5.0
"""Clocks of two hosts differ by less; a collective waits for minutes."""
_LAST_LINES = 2  # a blank one and what a shell says of the end
_TOLD_AGAIN = 2
_SIMILAR, _GOES_ON = 50, 2  # step lines that are compared, and that show that training goes on
_TRAINED = 3  # step lines that make it known how a run goes on
_SOON = 40  # lines within which a writer tells that a later attempt worked


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that lost, and why."""

    observation: Observation
    because: str


@dataclass(slots=True)
class Selection:
    """The candidates of the last attempt, the winner, and the losers with reasons."""

    winner: Observation | None = None
    candidates: list[Observation] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    success: Observation | None = None
    attempt_starts: list[Observation] = field(default_factory=list)
    after_success: list[Observation] = field(default_factory=list)
    edges: list[roots.Edge] = field(default_factory=list)
    contested: bool = False
    """Something else may have come first: no clock tells."""


def select(
    case: Case,
    rules: dict[str, Rule],
    beside: Collection[int] = frozenset(),
    *,
    one_ended: bool = False,
) -> Selection:
    """Return the first fault of the last attempt, or a selection without a winner.

    `beside` holds the identities (`id`) of the observations on nodes that are not the job's; `one_ended`: exactly one
    process was killed or crashed.
    """
    result = Selection()
    starts = [o for o in case.observations if "attempt_started" in o.marks]
    result.attempt_starts = [o for o in starts if _goes_on(case, o)]
    in_last = _last_attempt(case, result)
    result.success = _final_success(case, in_last)
    tests = [(o.line.file, test_session(case, o)) for o in in_last if "tests_passed" in o.marks]
    for observation in in_last:
        if observation.role is not Role.INITIATING:
            continue
        if (because := no_fault_told(case, rules, tests, observation)) is not None:
            result.rejected.append(Rejected(observation, because))
            continue
        if id(observation) in beside:
            result.rejected.append(Rejected(observation, "its node or pod is not one of the job's"))
            continue
        if observation.leaf == "loss_nan" and ends_non_finite(case):
            # A run that reports its completion with a loss of NaN has completed nothing.
            result.candidates.append(observation)
            continue
        if "target_missed" in observation.marks and (
            result.success is None or "target_met" not in result.success.marks
        ):
            result.candidates.append(observation)
            continue
        if result.success is not None and _healed(case, rules, observation):
            result.rejected.append(Rejected(observation, "it healed, and the run completed"))
            continue
        if result.success is not None and _behind_success(case, observation, result.success):
            if not has(observation.leaf, "counts_after_success") and not _stage_failed(
                case, in_last, observation
            ):
                result.after_success.append(observation)
                continue
        elif (
            result.success is not None
            and not of_other_jobs(case, observation.line, result.success.line)
            and not _ends_another_log(case, observation, result.success)
            and not _belies(case, observation, result.success)
        ):
            result.rejected.append(Rejected(observation, "the run completed after it"))
            continue
        if because := _lived_through(case, observation):
            result.rejected.append(Rejected(observation, because))
            continue
        result.candidates.append(observation)
    _drop_hints(case, rules, result, one_ended=one_ended)
    _drop_healed(case, rules, result, one_ended=one_ended)
    _drop_late_starts(case, result)
    _drop(
        result,
        told_hours_before(case, result.candidates),
        "told hours before the failure, and another fault just before it",
    )
    _drop(
        result,
        told_before_the_job(case, result.candidates),
        "the kernel told it long before the job began",
    )
    _drop_late_crashes(case, in_last, result)
    _drop(
        result,
        told_before_start(case, result.candidates),
        "told before the job was started, which trained",
    )
    weak = outweighed(case, result.candidates)
    gone = {id(claim) for claim, _ in weak}
    result.candidates = [o for o in result.candidates if id(o) not in gone]
    result.rejected += [Rejected(claim, because) for claim, because in weak]
    _choose(case, rules, result)
    return result


def _drop_hints(case: Case, rules: dict[str, Rule], result: Selection, *, one_ended: bool) -> None:
    """Reject what could make a run slow where it hung, one process was killed, or the steps show that nothing was slow."""

    def is_hint(observation: Observation) -> bool:
        rule = rules.get(observation.rule_id)
        return rule is not None and rule.hint

    hints = [o for o in result.candidates if is_hint(o)]
    if hints and reached_its_end(case):
        _drop(result, hints, "the run reached its planned end")
        return
    if not hints or any(roots.slow(o) and not is_hint(o) for o in case.observations):
        return
    if one_ended:
        _drop(result, hints, "slowness ends no process")
        return
    from rerail.knowledge_base.causality.numeric import MIN_ROWS, analyse

    if sum(len(step_rows(view)) for view in case.views) < MIN_ROWS:
        if any("collective_timeout" in o.marks for o in case.observations):
            _drop(result, hints, "it only makes a run slow, and this one hung")
        return
    if any(has(found.leaf, "slow") for found in analyse(case)):
        return
    if any(map(rose, case.views)):
        hints = [o for o in hints if o.tier is not Tier.HARDWARE]
    # Even steps deny that a run became slower, not that it was slow from its start: who tells it again measures it.
    told = Counter(_what_is_told(o) for o in case.observations if is_hint(o))
    once = [o for o in hints if told[_what_is_told(o)] < _TOLD_AGAIN * rules[o.rule_id].min_count]
    _drop(result, once, "the steps did not become slower, and it was told once")


def _what_is_told(hint: Observation) -> tuple[str, ...]:
    """Return a hint's words without what it measured: the same of the same rank, GPU or host is told again."""
    words = without_digits(hint.line.message)
    return (hint.rule_id, words, *(hint.fields.get(name, "") for name in ("rank", "gpu", "node")))


def _drop(result: Selection, gone: list[Observation], because: str) -> None:
    result.candidates = [o for o in result.candidates if o not in gone]
    result.rejected += [Rejected(o, because) for o in gone]


def _drop_healed(case: Case, rules: dict[str, Rule], result: Selection, *, one_ended: bool) -> None:
    """Reject what is told to have healed, where the same went wrong elsewhere or later and is not, or nothing failed."""
    healed = {id(o) for o in result.candidates if _healed(case, rules, o)}
    lasting = {o.leaf for o in result.candidates if id(o) not in healed}
    others = (Role.CASCADE, Role.TEARDOWN)
    harmless = (
        not lasting and not one_ended and not any(o.role in others for o in case.observations)
    )
    gone = [
        o
        for o in result.candidates
        if id(o) in healed and (harmless or o.leaf in lasting or "asked_again" in o.marks)
    ]
    _drop(result, gone, "a later line says that it healed")


def _drop_late_starts(case: Case, result: Selection) -> None:
    """Reject what ends a job before its program runs, where it ran before that, and there is another fault."""
    late = [
        o
        for o in result.candidates
        if has(o.leaf, "at_start") and o.tier is Tier.SCHEDULER and _ran_before(case, o.line)
    ]
    others = [o for o in result.candidates if o not in late]
    gone = [one for one in late if any(_stands_before(case, o, one) for o in others)]
    _drop(result, gone, "the program ran, and another fault was told, before it")


def _stands_before(case: Case, a: Observation, b: Observation) -> bool:
    if a.line.file == b.line.file:
        return a.line.number < b.line.number
    return case.known_before(a, b)


def _ran_before(case: Case, line: LogLine) -> bool:
    view = case.view(line)
    if line.stream is Stream.CONTAINER:
        return False  # a cluster's events stand where somebody asked for them
    if any(row.line < line.number for row in view.survey.steps):
        return True
    return any(
        "collective_timeout" in o.marks and o.line.file == line.file and o.line.number < line.number
        for o in case.observations
    )


def _drop_late_crashes(case: Case, in_last: list[Observation], result: Selection) -> None:
    """Reject the death of a process, or its loss, behind the time-outs of others: these had waited to their limit."""
    waited = [o for o in in_last if "collective_timeout" in o.marks]
    gone = [
        o
        for o in result.candidates
        if o.marks & {"crashed", "peer_gone"}
        and any((gap := case.seconds_between(w, o)) is not None and gap > _APART_S for w in waited)
    ]
    _drop(result, gone, "the process died only when others had already waited in vain")


def _worked_later(case: Case, observation: Observation) -> bool:
    """Tell whether its own writer says soon behind a program's error that a later attempt worked."""
    line = observation.line
    if observation.tier not in (Tier.APPLICATION, Tier.LIBRARY, Tier.GENERIC):
        return False
    view = case.view(line)
    soon = range(line.number + 1, line.number + _SOON)
    return any(
        (told := view.line(number)) is not None
        and (told.rank, told.node, told.place) == (line.rank, line.node, line.place)
        for number in case.lines_with(view, "worked-on-a-later-attempt")
        if number in soon
    )


def _healed(case: Case, rules: dict[str, Rule], observation: Observation) -> bool:
    if _worked_later(case, observation):
        return True
    rule = rules.get(observation.rule_id)
    if rule is None or not rule.cleared_by:
        return False
    return any(
        other.rule_id in rule.cleared_by
        and other.line.node == observation.line.node
        and all(observation.fields.get(k, v) == v for k, v in other.fields.items())
        and case.known_before(observation, other)
        for other in case.observations
    )


def _lived_through(case: Case, observation: Observation) -> str:
    """Return why an observation is over for a job that trains on; "" where it is not."""
    if not has(observation.leaf, "lived_with") and _outlived(case, observation):
        return "training went on after it"
    if has(observation.leaf, "belied_by_finite_losses") and _finite_behind(case, observation):
        return "the losses of the steps after it are finite"
    return ""


def _outlived(case: Case, observation: Observation) -> bool:
    """Tell whether training went on after an observation, and not only for a grace time."""
    if "told_afterwards" in observation.marks or not survived(case, observation):
        return False
    if not has(observation.leaf, "grace_time"):
        return True
    if survived(case, observation, steps=_GRACE_STEPS):
        return True
    view = case.view(observation.line)
    rows = step_rows(view)
    after = [row for row in rows if row.line > observation.line.number]
    if not after:
        return True  # another file goes on, behind this line by its clock
    before = [row.step for row in rows if row.line <= observation.line.number and row.step]
    first = next((row.step for row in after if row.step is not None), None)
    if before and first is not None and first <= before[-1]:
        return True  # it started again from a checkpoint
    last, then = view.line(after[-1].line), case.near_time(observation.line)
    now = case.near_time(last) if last is not None else None
    return now is not None and then is not None and now - then > roots.SLACK_S


def _finite_behind(case: Case, observation: Observation) -> bool:
    """Tell whether training went on after what a sentence tells, with steps whose losses and gradients are all finite."""
    if "told_afterwards" in observation.marks or not survived(case, observation):
        return False
    at, rows = observation.line.number, step_rows(case.view(observation.line))
    losses = [row.loss for row in rows if row.line > at and row.loss is not None]
    norms = [row.grad_norm for row in rows if row.line > at and row.grad_norm is not None]
    in_a_step = any(row.line == at for row in rows)
    return not in_a_step and len(losses) > 1 and all(map(math.isfinite, losses + norms))


def _behind_success(case: Case, observation: Observation, success: Observation) -> bool:
    """Tell whether something came after the success; a scheduler's account is of the job's end, wherever it stands."""
    if is_record(success) and success.tier is Tier.SCHEDULER:
        return case.known_before(success, observation)
    return not case.before(observation, success)


def _belies(case: Case, observation: Observation, success: Observation) -> bool:
    """A fault that ends a process, with no step behind it, gives the lie to a sentence of success.

    Anybody can print "training completed"; a run that recovered would have gone on training first.
    A launcher's or benchmark's own record of success is believed.
    """
    if is_record(success) or "thread" in observation.fields:
        return False
    if "only_over" in success.marks and not survived(case, observation):
        return True
    raised = bool(observation.lines) or observation.line.rank is not None
    fatal = observation.tier is Tier.HARDWARE or (
        raised and looks_like_exception(observation.line.message)
    )
    if not fatal or leaves()[observation.leaf or ""].kind is not Kind.ROOT:
        return False
    return trained_until(case, observation.line)


def _ends_another_log(case: Case, observation: Observation, success: Observation) -> bool:
    """Tell whether an exception ends another log than that of the success, neither of which is one rank's or host's.

    Logs of several files may stand in one, each under its name.
    """
    if not observation.lines:
        return False
    view = case.view(observation.line)
    if observation.line.file == success.line.file:
        other = next_run(case, observation)
        if other is not None:
            return success.line.number > other
        return _ends_its_part(view, observation, success)
    origins = view.origin, case.view(success.line).origin
    if any((o.rank, o.local_rank, o.node, o.place, o.stream) != (None,) * 5 for o in origins):
        return False
    return view.numbers[-1] - observation.line.number <= _LAST_LINES


def _ends_its_part(view: LogView, observation: Observation, success: Observation) -> bool:
    heads = view.headings()
    parts = [view.section(one.line.number) for one in (observation, success)]
    if 0 in parts or len(set(parts)) == 1:
        return False
    above = [heading(view.text(heads[part - 1]) or "") for part in parts]
    paths = [one.path for one in above if one is not None and one.origin is None and one.path]
    if len(paths) < len(parts) or len(set(map(without_digits, paths))) < len(parts):
        return False  # what only numbers tell apart are tries, or parts, of one run
    behind = [number for number in heads if number > observation.line.number]
    end = behind[0] if behind else view.numbers[-1] + 1
    left = view.between(observation.line.number + 1, end - 1)
    return not any((view.text(number) or "").strip() for number in left)


def is_record(success: Observation) -> bool:
    """Tell whether a launcher, scheduler or benchmark vouches for this success."""
    return "run_complete" in success.marks


def trained_until(case: Case, line: LogLine) -> bool:
    """Tell whether the job printed steps, and none behind this line."""
    when = case.near_time(line)
    trained = False
    for view in case.views:
        rows = step_rows(view)
        if not rows:
            continue
        if view.name == line.file:
            if rows[-1].line > line.number:
                return False
        else:
            newest = view.line(rows[-1].line)
            last = case.near_time(newest) if newest is not None else None
            if last is None or when is None or last > when:
                return False
        trained = trained or len(rows) >= _TRAINED
    return trained


def _choose(case: Case, rules: dict[str, Rule], result: Selection) -> None:
    """Take the first fault of the candidates and say of each other kind why it lost."""
    found = roots.find(case, rules, result.candidates)
    result.winner, result.contested, result.edges = found.first, found.contested, found.edges
    if found.first is None:
        return
    explained = {id(edge.effect): edge.because for edge in found.edges}
    seen = {found.first.leaf}
    for candidate in result.candidates:
        if candidate.leaf not in seen:
            seen.add(candidate.leaf)
            because = explained.get(id(candidate)) or _because(case, found.first, candidate)
            result.rejected.append(Rejected(candidate, because))


def _stage_failed(case: Case, observations: list[Observation], observation: Observation) -> bool:
    """A whole traceback in the main thread behind a stage's end marker is a failure of the next stage.

    Unless somebody interrupted it there: a stage that is stopped behind its end hung in its teardown.
    """
    if "interrupted" in observation.marks:
        return False
    if any("run_complete" in o.marks and not case.before(observation, o) for o in observations):
        return False
    if any("run_complete" in o.marks and case.before(observation, o) for o in observations):
        return False
    return bool(observation.lines) and "thread" not in observation.fields


def _because(case: Case, winner: Observation, loser: Observation) -> str:
    if case.known_before(winner, loser):
        return "came later"
    return "nothing tells which of the two came first, and this one is not deeper"


def _goes_on(case: Case, start: Observation) -> bool:
    """A restart counts once the next attempt has left a trace: a step, an end, or an error but that it never began."""
    view = case.view(start.line)
    if any(row.line > start.line.number for row in view.survey.steps):
        return True
    if start.role is Role.INITIATING and any(
        "accounted_failed" in o.marks for o in case.observations
    ):
        return True  # of a job that waits to be started again no accounting says that it failed
    telling = (Role.INITIATING, Role.CASCADE, Role.SUCCESS)
    return any(
        o.role in telling and o.line.file == start.line.file and o.line.number > start.line.number + 2
        and "attempt_started" not in o.marks and "not_restarted" not in o.marks
        for o in case.observations
    )  # fmt: skip


def _last_attempt(case: Case, result: Selection) -> list[Observation]:
    """Keep what belongs to the last start of the job: an earlier attempt was already recovered."""
    attempts = [v.origin.attempt for v in case.views if v.origin.attempt is not None]
    newest = max(attempts, default=None)
    kept = []
    for observation in case.observations:
        view = case.view(observation.line)
        if newest is not None and view.origin.attempt is not None and view.origin.attempt < newest:
            continue
        cut = max(
            (o.line.number for o in result.attempt_starts if o.line.file == observation.line.file),
            default=0,
        )
        # What a scheduler says of a requeue ended the attempt before it.
        ended_it = observation.role is Role.INITIATING and observation.line.number == cut
        if observation.line.number < cut or ended_it:
            continue
        kept.append(observation)
    return kept


def _behind(start: LogLine | None, end: LogLine) -> bool:
    """Tell whether a run was announced behind a line; another rank's late output is older."""
    if start is None or start.number < end.number:
        return False
    return start.time is None or end.time is None or start.time > end.time


def _ended_by_own_check(case: Case, observations: list[Observation], marker: Observation) -> bool:
    """A program that ends in order before its planned step, behind an error of its own, has failed its check."""
    if "orderly_end" not in marker.marks:
        return False
    view = case.view(marker.line)
    rows = [row for row in step_rows(view) if row.line < marker.line.number]
    last = view.line(rows[-1].line) if rows else None
    if last is None or planned_steps(LastStep(rows[-1].step, last, None)) is None:
        return False
    failed = any(
        o.role is Role.INITIATING
        and o.line.file == marker.line.file
        and last.number < o.line.number < marker.line.number
        for o in observations
    )
    return failed or first_cry(case, last, marker.line.number, judged=True) is not None


def _final_success(case: Case, observations: list[Observation]) -> Observation | None:
    """Return the last success marker, unless training went on or another run began behind it."""
    begun = {o.line.file: o.line for o in observations if "run_started" in o.marks}
    markers = [
        o
        for o in observations
        if o.role is Role.SUCCESS
        and not _behind(begun.get(o.line.file), o.line)
        and not _ended_by_own_check(case, observations, o)
        and not _was_cancelled(case, observations, o)
        and ("tests_passed" not in o.marks or only_tests_ran(case, o))
    ]
    if not markers or not _is_final(case, markers[-1]):
        return None
    # The first marker of the final stretch: what comes between the markers is teardown as well.
    return next(marker for marker in markers if _is_final(case, marker))


def _was_cancelled(case: Case, observations: list[Observation], marker: Observation) -> bool:
    """Tell whether what says that a run is over, as it would either way, stands behind a line that cancelled its step."""
    return "only_over" in marker.marks and any(
        {"cancelled", "ends_step"} <= set(o.marks) and case.known_before(o, marker)
        for o in observations
    )


def _is_final(case: Case, marker: Observation) -> bool:
    return not survived(case, marker, steps=3) and not _trains_behind(case, marker)


def _trains_behind(case: Case, marker: Observation) -> bool:
    """Tell whether step lines of the same words as those above stand behind a marker: another stage or epoch began."""
    view = case.view(marker.line)
    rows = step_rows(view)
    at = bisect_right(rows, marker.line.number, key=lambda row: row.line)
    above = {_wording(view.text(row.line)) for row in rows[max(at - _SIMILAR, 0) : at]}
    behind = (row.line for row in rows[at : at + _SIMILAR])
    lines = [view.line(number) for number in behind if _wording(view.text(number)) in above]
    return sum(line is not None and line.label == marker.line.label for line in lines) >= _GOES_ON


def _wording(text: str | None) -> str:
    return "".join(sign for sign in text or "" if sign.isalpha())
