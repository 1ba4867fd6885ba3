"""Which rank is slow, from timers that every rank prints about its own work.

In a synchronous job every rank's step takes as long as the slowest one's, so step times do not
tell; the parts that a rank does alone (data, forward, backward, optimizer) do. A rank whose own
part grew while the others' did not is the slow one. Time inside collectives is waiting, and left
out.
"""

from __future__ import annotations

from collections import defaultdict

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase, says
from rerail.late_dataclass import dataclass
from rerail.log_parsers.middle import median

GROWTH = 1.5
"""A rank's own part must have grown by this factor against its own past and against its peers."""
MIN_RANKS = 3


@dataclass(frozen=True, slots=True)
class SlowRank:
    """The rank whose own part grew, which part, and its size in seconds before and after."""

    rank: int
    part: str
    before: float
    after: float

    def describe(self) -> str:
        """Say it in one clause."""
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
            for match in phrase("part-timer").finditer(line.message):
                if not says("timer-of-waiting", match["name"]):
                    value = float(match["value"])
                    value = value / 1000.0 if match["unit"] == "ms" else value
                    side[match["name"]][line.rank].append(value)
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
