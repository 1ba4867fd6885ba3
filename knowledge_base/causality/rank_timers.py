"""Which rank is slow, from timers that every rank prints about its own work.

In a synchronous job every rank's step takes as long as the slowest one's, so step times do not
tell; the parts that a rank does alone (data, forward, backward, optimizer) do. A rank whose own
part grew while the others' did not is the slow one. Time inside collectives is waiting, and left
out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase, phrase_in_bytes, says
from rerail.knowledge_base.placement.own_words import number_in
from rerail.late_dataclass import dataclass
from rerail.log_parsers.middle import median

GROWTH = 1.5
"""A rank's own part must have grown by this factor against its own past and against its peers."""
MIN_RANKS = 3
_APART, _APART_S = 3.0, 1.0
"""How much longer, and how many seconds longer, the part of an odd rank takes than that of any other."""
_ROUNDS = 2
_MOST_LINES = 2_000


@dataclass(frozen=True, slots=True)
class SlowRank:
    """The rank whose own part grew, which part, and its size in seconds before and after."""

    rank: int
    part: str
    before: float
    after: float
    line: LogLine | None = None
    """Where it is read, where no change of the steps is known."""

    def describe(self) -> str:
        """Say it in one clause."""
        if self.line is not None:
            return (
                f"rank {self.rank} is the slow one: its {self.part} takes {self.after:.4g} s,"
                f" that of the others {self.before:.4g} s at most"
            )
        return (
            f"rank {self.rank} is the slow one: its {self.part} grew from {self.before:.4g} s to {self.after:.4g} s, "
            "the other ranks' did not"
        )


def slow_rank(case: Case, onset: LogLine) -> SlowRank | None:
    """Return the rank that became slow at `onset`, or None when the timers do not single one out."""
    when = case.near_time(onset)
    if when is None:
        return None
    before: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    after: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for view in case.views:
        for number in view.numbers[:20_000]:
            text = view.text(number) or ""
            if "time" not in text and "_ms" not in text:
                continue
            line = view.line(number)
            if line is None or line.rank is None:
                continue
            time = case.time(line)
            if time is None:
                continue
            side = after if time >= when else before
            for match, seconds in part_timers(line):
                side[match["name"]][line.rank].append(seconds)
    best: SlowRank | None = None
    for part, ranks in after.items():
        found = _grown(part, before.get(part, {}), ranks)
        if found is not None and (
            best is None or found.after - found.before > best.after - best.before
        ):
            best = found
    return best


def _grown(
    part: str, before: dict[int, list[float]], after: dict[int, list[float]]
) -> SlowRank | None:
    # The slow phase may be a part of what follows the onset, so the worst reading after it counts.
    worst = {rank: max(values) for rank, values in after.items()}
    usual = {rank: median(before[rank]) for rank in worst if before.get(rank)}
    if len(worst) < MIN_RANKS or len(usual) < MIN_RANKS:
        return None
    ranked = sorted(worst, key=lambda r: worst[r])
    top, second = ranked[-1], ranked[-2]
    if top not in usual:
        return None
    grown = worst[top] >= GROWTH * max(usual[top], 1e-9)
    apart = worst[top] >= GROWTH * max(worst[second], 1e-9)
    return SlowRank(top, part, usual[top], worst[top]) if grown and apart else None


def odd_rank(case: Case) -> SlowRank | None:
    """Return the one rank whose own part takes far longer than that of all others, where no change of the steps is known.

    The readings of a part are taken in rounds, one of each rank; it must be the same rank in several. The first rank has
    work of its own (logs, checkpoints, data for the others) and is never meant.
    """
    found: dict[int, SlowRank] = {}
    for part, rounds in _rounds(case).items():
        odd = [one for readings in rounds if (one := _apart(part, readings)) is not None]
        ranks = {one.rank for one in odd}
        many = any(len(readings) > MIN_RANKS for readings in rounds)
        if many and len(odd) >= _ROUNDS and len(ranks) == 1 and 0 not in ranks:
            best = max(odd, key=lambda one: one.after)
            found.setdefault(best.rank, best)
    return next(iter(found.values())) if len(found) == 1 else None


def part_timers(line: LogLine) -> Iterator[tuple[re.Match[str], float]]:
    """Yield the timers of a line that tell what its rank does alone, with their times in seconds."""
    for match in phrase("part-timer").finditer(line.message):
        if not says("timer-of-waiting", match["name"]):
            yield match, float(match["value"]) / (1000.0 if match["unit"] == "ms" else 1.0)


def _rank_of(line: LogLine) -> int | None:
    return line.rank if line.rank is not None else number_in(line.message, "rank")


def is_time(message: str, match: re.Match[str]) -> bool:
    """Tell whether a timer's value is printed as a time is, and neither counts nor is a share."""
    behind = message[match.end() : match.end() + 2]
    return says("is-a-time", match[0]) and not behind[:1].isalnum() and behind.strip()[:1] != "%"


def _rounds(case: Case) -> dict[str, list[dict[int, tuple[float, LogLine]]]]:
    """Return by part the readings of all ranks, round after round: a rank that comes again begins the next."""
    rounds: dict[str, list[dict[int, tuple[float, LogLine]]]] = defaultdict(list)
    near, timer = phrase_in_bytes("near-part-timer"), phrase("part-timer")
    for view in case.views:
        for number in view.numbers[:_MOST_LINES]:
            held = near.search(view.survey.kept[number]) and timer.search(view.text(number) or "")
            line = view.line(number) if held else None
            rank = _rank_of(line) if line is not None else None
            if line is None or rank is None:
                continue
            for match, seconds in part_timers(line):
                if not is_time(line.message, match):
                    continue
                mine = rounds[match["name"]]
                if not mine or rank in mine[-1]:
                    mine.append({})
                mine[-1][rank] = (seconds, line)
    return rounds


def _apart(part: str, readings: Mapping[int, tuple[float, LogLine]]) -> SlowRank | None:
    ranked = sorted(readings, key=lambda rank: readings[rank][0])
    if len(ranked) < 2:
        return None
    (value, line), (second, _) = readings[ranked[-1]], readings[ranked[-2]]
    if value < _APART * second or value - second < _APART_S:
        return None
    return SlowRank(ranked[-1], part, second, value, line)
