"""A run that printed nothing more for long before somebody asked for the time.

A log that just stops tells nothing of a hang; `date` behind its last lines does, where many steps would have fitted
in between.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from rerail.domain.diagnosis import Status
from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.conclusion import Conclusion
from rerail.knowledge_base.causality.progress import LastStep, step_rows
from rerail.knowledge_base.causality.set_aside import reached_its_end
from rerail.knowledge_base.phrases import phrase, says
from rerail.knowledge_base.placement.identities import Identities
from rerail.late_dataclass import dataclass
from rerail.log_parsers.middle import median
from rerail.log_parsers.timestamps import WALL, find_stamp
from rerail.log_parsers.view import LogView

_LEAST_S = 600.0
_STEP_LINES = 10.0
"""So many step lines would have fitted into the silence."""
_LEAST_ROWS = 3
_HALF_HOUR_S = 1800.0
_UTC = ("UTC", "GMT")
_BELOW = 1  # lines behind the last step line
_LAST_LINES = 4_000


def stood_still(case: Case, last: LastStep | None, identities: Identities) -> Conclusion | None:
    """Conclude from the time that somebody asked for long after the last step, or return None."""
    if last is None or last.time is None or reached_its_end(case):
        return None
    asked, usual = _asked(case.view(last.line)), _usual(case, last)
    if asked is None or usual is None or not _is_last(case, last.line):
        return None
    silent, least = asked.seconds - last.time, max(_LEAST_S, _STEP_LINES * usual)
    # The clock of another zone is some half hours ahead or behind.
    if silent < least or (asked.zone not in _UTC and silent % _HALF_HOUR_S < least):
        return None
    length = f"{silent / 60:.0f} minutes"
    why = f"a step line came every {usual:.3g} s before, and none until somebody asked for the time"
    found = _looked_at(case, identities, why) or _saves(case, identities, why)
    if found is None:
        found = Conclusion(
            "nccl_timeout_unexplained", last.line, Status.HYPOTHESIS, why, (), (), "page_human"
        )
    return replace(found, silence=length)


def only_others_spoke(case: Case, last: LastStep | None) -> str | None:
    """Return how long a log went on without a step line in which many would have fitted, in words, or None.

    What a run does behind its last step, an evaluation or the save of a checkpoint, it says.
    """
    if last is None or last.time is None or reached_its_end(case):
        return None
    view, usual = case.view(last.line), _usual(case, last)
    if usual is None or len(step_rows(view)) < _LEAST_ROWS:
        return None
    here = view.section(last.line.number)
    behind = [n for n in view.numbers if n > last.line.number and view.section(n) == here]
    times = [time for n in behind if (time := view.wall_time(n)) is not None]
    busy = any(o.line.file == view.name and o.line.number in behind for o in case.observations)
    if len(times) < _LEAST_ROWS or busy:
        return None
    silent = times[-1] - last.time
    if silent < max(_LEAST_S, _STEP_LINES * usual) or times != sorted(times):
        return None
    return (
        f"a step line came every {usual:.3g} s before, and none in the last {silent / 60:.0f} minutes,"
        " in which other lines were printed"
    )


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


@dataclass(frozen=True, slots=True)
class _Asked:
    """The time that somebody asked for, by the clock of that machine, and the zone that it tells."""

    seconds: float
    zone: str


def _asked(view: LogView) -> _Asked | None:
    """Return the last time that somebody asked for in a file, or None."""
    found: list[_Asked] = []
    texts = [(number, view.text(number) or "") for number in view.numbers[-_LAST_LINES:]]
    if not any(phrase("asks-for-the-time").search(text) for _, text in texts):
        return None
    for _, text in texts:
        match = phrase("told-the-time").search(text)
        stamp = find_stamp(text, year=1970) if match is not None else None
        if match is not None and stamp is not None and stamp.clock == WALL:
            found.append(_Asked(stamp.seconds, match["zone"] or ""))
    return max(found, key=lambda one: one.seconds, default=None)


def _is_last(case: Case, line: LogLine) -> bool:
    """Tell whether nothing but a word or two stands behind a line in what was printed there."""
    view = case.view(line)
    here = view.section(line.number)
    below = [n for n in view.numbers if n > line.number and view.section(n) == here]
    told = [text for n in below if (text := (view.text(n) or "").strip())]
    told = [text for text in told if not phrase("told-the-time").search(text)]
    return len(told) <= _BELOW and not any(says("told-its-end", text) for text in told)


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
