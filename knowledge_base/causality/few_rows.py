"""A slow phase in a log of a few step lines: all steps behind a change are slower than all before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.progress import step_rows
from rerail.knowledge_base.phrases import phrase
from rerail.late_dataclass import dataclass
from rerail.log_parsers.metrics import WEAK_FORMS
from rerail.log_parsers.middle import median
from rerail.log_parsers.step_numbers import StepRow
from rerail.log_parsers.view import LogView

_MOST_ROWS = 24
_LEAST = 2  # rows on either side of the change
_ROSE = 1.1
_BEHIND = 1.2
"""How much longer than planned a step takes that is slow."""
_STEADY = 1.1
"""How far the rows before the change may be apart."""
_FACTOR, _TYPICAL, _FACTOR_OF_TWO = 1.2, 1.5, 3.0
"""How much slower than the slowest row before the change are the fastest and the typical one behind it, where three stand on
either side; and the fastest where two do."""


@dataclass(frozen=True, slots=True)
class SlowPhase:
    """The first slow row, and the time of a step in seconds before it and from it on."""

    row: StepRow
    before_s: float
    after_s: float


def behind_plan(case: Case, view: LogView) -> int | None:
    """Return the first line whose step is slower than the line itself says that it should be, or None.

    So must be all such lines from it on, two at least.
    """
    first, lines = None, 0
    for number in case.lines_with(view, "step-beside-its-plan"):
        match = phrase("step-beside-its-plan").search(view.text(number) or "")
        if match is None or match["unit"] != match["unit2"]:
            continue
        end = "" if match["time"] else "2"
        value, planned = (
            float(match[name + end].replace(",", "")) for name in ("value", "planned")
        )
        slower, faster = (value, planned) if match["time"] else (planned, value)
        if slower > _BEHIND * faster:
            first, lines = first or number, lines + 1
        else:
            first, lines = None, 0
    return first if lines >= _LEAST else None


def rose(view: LogView) -> bool:
    """Tell whether the last third of the steps of some rank took a tenth longer than two of its first, for the same work.

    It is no finding by itself, but such steps do not deny what a machine says of a device that is held back.
    """
    groups: dict[tuple[str, int | None], list[float]] = defaultdict(list)
    work = set()
    for row in step_rows(view):
        if row.step_time is not None and row.form not in WEAK_FORMS:
            groups[row.form, row.rank].append(row.step_time)
            work.add(tuple(phrase("size-of-work").findall(view.text(row.line) or "")))
    return len(work) == 1 and any(
        median(times[-(len(times) // 3) :]) >= _ROSE * sorted(times[: 1 + len(times) // 3])[1]
        for times in groups.values()
        if len(times) > _LEAST * 2
    )


def slow_phase(view: LogView) -> SlowPhase | None:
    """Return the change after which every step of a short log is slower, or None."""
    groups: dict[tuple[str, int | None], list[StepRow]] = defaultdict(list)
    for row in step_rows(view):
        if row.step_time is not None and row.form not in WEAK_FORMS:
            groups[row.form, row.rank].append(row)
    if len(groups) != 1:
        return None
    (rows,) = groups.values()
    change = _change(rows)
    if change is None:
        return None
    # Larger batches and longer sequences take longer as well.
    work = {tuple(phrase("size-of-work").findall(view.text(row.line) or "")) for row in rows}
    return change if len(work) == 1 else None


def _change(rows: Sequence[StepRow]) -> SlowPhase | None:
    times = [row.step_time or 0.0 for row in rows]
    if not 2 * _LEAST <= len(rows) <= _MOST_ROWS:
        return None
    first = int(times[0] > _STEADY * times[1])  # the first step often starts things
    for at in range(first + _LEAST, len(times) - _LEAST + 1):
        before, after = times[first:at], times[at:]
        if min(before) <= 0 or max(before) > _STEADY * min(before):
            continue
        slower, typical = min(after) / max(before), median(after) / max(before)
        if slower >= _FACTOR_OF_TWO or (
            len(before) > _LEAST
            and len(after) > _LEAST
            and slower >= _FACTOR
            and typical >= _TYPICAL
        ):
            return SlowPhase(rows[at], max(before), min(after))
    return None
