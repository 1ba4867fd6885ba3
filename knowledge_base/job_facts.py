"""The exact facts of a whole job: which ranks showed what and how often, whatever lines were kept of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from rerail.knowledge_base.placement.names import short
from rerail.log_parsers.facts import ANY, Shapes, Writer, time_in
from rerail.log_parsers.prefixes import Origin
from rerail.log_parsers.view import LogView
from rerail.log_parsers.voices import NUMBERS_SAID, says_its_number

Seat = tuple[str, int]
"""A host, without its domain, and a local rank there."""
_NOBODY = Writer(None, None, None)
_LATEST = 2_000  # streams of a file whose last lines are asked for their time


class JobFacts:
    """Facts of all files together, by the ids of rules; empty where nothing was read or only a part counts."""

    def __init__(self, views: Sequence[LogView] = (), rule_ids: Sequence[str] = ()) -> None:
        self._views = views
        self._numbers = {name: at for at, name in enumerate(rule_ids)}
        self._files: defaultdict[str, list[int]] = defaultdict(list)
        for at, view in enumerate(views):
            self._files[view.name].append(at)
        self._writers = lru_cache(maxsize=None)(self._read_writers)
        self._shapes: defaultdict[Origin, Shapes] = defaultdict(dict)
        self._seats: Mapping[Seat, int] = {}

    def __bool__(self) -> bool:
        return bool(self._views)

    def _read_writers(self, index: int) -> list[Writer]:
        view = self._views[index]
        found = view.survey.facts.writers(view.origin, self._shapes[view.origin])
        if self._seats:
            found = [
                replace(w, rank=self.rank_at(w.node, w.local_rank)) if w.rank is None else w
                for w in found
            ]
        collector = view.origin.collected_from
        if collector is None or collector == view.origin.node:
            return found
        # Where all lines of a job were collected its ranks need not run.
        return [Writer(w.rank, w.local_rank, None) if w.node == collector else w for w in found]

    def seat(self, seats: Mapping[Seat, int]) -> None:
        """Take the ranks at local ranks of hosts for those of writers whose labels tell no more, if all are known."""
        unseated = {
            seat
            for at in range(len(self._views))
            for writer in self._writers(at)
            if writer.rank is None and (seat := _seat(writer.node, writer.local_rank)) is not None
        }
        if unseated and unseated <= seats.keys():
            self._seats = {seat: seats[seat] for seat in unseated}
            self._writers.cache_clear()

    def rank_at(self, node: str | None, local_rank: int | None) -> int | None:
        """Return the rank at a local rank of a host, where all writers are known so; else None."""
        seat = _seat(node, local_rank) if self._seats else None
        return None if seat is None else self._seats.get(seat)

    def _asked(self, rule_ids: Iterable[str]) -> list[int]:
        return [self._numbers[name] for name in rule_ids if name in self._numbers]

    def ranks(self, rule_ids: Iterable[str]) -> set[int]:
        """Return the ranks of which a line shows any of the rules' patterns."""
        asked = self._asked(rule_ids)
        return self._ranks(asked) if asked else set()

    def numbers_said(self, rule_ids: Iterable[str]) -> set[int]:
        """Return what numbers in their group writers say they have in lines of the rules that no label marks.

        Where labels tell local ranks of some of them there are none: such numbers would be those of the others alone.
        """
        asked, found = self._asked(rule_ids), set[int]()
        for at, view in enumerate(self._views) if asked else ():
            facts = view.survey.facts
            for stream in facts.streams(*asked):
                writer = self._writers(at)[stream]
                if writer.rank is not None:
                    continue
                if writer.local_rank is not None:
                    return set()
                said = says_its_number().search(facts.examples[stream][:NUMBERS_SAID])
                if said is not None:
                    found.add(int(said[1]))
        return found

    def untold(self, rule_ids: Iterable[str]) -> dict[str, int]:
        """Return by file how many lines of the rules are of writers of which neither rank nor number is known."""
        asked, found = self._asked(rule_ids), dict[str, int]()
        for at, view in enumerate(self._views) if asked else ():
            facts, writers = view.survey.facts, self._writers(at)
            found[view.name] = found.get(view.name, 0) + sum(
                one.count
                for one in facts.of(*asked)
                if writers[one.stream].rank is None
                and (
                    writers[one.stream] != _NOBODY
                    or says_its_number().search(facts.examples[one.stream][:NUMBERS_SAID]) is None
                )
            )
        return found

    def ranks_heard(self) -> set[int]:
        """Return the ranks of which there is any line."""
        return self._ranks([ANY])

    def ranks_heard_in(self, files: Collection[str]) -> set[int]:
        """Return the ranks of which there is any line in these files."""
        return self._ranks([ANY], files)

    def _ranks(self, signatures: list[int], files: Collection[str] | None = None) -> set[int]:
        found: set[int] = set()
        for at, view in enumerate(self._views):
            if files is not None and view.name not in files:
                continue
            streams = view.survey.facts.streams(*signatures)
            if streams:
                writers = self._writers(at)
                found |= {rank for s in streams if (rank := writers[s].rank) is not None}
        return found

    def last_steps(self, file: str) -> dict[int, tuple[int, int]]:
        """Return by rank the line and the step of the last step that it told in one file.

        Nothing where the file tells no writers apart.
        """
        found: dict[int, tuple[int, int]] = {}
        for at in self._files.get(file, ()):
            told = self._views[at].survey.facts.last_steps
            writers = self._writers(at) if told else []
            for stream, line, step in told:
                if (rank := writers[stream].rank) is not None:
                    found[rank] = max((line, step), found.get(rank, (0, 0)))
        return found

    def nodes_of_ranks(self) -> dict[int, set[str]]:
        """Return the hosts of each rank that its labels name."""
        seen: dict[int, set[str]] = {}
        for at in range(len(self._views)):
            for writer in self._writers(at):
                if writer.rank is not None and writer.node:
                    seen.setdefault(writer.rank, set()).add(writer.node)
        return seen

    def count(self, rule_ids: Iterable[str]) -> int:
        """Return how many lines show any of the rules' patterns."""
        asked = self._asked(rule_ids)
        return sum(view.survey.facts.total(*asked) for view in self._views) if asked else 0

    def first_and_last_time(
        self, rule_ids: Iterable[str], offset: Callable[[str], float]
    ) -> tuple[float, float] | None:
        """Return when the rules' patterns were first and last shown, in seconds since the epoch, or None."""
        return self._first_and_last(self._asked(rule_ids), offset)

    def span(self, offset: Callable[[str], float]) -> float | None:
        """Return how many seconds lie between the first and the last time that any lines tell, or None."""
        times = self._first_and_last([ANY], offset)
        return times[1] - times[0] if times is not None else None

    def _first_and_last(
        self, signatures: list[int], offset: Callable[[str], float]
    ) -> tuple[float, float] | None:
        times: list[float] = []
        for view in self._views:
            facts = view.survey.facts
            windows = [one.first_window for one in facts.earliest(_LATEST, *signatures)]
            windows += [one.last_window for one in facts.latest(_LATEST, *signatures)]
            times += _times(windows, view.year, offset(view.name))
        return (min(times), max(times)) if times else None

    def end(self, offset: Callable[[str], float]) -> float | None:
        """Return the latest time that any line tells, in seconds since the epoch, or None."""
        times: list[float] = []
        for view in self._views:
            shown = view.survey.facts.latest(_LATEST, ANY)
            windows = [one.last_window for one in shown] + [view.survey.facts.last_stamped]
            times += _times(windows, view.year, offset(view.name))
        return max(times, default=None)


def _seat(node: str | None, local_rank: int | None) -> Seat | None:
    return None if node is None or local_rank is None else (short(node), local_rank)


def _times(windows: Iterable[bytes], year: int, offset: float) -> list[float]:
    return [t + offset for window in windows if (t := time_in(window, year=year)) is not None]


NOTHING = JobFacts()
