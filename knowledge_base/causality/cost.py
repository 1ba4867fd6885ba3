"""What a failure cost, as far as the evidence tells: GPUs that stood idle, steps to train again.

A job that is slow and nothing else runs on: nothing of it stands idle.

Each figure says what it covers; what cannot be known is left out rather than guessed.
"""

from __future__ import annotations

from rerail.domain.diagnosis import Cost, Outcome
from rerail.domain.evidence import Role
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.verdict import Verdict
from rerail.knowledge_base.taxonomy import has

_LONGEST = 30 * 86_400
_LEAST_SHARE = 0.5
_OUT_OF_ORDER_S = 3600.0
"""How far lines of several writers may stand out of the order of their times."""


def cost_of(case: Case, verdict: Verdict) -> Cost:
    """Return the cost of a failure; empty where there is none."""
    if verdict.outcome is not Outcome.FAILURE or verdict.line is None:
        return Cost()
    began, reported = _began(case, verdict), _reported(case, verdict)
    ended, early = _ended(case, began)
    gpus = gpus_of(verdict)
    lost = _lost_steps(case, verdict)
    covers: list[str] = []
    left_out: list[str] = []
    idle = gap = None
    if (before := _long_before_waiting(case, verdict)) is not None:
        began = None
        left_out.append(
            "detection: left out, for the first fault stands among lines that are"
            f" {_span(before)} older than the wait for it"
        )
    elif began is not None and reported is not None and reported - began >= 1.0:
        gap = round(reported - began, 1)
        covers.append(f"detection: {_span(gap)} from the first fault to the first report of it")
    stood = not has(verdict.leaf, "slow") or bool(case.with_role(Role.CASCADE))
    if stood and gpus and early is not None:
        left_out.append(f"idle: left out, for the log ends {_span(early)} before a time in it")
    elif (
        stood
        and began is not None
        and ended is not None
        and gpus
        and 1.0 <= ended - began < _LONGEST
    ):
        idle = round((ended - began) * gpus / 3600.0, 2)
        covers.append(
            f"idle: {gpus} GPU{'s' if gpus > 1 else ''} for {_span(ended - began)},"
            " from the first fault to the end of the logs"
        )
    if lost is not None:
        covers.append(f"lost: {lost} steps since the last checkpoint")
    return Cost(
        idle_gpu_hours=idle,
        lost_steps=lost,
        gpus=gpus if idle is not None else None,
        detection_s=gap,
        covers=covers,
        left_out=left_out,
    )


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

    A line without a time is younger than the stamped one above it, which may be far older.
    """
    if verdict.line is None:
        return None
    own = case.time(verdict.line)
    waiting = verdict.waiting.started if verdict.waiting is not None else None
    known = [time for time in (own, waiting) if time is not None]
    return min(known) if known else case.near_time(verdict.line)


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


def _lost_steps(case: Case, verdict: Verdict) -> int | None:
    if verdict.last is None or verdict.last.step is None:
        return None
    saved = [
        int(o.fields["step"].replace(",", ""))
        for o in case.observations
        if "checkpoint_saved" in o.marks and o.fields.get("step", "").replace(",", "").isdigit()
    ]
    before = [step for step in saved if step <= verdict.last.step]
    return verdict.last.step - max(before) if before else None


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7_200 else f"{seconds / 3600:.1f} h"
