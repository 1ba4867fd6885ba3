"""Everything that is known about one job, in one place, for the steps of the causal analysis."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from rerail.domain.evidence import LogLine, Observation, Role, Stream
from rerail.knowledge_base.job_facts import NOTHING, JobFacts
from rerail.knowledge_base.phrases import phrase_in_bytes
from rerail.late_dataclass import dataclass
from rerail.log_parsers.clocks import clock_offsets
from rerail.log_parsers.file_names import origin_of
from rerail.log_parsers.line_kinds import LineKinds
from rerail.log_parsers.sources import Problem
from rerail.log_parsers.step_numbers import StepRow
from rerail.log_parsers.view import LogView

if TYPE_CHECKING:
    from rerail.domain.series import StepSeries
    from rerail.tools.forecast.compare import Expected

_BELOW = 400  # lines


@dataclass(slots=True)
class Case:
    """The evidence of one job. `observations` are in evidence order (file, then line)."""

    views: Sequence[LogView]
    observations: list[Observation]
    counts: dict[str, int]
    problems: list[Problem] = field(default_factory=list)
    offsets: dict[str, float] = field(default_factory=dict)
    facts: JobFacts = NOTHING
    """What is exactly known of all lines, whatever was kept of them; empty where only a part of them counts."""
    only_rank: int | None = None
    """The rank that was asked for: what is told of others does not count."""
    expected: Expected | None = None
    """What a forecast says of the step time, where one was given."""
    good_runs: Sequence[Sequence[StepSeries]] = ()
    """Good runs of the same job, each as its series, where some were given."""
    missing_shards: int = 0
    """Parts of the logs that were to be read elsewhere and of which nothing came back."""
    kinds: LineKinds = field(default_factory=LineKinds)
    """Which kept lines differ in digits alone: what is looked for in all of them is looked for once in each kind."""
    withheld: list[str] = field(default_factory=list)
    """What may hold the lines of those that would have been named for their silence."""
    _by_name: dict[str, LogView] = field(default_factory=dict)
    _said: dict[str, bool] = field(default_factory=dict)
    _below: dict[tuple[str, int], float | None] = field(default_factory=dict)
    _events: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name = {view.name: view for view in self.views}
        if not self.offsets:
            self.offsets = clock_offsets(self.views)

    def says(self, name: str) -> bool:
        """Tell whether any line of the job carries a phrase."""
        known = self._said.get(name)
        if known is None:
            known = self._said[name] = any(any(self.lines_with(view, name)) for view in self.views)
        return known

    def lines_with(self, view: LogView, name: str) -> Iterator[int]:
        """Yield the numbers of the kept lines of a file that carry a phrase, as they stand in the file."""
        told, kept = phrase_in_bytes(name), view.survey.kept
        for number in self.kinds.with_pattern(view, told):
            if told.search(kept[number]):
                yield number

    def lines_that_may_hold(self, view: LogView, name: str) -> Iterator[int]:
        """Yield the numbers of the kept lines that may carry a phrase, in a file's order; no other line does."""
        return self.kinds.with_pattern(view, phrase_in_bytes(name))

    def view(self, line: LogLine) -> LogView:
        """Return the view a line comes from."""
        return self._by_name[line.file]

    def time(self, line: LogLine) -> float | None:
        """Return the wall-clock time of a line in seconds, corrected for its node's clock skew."""
        if line.time is None or line.clock != "wall":
            return None
        return line.time + self.offsets.get(line.file, 0.0)

    def near_time(self, line: LogLine) -> float | None:
        """Like `time`, or the time of the nearest stamped line above in the same file."""
        own = self.time(line)
        if own is not None:
            return own
        view = self._by_name.get(line.file)
        near = view.time_near(line.number) if view is not None else None
        return None if near is None else near + self.offsets.get(line.file, 0.0)

    def not_after(self, line: LogLine) -> float | None:
        """Return a time by which a line was written: its own, or that of the nearest stamped line below it."""
        own = self.time(line)
        view = self._by_name.get(line.file)
        if own is not None or view is None:
            return own
        key = line.file, line.number
        if key not in self._below:
            self._below[key] = self._time_below(view, line)
        return self._below[key]

    def _time_below(self, view: LogView, line: LogLine) -> float | None:
        here = view.section(line.number)
        for number in view.between(line.number + 1, line.number + _BELOW):
            if view.section(number) != here:
                return None  # another log, put below this one
            below = view.line(number)
            if below is not None and (time := self.time(below)) is not None:
                return time
        return None

    def unread_of(self, ranks: Collection[int]) -> str:
        """Return what was not read and may hold lines of one of these ranks, or nothing; who asks withholds their names.

        Nobody is named for what was not seen of a rank where it may stand in there. A file of another rank does not hold
        it, nor does one of a kernel, nor one that ends too early in which none of them is heard where whole ones are theirs.
        """
        found = ""
        if self.missing_shards:
            found = "of the parts that are missing"
        elif self.says("lines-left-out"):
            found = "of the lines that were left out"
        else:
            told = (p for p in self.problems if (p.cut or p.unread) and self._may_hold(p, ranks))
            found = next((f"of {problem.subject}" for problem in told), "")
        if found and found not in self.withheld:
            self.withheld.append(found)
        return found

    def _may_hold(self, problem: Problem, ranks: Collection[int]) -> bool:
        """Tell whether what was not read of a file may hold lines of one of these ranks."""
        view = next((one for one in self.views if problem.subject in one.names()), None)
        origin = origin_of(problem.subject) if view is None else view.origin
        if origin.stream is Stream.KERNEL:
            return False
        if origin.rank is not None or view is None or not ranks:
            return origin.rank in (None, *ranks)
        here = self.facts.ranks_heard_in([view.name])
        cut = {p.subject for p in self.problems if p.cut or p.unread}
        whole = [one.name for one in self.views if not cut.intersection(one.names())]
        return bool(here.intersection(ranks)) or not self.facts.ranks_heard_in(whole) >= set(ranks)

    def with_role(self, *roles: Role) -> list[Observation]:
        """Return the observations that have one of the roles."""
        return [o for o in self.observations if o.role in roles]

    def before(self, a: Observation, b: Observation) -> bool:
        """Tell whether `a` happened before `b`: by time where both have one, else by position."""
        time_a, time_b = self.time(a.line), self.time(b.line)
        if time_a is not None and time_b is not None and abs(time_a - time_b) >= 0.5:
            return time_a < time_b
        if self.one_stretch(a.line, b.line):
            return a.line.number < b.line.number
        near_a, near_b = self.near_time(a.line), self.near_time(b.line)
        if near_a is not None and near_b is not None and abs(near_a - near_b) >= 0.5:
            return near_a < near_b
        return a.order < b.order

    def known_before(self, a: Observation, b: Observation) -> bool:
        """Tell whether the clocks or one file say that `a` was before `b`; never the order of files."""
        time_a, time_b = self.time(a.line), self.time(b.line)
        if time_a is not None and time_b is not None and abs(time_a - time_b) >= 0.5:
            return time_a < time_b
        if self.one_stretch(a.line, b.line):
            return a.line.number < b.line.number
        gap = self.seconds_between(a, b)
        return gap is not None and gap >= 0.5

    def one_stretch(self, a: LogLine, b: LogLine) -> bool:
        """Tell whether two lines stand in one file and under one heading, so that their order is that of time.

        The state of an object and its events beneath, as they are described, are in no such order.
        """
        if a.file != b.file:
            return False
        view = self._by_name.get(a.file)
        if view is None:
            return True
        if view.section(a.number) != view.section(b.number):
            return False
        events = self._events.get(view.name)
        if events is None:
            events = self._events[view.name] = tuple(self.lines_with(view, "events-of-an-object"))
        first, last = sorted((a.number, b.number))
        return not any(first < number < last for number in events)

    def seconds_between(self, a: Observation, b: Observation) -> float | None:
        """Return how many seconds after `a` `b` happened at least, or None when no clock tells which came first.

        A line without a stamp was written between the stamps above and below it.
        """
        first_a, first_b = self.near_time(a.line), self.near_time(b.line)
        if first_a is None or first_b is None:
            return None
        last_a, last_b = self.not_after(a.line), self.not_after(b.line)
        if last_a is not None and first_b >= last_a:
            return first_b - last_a
        if last_b is not None and first_a >= last_b:
            return last_b - first_a
        return None

    def rows(self) -> list[tuple[LogView, StepRow]]:
        """Return all step rows with their view."""
        return [(view, row) for view in self.views for row in view.survey.steps]
