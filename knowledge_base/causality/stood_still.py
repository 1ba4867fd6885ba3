"""A run that printed nothing more for long before somebody asked for the time.

A log that just stops tells nothing of a hang; `date` behind its last lines does, where many steps would have fitted
in between.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

from rerail.domain.diagnosis import Status
from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.conclusion import Conclusion
from rerail.knowledge_base.causality.progress import LastStep, step_rows
from rerail.knowledge_base.phrases import phrase
from rerail.knowledge_base.placement.identities import Identities
from rerail.log_parsers.middle import median

_LEAST_S = 600.0
_STEP_LINES = 10.0
"""So many step lines would have fitted into the silence."""
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()


def stood_still(case: Case, last: LastStep | None, identities: Identities) -> Conclusion | None:
    """Conclude from the time that somebody asked for long after the last step, or return None."""
    asked = _asked(case)
    if last is None or last.time is None or asked is None:
        return None
    silent = asked - last.time
    usual = _usual(case, last)
    if usual is None or silent < max(_LEAST_S, _STEP_LINES * usual):
        return None
    length = f"{silent / 60:.0f} minutes"
    why = f"a step line came every {usual:.3g} s before, and none until somebody asked for the time"
    found = _looked_at(case, identities, why) or _saves(case, identities, why)
    if found is None:
        found = Conclusion(
            "nccl_timeout_unexplained", last.line, Status.HYPOTHESIS, why, (), (), "page_human"
        )
    return replace(found, silence=length)


def _saves(case: Case, identities: Identities, why: str) -> Conclusion | None:
    """Conclude from a stack in the code that saves checkpoints."""
    line = _saving(case)
    if line is None:
        return None
    rank, node = _whose(case, identities)
    return Conclusion(
        "checkpoint_save_failure", line, Status.SUPPORTED,
        f"{why}; a stack shows a process that waits for the save of a checkpoint",
        () if rank is None else (rank,), () if node is None else (node,), "restart_as_is",
    )  # fmt: skip


def _looked_at(case: Case, identities: Identities, why: str) -> Conclusion | None:
    """Conclude from NCCL's report of a job that hangs; one look at a job that may move tells nothing."""
    if not any("ras_mismatch" in o.marks for o in case.observations):
        return None
    from rerail.knowledge_base.waiting.ras import one_look

    seen = one_look(case)
    if seen is None:
        return None
    return Conclusion(
        "nccl_timeout_unexplained", seen.line, Status.SUPPORTED,
        f"{why}; NCCL's report names who is behind", tuple(seen.ranks), tuple(identities.hosts(seen.nodes)),
    )  # fmt: skip


def _asked(case: Case) -> float | None:
    """Return the last time that somebody asked for, in seconds by the clock of the machine."""
    found: list[float] = []
    for view in case.views:
        if not any(case.lines_with(view, "asks-for-the-time")):
            continue
        for number in case.lines_with(view, "told-the-time"):
            match = phrase("told-the-time").search(view.text(number) or "")
            if match is not None:
                month = _MONTHS.index(match["month"].lower()) + 1
                day, hour, minute, second, year = (
                    int(match[name]) for name in ("day", "hour", "minute", "second", "year")
                )
                found.append(
                    datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
                )
    return max(found, default=None)


def _usual(case: Case, last: LastStep) -> float | None:
    """Return how many seconds one step line came behind the other, by the clock or by what they say of steps."""
    view = case.view(last.line)
    rows = step_rows(view)
    told = [(row, view.wall_time(row.line)) for row in rows]
    gaps = [
        after - before
        for (_, before), (_, after) in pairwise(told)
        if before is not None and after is not None and after > before
    ]
    times = [row.step_time for row in rows if row.step_time]
    steps = [
        after.step - before.step
        for before, after in pairwise(rows)
        if before.step is not None and after.step is not None and after.step > before.step
    ]
    usual = [median(gaps)] if gaps else []
    if times and steps:
        usual.append(median(times) * median(steps))
    return min(usual, default=None)


def _saving(case: Case) -> LogLine | None:
    for view in case.views:
        for number in case.lines_with(view, "frame-of-a-save"):
            return view.line(number)
    return None


def _whose(case: Case, identities: Identities) -> tuple[int | None, str | None]:
    """Return rank and host of the only process whose stack was looked at."""
    from rerail.log_parsers.stacks import read_stacks

    stacks = [one for view in case.views for one in read_stacks(view)]
    if len({one.pid for one in stacks}) != 1:
        return None, None
    head, pid = stacks[0].head, stacks[0].pid
    who = identities.by_pid.get(pid, head.node) if pid is not None else None
    rank = head.rank if head.rank is not None else who.rank if who else None
    return rank, head.node or (who.node if who else None)
