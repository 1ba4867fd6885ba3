"""Training progress: which step each rank reached, and whether the job went on after an event."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Protocol, TypeVar

from rerail.domain.evidence import LogLine, Observation, Role, Tier
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.several_jobs import next_run
from rerail.knowledge_base.phrases import phrase_in_bytes
from rerail.late_dataclass import dataclass
from rerail.log_parsers.metrics import WEAK_FORMS
from rerail.log_parsers.step_forms import marked, numbers
from rerail.log_parsers.step_numbers import StepRow, number_of
from rerail.log_parsers.tracebacks import looks_like_exception
from rerail.log_parsers.view import LogView

_FURTHER_EPOCHS = 2
_OUTLIVED_STEPS = 5
_LONG_AFTER_S = (
    1200.0  # twice what a process group waits for (torch's and NCCL's watchdogs: ten minutes)
)
_OF_PROGRAMS = frozenset({Tier.LIBRARY, Tier.APPLICATION, Tier.GENERIC})
"""What the programs of a job print; what others print of it may stand anywhere in a paste."""


@dataclass(frozen=True, slots=True)
class LastStep:
    """The last step line of the evidence."""

    step: int | None
    line: LogLine
    time: float | None


def step_rows(view: LogView) -> Sequence[StepRow]:
    """Return the rows of one file that count training steps: strong forms if it has any."""
    strong = [row for row in view.survey.steps if row.form not in WEAK_FORMS]
    return strong or view.survey.steps


def _only_a_rate(row: StepRow) -> bool:
    """MLPerf's loggers sum a run up in a line like those of its blocks, without a step."""
    return row.step is None and row.form in marked("sums_up")


def last_step(case: Case, attempt: int | None = None) -> LastStep | None:
    """Return the furthest step of the evidence, or None when no step line was found."""
    best: tuple[int, float, int, LastStep] | None = None
    for view in case.views:
        if (
            attempt is not None
            and (view.origin.attempt or 0) != attempt
            and view.origin.attempt is not None
        ):
            continue
        rows = step_rows(view)
        if not rows:
            continue
        row = next((r for r in reversed(rows) if not _only_a_rate(r)), rows[-1])
        line = view.line(row.line)
        if line is None:
            continue
        strong = 0 if row.form in WEAK_FORMS else 1
        found = LastStep(row.step, line, case.near_time(line))
        key = (strong, float(row.step if row.step is not None else -1), -view.index)
        if best is None or key > best[:3]:
            best = (*key, found)
    return best[3] if best else None


def survived(
    case: Case, observation: Observation, *, steps: int = 2, but: frozenset[int] = frozenset()
) -> bool:
    """Tell whether training went on after an observation: the step count rose by `steps` or more.

    `but` are lines of the same file that count something else, such as the bar of an evaluation. What
    stands under another heading of the file is compared by time, as another file is.
    """
    view = case.view(observation.line)
    here = view.section(observation.line.number)
    beside = [row for row in step_rows(view) if view.section(row.line) == here]
    until = next_run(case, observation)
    if until is not None:
        beside = [row for row in beside if row.line < until]
    if beside:
        counted = [row for row in beside if row.line not in but]
        own = _as_clocks_allow(case, counted, observation.line)
        number = observation.line.number
        return _rose(own, number, steps) or _next_epoch(case, view, observation, own)
    if observation.tier in _OF_PROGRAMS and not any(step_rows(other) for other in case.views):
        return _further_epochs(case, observation)
    when = case.not_after(observation.line)
    if when is None:
        return False
    # The line is in a file without steps (a kernel log): compare by time with the files that have.
    for other in case.views:
        rows = step_rows(other)
        if not rows:
            continue
        timed = [
            (case.near_time(line), row)
            for row in rows[-200:]
            if (line := other.line(row.line)) is not None
        ]
        if any(time is not None and time > when + _LONG_AFTER_S for time, _ in timed):
            return True  # nobody waits so long: the run went on, or was started anew
        after = [row for time, row in timed if time is not None and time > when + 1.0]
        before = [row for time, row in timed if time is not None and time <= when]
        if not after:
            continue
        first = max((r.step for r in before if r.step is not None), default=None)
        last = max((r.step for r in after if r.step is not None), default=None)
        if last is not None and (first is None or last - first >= steps) and len(after) >= steps:
            return True
    return False


def waits_outlived(case: Case) -> list[Observation]:
    """Return the lines of ranks that waited in vain and that training outlived by far: they explain nothing later."""
    last = last_step(case)
    if last is None or last.time is None:
        return []
    by_file: dict[str, _Climb] = {}
    known: dict[tuple[str, int], bool] = {}
    found = []
    for one in case.observations:
        when = case.time(one.line) if one.role is Role.CASCADE else None
        if when is None or last.time - when < _LONG_AFTER_S:
            continue
        view = case.view(one.line)
        if step_rows(view) and not view.headings():
            climb = by_file.get(view.name) or by_file.setdefault(view.name, _Climb(case, view))
            outlived = climb.goes_on(one.line.number, when)
        else:
            # Of what was printed in the same minute all was outlived, or none.
            key = (view.name, int(when // 60))
            if key not in known:
                known[key] = survived(case, one, steps=_OUTLIVED_STEPS)
            outlived = known[key]
        if outlived:
            found.append(one)
    return found


class _Climb:
    """How high the steps of one file go above and below each of its lines."""

    def __init__(self, case: Case, view: LogView) -> None:
        rows = [row for row in step_rows(view) if row.step is not None]
        self._lines = [row.line for row in rows]
        steps = [row.step or 0 for row in rows]
        self._above = [0, *accumulate(steps, max)]
        self._below = [*reversed(list(accumulate(reversed(steps), max))), 0]
        line = view.line(rows[-1].line) if rows else None
        self._ends = case.near_time(line) if line is not None else None

    def goes_on(self, number: int, when: float) -> bool:
        """Tell whether steps go on behind a line that was printed at a time, higher than before and for long."""
        if self._ends is None or self._ends - when < _LONG_AFTER_S:
            return False
        at = bisect_right(self._lines, number)
        return self._below[at] - self._above[at] >= _OUTLIVED_STEPS


def last_report(case: Case) -> LogLine | None:
    """Return the last line of a job without step lines that tells of an epoch's result or of other work done, or None."""
    told = ("epoch-with-result", "work-reported")
    for view in case.views:
        last = max((number for one in told for number in case.lines_with(view, one)), default=0)
        if last:
            return view.line(last)
    return None


def _next_epoch(
    case: Case, view: LogView, observation: Observation, rows: Sequence[StepRow]
) -> bool:
    """Tell whether all ranks began an epoch behind a line that only told of waiting, later than all that had begun before.

    What a process raised may stand above lines that were printed before it and came late.
    """
    number = observation.line.number
    if observation.role is not Role.CASCADE or looks_like_exception(observation.line.message):
        return False
    begins = phrase_in_bytes("epoch-begins")
    here = view.section(number)
    told = [
        (one, int(match["epoch"]))
        for one in case.lines_with(view, "epoch-begins")
        if view.section(one) == here and (match := begins.search(view.survey.kept[one]))
    ]
    before = max((epoch for one, epoch in told if one <= number), default=-1)
    behind = [one for one, epoch in told if one > number and epoch > before]
    return bool(behind) and any(row.line > behind[0] for row in rows)


def _further_epochs(case: Case, observation: Observation) -> bool:
    """Tell whether a file without step lines shows the results of two further epochs behind an event.

    Who hit the error must not be another rank than the one that prints them, they must go on where those before the
    event ended, and nothing may tell of an end in between: a summary of a failed run lists its epochs as well.
    """
    view, number = case.view(observation.line), observation.line.number
    here, rank = view.section(number), observation.line.rank
    if observation.role is Role.CASCADE:
        rank = None  # who waits in a collective goes on when all others do
    result = phrase_in_bytes("epoch-with-result")
    before, after = 0, list[tuple[int, int]]()
    for one in case.lines_with(view, "epoch-with-result"):
        match = result.search(view.survey.kept[one]) if view.section(one) == here else None
        line = view.line(one) if match is not None else None
        if match is None or line is None or (rank is not None and line.rank != rank):
            continue
        if one < number:
            before = max(before, int(match["epoch"]))
        else:
            after.append((int(match["epoch"]), one))
    epochs = [epoch for epoch, _ in after]
    rising = epochs == sorted(epochs) and len(set(epochs)) >= _FURTHER_EPOCHS
    if not rising or epochs[0] < before:
        return False
    harm = (Role.CASCADE, Role.TEARDOWN)
    return not any(
        (o.role in harm or "reports_failure" in o.marks)
        and o.leaf != observation.leaf
        and o.line.file == observation.line.file
        and number < o.line.number < after[-1][1]
        for o in case.observations
    )


def outlived(case: Case, line: LogLine) -> bool:
    """Tell whether the same file shows further steps behind a line, an exit for example.

    A process that is gone stops the others within a step or two; what ran beside the training does not.
    """
    return not without_outlived(case, [_Told(line)])


def without_outlived(case: Case, told: Iterable[_T]) -> list[_T]:
    """Return those of many that tell of a line which training did not outlive, in order."""
    heights: dict[tuple[str, int], _Heights] = {}
    found = []
    for one in told:
        view, number = case.view(one.line), one.line.number
        steps = view.survey.steps
        if steps and steps[-1].line > number:
            key = view.name, view.section(number)
            if key not in heights:
                heights[key] = _Heights.of(view, key[1])
            if heights[key].rise(case, one.line):
                continue
        found.append(one)
    return found


class _OfLine(Protocol):
    @property
    def line(self) -> LogLine: ...


_T = TypeVar("_T", bound=_OfLine)


@dataclass(frozen=True, slots=True)
class _Told:
    line: LogLine


@dataclass(frozen=True, slots=True)
class _Heights:
    """The rows under one heading of a file, and how high steps are above and below each of them.

    `_rose` asks the same of one line; here it is known of all lines at once.
    """

    rows: Sequence[StepRow]
    above: list[int | None]
    """By how many rows stand above a line, the highest step of the last run in them."""
    below: list[int | None]
    several: list[int]
    """Below it how many different steps there are, at most as many as are asked for."""

    @classmethod
    def of(cls, view: LogView, section: int) -> _Heights:
        rows = step_rows(view)
        if view.headings():
            rows = [row for row in rows if view.section(row.line) == section]
        above: list[int | None] = [None]
        first = rows[0].step if rows else None
        for row in rows:
            top = above[-1]
            if row.step is None or (
                top is not None and top >= row.step and not _anew(row.step, first)
            ):
                above.append(top)
            else:
                above.append(row.step)
        below: list[int | None] = [None]
        several, seen = [0], set[int]()
        for row in reversed(rows):
            top = below[-1]
            if row.step is not None and len(seen) < _OUTLIVED_STEPS:
                seen.add(row.step)
            below.append(
                top if row.step is None else max(row.step, row.step if top is None else top)
            )
            several.append(len(seen))
        return cls(rows, above, below[::-1], several[::-1])

    def rise(self, case: Case, line: LogLine) -> bool:
        """Tell whether steps go on behind a line."""
        at = bisect_right(self.rows, line.number, key=lambda row: row.line)
        if at == len(self.rows) or len(_as_clocks_allow(case, self.rows, line)) == at:
            return False
        top, reached = self.below[at], self.above[at]
        if top is None:
            return len(self.rows) - at >= _OUTLIVED_STEPS
        if reached is None:
            return self.several[at] >= _OUTLIVED_STEPS
        return top - reached >= _OUTLIVED_STEPS and self.several[at] >= 2


def _anew(step: int, first: int | None) -> bool:
    """Tell whether a run begins with this step in a file of which the first step is known."""
    return first is not None and step <= first


def _as_clocks_allow(case: Case, rows: Sequence[StepRow], line: LogLine) -> Sequence[StepRow]:
    """Return the rows without those below a line, where their clocks say that they were printed before it.

    Collectors export the newest lines first, and two streams of a process are often put together one after the other.
    """
    when, view = case.time(line), case.view(line)
    at = bisect_right(rows, line.number, key=lambda row: row.line)
    if when is None or at == len(rows):
        return rows
    last, first = rows[at - 1].step if at else None, rows[at].step
    if last is not None and first is not None and first > last:
        return rows  # the steps go on behind it: its clock is of another zone
    ends = (view.line(row.line) for row in (rows[at], rows[-1]))
    times = [case.time(one) for one in ends if one is not None]
    if any(time is None or time >= when - 1.0 for time in times):
        return rows
    return rows[:at]


def last_command(case: Case, view: LogView) -> int:
    """Return the number of the line on which a script begins the command that printed the last step, or 0."""
    rows = step_rows(view)
    if not rows:
        return 0
    begins = case.lines_with(view, "command-begins")
    return max((number for number in begins if number < rows[-1].line), default=0)


def looked_into(case: Case, line: LogLine) -> bool:
    """Tell whether somebody asks machines or processes about the job at a shell, in the same file behind a line."""
    asked = case.lines_with(case.view(line), "looks-into-a-job")
    return any(number > line.number for number in asked)


def ends_non_finite(case: Case) -> bool:
    """Tell whether the last loss that the job printed is NaN or infinite."""
    for view in case.views:
        losses = [row.loss for row in step_rows(view)[-20:] if row.loss is not None]
        if losses and not math.isfinite(losses[-1]):
            return True
    return False


def gradient_recovered(case: Case, line: LogLine) -> bool:
    """Tell whether a step line has a loss that is a number, and a later one of its rank such a loss and gradient norm.

    An optimizer that took a step with gradients that are no numbers has weights, and so losses, that are none either:
    the step was skipped.
    """
    view = case.view(line)
    rows = step_rows(view)
    at = bisect_left(rows, line.number, key=lambda row: row.line)
    if at < len(rows) and rows[at].line == line.number:
        loss, rank = rows[at].loss, rows[at].rank
    else:
        # A line that differs in a word from all others is no row of theirs.
        told = numbers()["loss"].search(view.survey.kept[line.number])
        loss, rank = (None if told is None else number_of(told[1])), line.rank
    later = (row for row in rows[at:] if row.line > line.number and row.rank == rank)
    return _is_number(loss) and any(
        _is_number(row.loss) and _is_number(row.grad_norm) for row in later
    )


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _of_this_run(rows: Sequence[StepRow]) -> Sequence[StepRow]:
    """Return the rows from where the steps last began again with the first number: another run was added to the file."""
    first = rows[0].step if rows else None
    if first is None:
        return rows
    again = max(i for i, row in enumerate(rows) if row.step is not None and row.step <= first)
    return rows[again:]


def _rose(rows: Sequence[StepRow], line: int, steps: int) -> bool:
    before = _of_this_run([r for r in rows if r.line <= line])
    after = [r for r in rows if r.line > line]
    if not after:
        return False
    with_steps = [r.step for r in after if r.step is not None]
    if not with_steps:
        return len(after) >= steps
    top = max(with_steps)
    reached = max((r.step for r in before if r.step is not None), default=None)
    if reached is None:
        return len(set(with_steps)) >= steps
    return top - reached >= steps and len(set(with_steps)) >= min(steps, 2)
