"""Chooses the first fault among the observations that could be one.

Deeper explains shallower: a kernel line explains a CUDA error, a CUDA error explains a time-out.
Among equals the earlier wins. What training survived was not fatal. What came after a completed
run is teardown.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from rerail.domain.evidence import LogLine, Observation, Role, Tier
from rerail.knowledge_base.causality.case import Case
from rerail.knowledge_base.causality.own_failures import outweighed
from rerail.knowledge_base.causality.progress import ends_non_finite, step_rows, survived
from rerail.knowledge_base.rules import Rule
from rerail.knowledge_base.taxonomy import Kind, leaves
from rerail.log_parsers.tracebacks import looks_like_exception

_LEVEL = {
    Tier.HARDWARE: 0.0,
    Tier.HOST: 1.0,
    Tier.SCHEDULER: 2.0,
    Tier.LIBRARY: 2.0,
    Tier.APPLICATION: 2.3,
    Tier.GENERIC: 4.0,
    Tier.EXIT: 5.0,
}
_DEEPER_PENALTY = {Kind.ROOT: 0.0, Kind.LOOK_DEEPER: 1.5, Kind.SYMPTOM: 3.0}
SLACK_S = 120.0
"""A deeper fault this much later than a shallower one did not cause it."""

# What still counts when it happens behind a success marker: the results may not have been written.
_AFTER_SUCCESS = frozenset(
    {
        "disk_full_or_quota",
        "checkpoint_save_failure",
        "local_disk_failure",
        "shared_fs_error",
        "object_store_error",
    }
)
# Training goes on under these: going on does not clear them.
_LIVED_WITH = frozenset({"fail_slow", "numerical"})
# A scheduler's order to end: training goes on for the grace time that it gives.
_ORDERED_END = frozenset({"job_time_limit", "job_preempted"})
_GRACE_STEPS = 50
_ATTEMPT_STARTS = frozenset({"attempt-restart", "slurm-requeue-cancel"})
_TRAINED = 3  # step lines that make it known how a run goes on
# Markers of the whole run; the others end a stage, and what fails behind a stage is a failure.
_RUN_COMPLETE = frozenset(
    {
        "ok-mlperf-run-stop", "ok-mlperf-run-stop-bare", "ok-mlperf-status", "ok-exit-code-zero",
        "ok-slurm-completed", "ok-k8s-completed",
        "ok-ray-job-succeeded", "ok-torchrun-agent-finished", "ok-deepspeed-launcher-success",
    }
)  # fmt: skip

RUN_STARTED = "run-started-mllog"
# The benchmark's own record that the run missed its target; a sentence of success beside it, which
# the same program prints for every end, says nothing against it. Only its record of success does.
_TARGET_MISSED = "num-mlperf-run-aborted"
_TARGET_MET = frozenset({"ok-mlperf-run-stop", "ok-mlperf-status"})


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


def level(observation: Observation) -> float:
    """Return how shallow an observation is: 0 is hardware, larger explains less."""
    kind = leaves()[observation.leaf].kind if observation.leaf else Kind.ROOT
    return _LEVEL[observation.tier] + _DEEPER_PENALTY[kind]


def beats(case: Case, rules: dict[str, Rule], a: Observation, b: Observation) -> bool:
    """Tell whether `a` is the better first fault than `b`."""
    slow_a, slow_b = _slow(a), _slow(b)
    if slow_a != slow_b:
        # What only makes a run slow does not end it: whatever did is the fault.
        return slow_b
    level_a, level_b = level(a), level(b)
    if _one_chain(a, b):
        # One chain of exceptions of one rank: the link that a rule knows tells more.
        return b.tier is Tier.GENERIC
    heavier = _heavier(rules, a, b)
    if heavier is not None and _close(case, a, b):
        # Across layers only what also came first: a time-out behind an exception is its echo.
        if abs(level_a - level_b) < 1.0 or case.before(*((a, b) if heavier else (b, a))):
            return heavier
    if abs(level_a - level_b) < 1.0:
        if a.leaf == b.leaf and (a.line.time is None or b.line.time is None):
            # The same fault told twice without a clock: the line that says more stands for it.
            says_more = rules[a.rule_id].priority - rules[b.rule_id].priority
            if abs(says_more) >= 10:
                return says_more > 0
        return case.before(a, b)
    deeper, shallower = (a, b) if level_a < level_b else (b, a)
    gap = case.seconds_between(shallower, deeper)
    winner = shallower if gap is not None and gap > SLACK_S else deeper
    return winner is a


def _slow(observation: Observation) -> bool:
    return bool(observation.leaf) and leaves()[observation.leaf or ""].category == "fail_slow"


def _one_chain(a: Observation, b: Observation) -> bool:
    if (a.tier is Tier.GENERIC) == (b.tier is Tier.GENERIC) or Tier.EXIT in (a.tier, b.tier):
        return False
    same = a.line.file == b.line.file and a.line.label == b.line.label
    return same and bool(a.lines) and bool(b.lines) and abs(a.line.number - b.line.number) < 120


def _heavier(rules: dict[str, Rule], a: Observation, b: Observation) -> bool | None:
    """Several Xids of one GPU within seconds: the vendor's order says which is the fault."""
    if "pci" not in a.fields or "pci" not in b.fields or a.fields["pci"] != b.fields["pci"]:
        return None
    weight_a = rules[a.rule_id].weight if a.rule_id in rules else 0
    weight_b = rules[b.rule_id].weight if b.rule_id in rules else 0
    return None if weight_a == weight_b else weight_a > weight_b


def _close(case: Case, a: Observation, b: Observation) -> bool:
    own_a, own_b = a.line.time, b.line.time
    if own_a is not None and own_b is not None and a.line.clock == b.line.clock:
        return abs(own_a - own_b) < 30.0
    gap = case.seconds_between(a, b)
    return gap is None or abs(gap) < 30.0


def select(case: Case, rules: dict[str, Rule], beside: Collection[int] = frozenset()) -> Selection:
    """Return the first fault of the last attempt, or a selection without a winner.

    `beside` holds the identities (`id`) of the observations on nodes that are not the job's.
    """
    result = Selection()
    starts = [o for o in case.observations if o.rule_id in _ATTEMPT_STARTS]
    result.attempt_starts = [o for o in starts if _goes_on(case, o)]
    in_last = _last_attempt(case, result)
    result.success = _final_success(case, in_last)
    for observation in in_last:
        if observation.role is not Role.INITIATING:
            continue
        if id(observation) in beside:
            result.rejected.append(Rejected(observation, "its node is not one of the job's"))
            continue
        if observation.leaf == "loss_nan" and ends_non_finite(case):
            # A run that reports its completion with a loss of NaN has completed nothing.
            result.candidates.append(observation)
            continue
        if observation.rule_id == _TARGET_MISSED and (
            result.success is None or result.success.rule_id not in _TARGET_MET
        ):
            result.candidates.append(observation)
            continue
        if result.success is not None and not case.before(observation, result.success):
            if observation.leaf not in _AFTER_SUCCESS and not _stage_failed(
                case, in_last, observation
            ):
                result.after_success.append(observation)
                continue
        elif result.success is not None and not _belies(case, observation, result.success):
            result.rejected.append(Rejected(observation, "the run completed after it"))
            continue
        if leaves()[observation.leaf or ""].category not in _LIVED_WITH and _outlived(
            case, observation
        ):
            result.rejected.append(Rejected(observation, "training went on after it"))
            continue
        result.candidates.append(observation)
    _drop_hints(case, rules, result)
    weak = outweighed(case, result.candidates)
    gone = {id(claim) for claim, _ in weak}
    result.candidates = [o for o in result.candidates if id(o) not in gone]
    result.rejected += [Rejected(claim, because) for claim, because in weak]
    _choose(case, rules, result)
    return result


def _drop_hints(case: Case, rules: dict[str, Rule], result: Selection) -> None:
    """Reject what could make a run slow where its steps show that nothing did."""

    def is_hint(observation: Observation) -> bool:
        rule = rules.get(observation.rule_id)
        return rule is not None and rule.hint

    hints = [o for o in result.candidates if is_hint(o)]
    if not hints or any(_slow(o) and not is_hint(o) for o in case.observations):
        return
    from rerail.knowledge_base.causality.numeric import MIN_ROWS, analyse

    if sum(len(step_rows(view)) for view in case.views) < MIN_ROWS:
        return
    if any(leaves()[found.leaf].category == "fail_slow" for found in analyse(case)):
        return
    result.candidates = [o for o in result.candidates if not is_hint(o)]
    result.rejected += [Rejected(o, "the steps did not become slower") for o in hints]


def _outlived(case: Case, observation: Observation) -> bool:
    """Tell whether training went on after an observation, and not only for a grace time."""
    if not survived(case, observation):
        return False
    if observation.leaf not in _ORDERED_END:
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
    return now is not None and then is not None and now - then > SLACK_S


def _belies(case: Case, observation: Observation, success: Observation) -> bool:
    """A fault that ends a process, with no step behind it, gives the lie to a sentence of success.

    Anybody can print "training completed"; a run that recovered would have gone on training first.
    A launcher's or benchmark's own record of success is believed.
    """
    if is_record(success) or "thread" in observation.fields:
        return False
    fatal = observation.tier is Tier.HARDWARE or (
        bool(observation.lines) and looks_like_exception(observation.line.message)
    )
    if not fatal or leaves()[observation.leaf or ""].kind is not Kind.ROOT:
        return False
    return trained_until(case, observation.line)


def is_record(success: Observation) -> bool:
    """Tell whether a launcher, scheduler or benchmark vouches for this success."""
    return success.rule_id in _RUN_COMPLETE


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
    """Take the best candidate and say of each other kind why it lost."""
    winner: Observation | None = None
    for candidate in result.candidates:
        if winner is None or beats(case, rules, candidate, winner):
            winner = candidate
    result.winner = winner
    if winner is None:
        return
    seen = {winner.leaf}
    for candidate in result.candidates:
        if candidate.leaf not in seen:
            seen.add(candidate.leaf)
            result.rejected.append(Rejected(candidate, _because(case, winner, candidate)))


def _stage_failed(case: Case, observations: list[Observation], observation: Observation) -> bool:
    """A whole traceback in the main thread behind a stage's end marker is a failure of the next stage."""
    if any(o.rule_id in _RUN_COMPLETE and not case.before(observation, o) for o in observations):
        return False
    if any(o.rule_id in _RUN_COMPLETE and case.before(observation, o) for o in observations):
        return False
    return bool(observation.lines) and "thread" not in observation.fields


def _because(case: Case, winner: Observation, loser: Observation) -> str:
    later = case.before(winner, loser)
    if level(winner) + 1.0 <= level(loser):
        return "explained by the deeper fault" + (" before it" if later else "")
    return "came later" if later else "not as deep as the first fault"


def _goes_on(case: Case, start: Observation) -> bool:
    """A restart counts once the next attempt has left a trace: a step, an error or an end."""
    view = case.view(start.line)
    if any(row.line > start.line.number for row in view.survey.steps):
        return True
    telling = (Role.INITIATING, Role.CASCADE, Role.SUCCESS)
    return any(
        o.role in telling and o.line.file == start.line.file and o.line.number > start.line.number + 2
        and o.rule_id not in _ATTEMPT_STARTS
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
        if observation.line.number < cut:
            continue
        kept.append(observation)
    return kept


def _behind(start: LogLine | None, end: LogLine) -> bool:
    """Tell whether a run was announced behind a line; another rank's late output is older."""
    if start is None or start.number < end.number:
        return False
    return start.time is None or end.time is None or start.time > end.time


def _final_success(case: Case, observations: list[Observation]) -> Observation | None:
    """Return the last success marker, unless training went on or another run began behind it."""
    begun = {o.line.file: o.line for o in observations if o.rule_id == RUN_STARTED}
    markers = [
        o
        for o in observations
        if o.role is Role.SUCCESS and not _behind(begun.get(o.line.file), o.line)
    ]
    if not markers:
        return None
    last = markers[-1]
    if survived(case, last, steps=3):
        return None
    # The first marker of the final stretch: what comes between the markers is teardown as well.
    final = [m for m in markers if not survived(case, m, steps=3)]
    return final[0]
