"""What a failure cost, as far as the evidence tells: GPUs that stood idle, steps to train again.

A job that is slow and nothing else runs on: nothing of it stands idle.

Each figure says what it covers; what cannot be known is left out rather than guessed.
"""

from __future__ import annotations

from dataclasses import field

from rerail.domain.diagnosis import Cost, Outcome
from rerail.domain.evidence import Observation, Role
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.progress import step_rows
from rerail.knowledge_base.causality.verdict import Verdict
from rerail.knowledge_base.taxonomy import has
from rerail.late_dataclass import dataclass

_LONGEST = 30 * 86_400
_LEAST_SHARE = 0.5
_FAR = 2  # how many times its number the step above a checkpoint may be: an epoch's is far below
_MAY_SAVE = frozenset({"checkpoint_saved", "checkpoint_perhaps"})
_OUT_OF_ORDER_S = 3600.0
"""How far lines of several writers may stand out of the order of their times."""


@dataclass(slots=True)
class _Told:
    """What is said of the figures: what each covers, and why one is missing."""

    covers: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def without(self, term: str, why: str) -> None:
        self.left_out.append(f"{term}: left out, for {why}")


def cost_of(case: Case, verdict: Verdict) -> Cost:
    """Return the cost of a failure; empty where there is none."""
    if verdict.outcome is not Outcome.FAILURE or verdict.line is None:
        return Cost()
    told = _Told()
    began = _began(case, verdict)
    gap, began = _detection(case, verdict, began, told)
    gpus = gpus_of(verdict)
    idle = None
    if not has(verdict.leaf, "slow") or case.with_role(Role.CASCADE):
        idle = _idle(case, began, gpus, told)
    lost = _lost_steps(case, verdict, told)
    return Cost(
        idle_gpu_hours=idle,
        lost_steps=lost,
        gpus=gpus if idle is not None else None,
        detection_s=gap,
        covers=told.covers,
        left_out=told.left_out,
    )


def _detection(
    case: Case, verdict: Verdict, began: float | None, told: _Told
) -> tuple[float | None, float | None]:
    """Return the seconds until the first report, and the beginning, None where the times contradict each other."""
    if (before := _long_before_waiting(case, verdict)) is not None:
        told.without(
            "detection",
            f"the first fault stands among lines that are {_span(before)} older than the wait for it",
        )
        return None, None
    reported = _reported(case, verdict)
    if began is None or reported is None or reported - began < 1.0:
        return None, began
    gap = round(reported - began, 1)
    told.covers.append(f"detection: {_span(gap)} from the first fault to the first report of it")
    return gap, began


def _idle(case: Case, began: float | None, gpus: int | None, told: _Told) -> float | None:
    """Return the GPU hours from the beginning to the end of the logs."""
    ended, early = _ended(case, began)
    if early is not None:
        told.without("idle", f"the log ends {_span(early)} before a time in it")
    elif not gpus:
        told.without("idle", "no line tells how many GPUs the job had")
    elif began is None or ended is None:
        told.without("idle", "no line tells when it began")
    elif ended - began < 1.0:
        told.without("idle", "no line is later than the first fault")
    elif ended - began >= _LONGEST:
        told.without("idle", f"the times of the logs span {(ended - began) / 86_400:.0f} days")
    else:
        told.covers.append(
            f"idle: {gpus} GPU{'s' if gpus > 1 else ''} for {_span(ended - began)},"
            " from the first fault to the end of the logs"
        )
        return round((ended - began) * gpus / 3600.0, 2)
    return None


def gpus_of(verdict: Verdict) -> int | None:
    """Return how many GPUs the job had: its world size, else all ranks up to the highest that was heard."""
    known = verdict.identities
    if known.world_size:
        return known.world_size
    size = max(known.ranks_seen, default=-1) + 1
    # A few ranks of many say nothing of how many there were, nor does the first, which prints for all.
    return size if size > 1 and len(known.ranks_seen) >= _LEAST_SHARE * size else None


def _began(case: Case, verdict: Verdict) -> float | None:
    """Return when the first fault began; a time-out began when its ranks started to wait.

    A line without a time is younger than the stamped one above it, which may be far older: what ended
    its writer came no earlier than the last step that the job made together, unless steps stand below,
    or training goes on under such a fault.
    """
    line = verdict.line
    if line is None:
        return None
    own = case.time(line)
    waiting = verdict.waiting.started if verdict.waiting is not None else None
    known = [time for time in (own, waiting) if time is not None]
    if known:
        return min(known)
    near, last = case.near_time(line), verdict.last
    if last is None or last.time is None or last.line.file == line.file:
        return near
    if has(verdict.leaf, "lived_with"):
        return near
    if any(row.line > line.number for row in step_rows(case.view(line))):
        return near
    return last.time if near is None else max(near, last.time)


def _reported(case: Case, verdict: Verdict) -> float | None:
    found = verdict.waiting
    if found is None or found.first is None:
        return None
    return case.near_time(found.first.line)


def _long_before_waiting(case: Case, verdict: Verdict) -> float | None:
    """Return by how many seconds the lines around a fault without a time are older than the wait for it, if by many."""
    started = verdict.waiting.started if verdict.waiting is not None else None
    if verdict.line is None or started is None or case.time(verdict.line) is not None:
        return None
    above, below = case.near_time(verdict.line), case.not_after(verdict.line)
    if above is None or below is None:
        return None
    before = started - max(above, below)
    return before if before > _OUT_OF_ORDER_S else None


def _ended(case: Case, began: float | None) -> tuple[float | None, float | None]:
    """Return the last time of the logs, or by how many seconds they end earlier where their times contradict each other."""
    exact, last = case.facts.end(lambda name: case.offsets.get(name, 0.0)), _last_told(case)
    if exact is None or last is None:
        return exact if exact is not None else last, None
    early = max(exact, began or exact) - last
    return (None, early) if early > _OUT_OF_ORDER_S and _is_one_log(case) else (exact, None)


def _is_one_log(case: Case) -> bool:
    """Tell whether all is one log; of several, also pasted below each other, one ends before another."""
    if len(case.views) != 1:
        return False
    (view,) = case.views
    return view.section(view.numbers[0]) == view.section(view.numbers[-1])


def _last_told(case: Case) -> float | None:
    """Return the time of the last line of the logs that tells one."""
    ended = None
    for view in case.views:
        for number in reversed(view.numbers[-50:]):
            line = view.line(number)
            if line is not None and (time := case.time(line)) is not None:
                ended = time if ended is None else max(ended, time)
                break
    return ended


def _lost_steps(case: Case, verdict: Verdict, told: _Told) -> int | None:
    """Return the steps since the last checkpoint that is known to be complete, or since the run was resumed."""
    last = verdict.last.step if verdict.last is not None else None
    if last is None:
        told.without("lost", "no line tells a step")
        return None
    saved = [step for step in _steps(case, "checkpoint_saved") if step <= last]
    saved += [step for step in _steps(case, "checkpoint_blocks") if step < last]
    loaded = [step for step in _steps(case, "checkpoint_loaded") if step <= last]
    is_saved = bool(saved) and max(saved) >= max(loaded, default=-1)
    if not is_saved and _may_have_saved(case):
        later = "later" if loaded else "saved"
        told.without("lost", f"a line may tell of a {later} checkpoint")
        return None
    if not saved and not loaded:
        told.without("lost", "no line tells of a saved checkpoint")
        return None
    lost = last - max(*saved, *loaded, -1)
    since = (
        "the last checkpoint"
        if is_saved
        else f"the checkpoint of step {max(loaded)}, from which it was resumed"
    )
    told.covers.append(f"lost: {lost} step{'' if lost == 1 else 's'} since {since}")
    return lost


def _may_have_saved(case: Case) -> bool:
    """Tell whether a line that no resumption follows in its file may tell of a checkpoint, of a step that is not known."""
    resumed: dict[str, int] = {}
    for o in case.observations:
        if "checkpoint_loaded" in o.marks:
            resumed[o.line.file] = max(o.line.number, resumed.get(o.line.file, 0))
    return any(
        o.line.number > resumed.get(o.line.file, 0) and _step_of(case, o) is None
        for o in case.observations
        if o.marks & _MAY_SAVE
    )


def _steps(case: Case, mark: str) -> list[int]:
    """Return the steps that the lines with a mark tell."""
    told = [_step_of(case, o) for o in case.observations if mark in o.marks]
    return [step for step in told if step is not None]


def _step_of(case: Case, seen: Observation) -> int | None:
    """Return the step that a line tells; a number in the name of a file may count epochs instead."""
    fields = seen.fields
    plain = (fields.get("step") or fields.get("counted") or "").replace(",", "")
    if plain.isdigit():
        return int(plain)
    plain = fields.get("numbered") or ""
    if not plain.isdigit():
        return None
    steps = [row.step for row in step_rows(case.view(seen.line)) if row.line < seen.line.number]
    return int(plain) if steps and (steps[-1] or 0) <= _FAR * int(plain) else None


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7_200 else f"{seconds / 3600:.1f} h"
