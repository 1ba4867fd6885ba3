"""Lines in which a framework itself names slow ranks: NVRx reports and Megatron's min/max lines.

NVRx (nvidia-resiliency-ext, straggler callback) prints a table of ` Rank=17 Node=n05 Score=0.61`
and a warning; a score is reference time over own time, 1 is healthy. Megatron-LM's
`--log-straggler` prints `MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: 3468.20ms/0 | ...`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rerail.lazy_patterns import lazy

_SCORE = lazy(r"Rank=(\d+)\s+Node=(\S+)\s+Score=([0-9.]+)")
_WARNING = lazy(
    r"STRAGGLER DETECTION WARNING: Some (GPUs|sections) have worse (relative|individual) "
    r"performance\. Affected ranks: (.*)"
)
_LOWEST = lazy(r"Ranks with lowest\s+Etpt ?\(TF\): ([0-9.]+)/(\d+), ?([0-9.]+)/\d+")
_EXTREME = lazy(r"(Mn|Mx)(\w+)/Rnk: ([0-9.]+)([A-Za-z/]*)/(\d+)")
BELOW, _APART = 0.75, 1.1
_HOT_C = 88.0
WORDS = (b"/Rnk: ", b" Score=", b"STRAGGLER DETECTION", b"Ranks with lowest")
"""One of these stands in every line that names a slow rank."""
_WORDS = tuple(word.decode() for word in WORDS)
COMPARES = b"MxRtt/Rnk"
"""It stands in Megatron's line that compares the extremes of all ranks."""


@dataclass(frozen=True, slots=True)
class StragglerNote:
    """One rank named slow by the framework: `score` is reference over own time, or None."""

    rank: int
    node: str | None
    score: float | None
    metric: str
    line: int
    text: str
    throttled: bool = False
    """Its clock is far below that of the fastest GPU, or it is the hottest and too hot, by the same report."""


def straggler_notes(lines: Iterable[tuple[int, str]]) -> list[StragglerNote]:
    """Return the ranks that NVRx scores below 0.75, or that Megatron shows far from the best.

    `lines` are (line number, text). A Megatron line always names an extreme rank; it counts only
    when the round-trip or throughput of that rank is 10 % or more from the other extreme, or,
    in its list of the lowest, from the next.
    """
    out: list[StragglerNote] = []
    for number, text in lines:
        if not any(word in text for word in _WORDS):
            continue
        for rank, node, score in _SCORE.findall(text):
            if float(score) < BELOW:
                out.append(StragglerNote(int(rank), node, float(score), "score", number, text))
        warned = _WARNING.search(text)
        if warned:
            for rank in re.findall(r"\b(\d+)\b", warned.group(3)):
                out.append(StragglerNote(int(rank), None, None, warned.group(2), number, text))
        out += _megatron(number, text)
        if (lowest := _LOWEST.search(text)) and float(lowest[3]) >= _APART * float(lowest[1]) > 0:
            score = float(lowest[1]) / float(lowest[3])
            out.append(StragglerNote(int(lowest[2]), None, score, "Etpt", number, text))
    return out


def _megatron(number: int, text: str) -> list[StragglerNote]:
    found: dict[str, dict[str, tuple[float, int]]] = {}
    for end, metric, value, _unit, rank in _EXTREME.findall(text):
        found.setdefault(metric, {})[end] = (float(value), int(rank))
    out = []
    clock = found.get("Clk", {})
    low = (
        {clock["Mn"][1]} if len(clock) == 2 and clock["Mn"][0] <= BELOW * clock["Mx"][0] else set()
    )
    heat = found.get("Tmp", {}).get("Mx", (0.0, 0))
    hot = {heat[1]} if heat[0] >= _HOT_C else set()
    for metric, slow_end in (("Rtt", "Mx"), ("Etpt", "Mn")):
        both = found.get(metric, {})
        if len(both) == 2 and both["Mn"][0] > 0:
            ratio = both["Mx"][0] / both["Mn"][0]
            if ratio >= _APART:
                rank = both[slow_end][1]
                slow = rank in low or rank in hot
                out.append(StragglerNote(rank, None, 1 / ratio, metric, number, text, slow))
    return out
