"""Megatron-LM's timers of all ranks in a log: own work of each rank by logging interval.

Source: megatron/core/timers.py. Blocks `times across ranks (ms):` name ranks; the `(min, max)` and `max`
blocks of the other options name none, so that nobody can be blamed from them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rerail.tools.localize.records import Records
from rerail.tools.localize.timing_table import timing_table

_ALL = re.compile(r"(?<!\) )(?<!max )\btimes? across ranks \(ms\):\s*$")
_SPREAD = re.compile(r"\(min, max\) time across ranks \(ms\):\s*$")
_NAME = re.compile(r"^(?:.*?\]: ?)?\s*(?P<name>[a-z][\w-]*):\s*$")
_RANK = re.compile(r"^(?:.*?\]: ?)?\s*rank +(?P<rank>\d+): (?P<ms>\d+(?:\.\d+)?)\s*$")
_PAIR = re.compile(
    r"^(?:.*?\]: ?)?\s*(?P<name>[a-z][\w/-]*) \.*: \((?P<min>[\d.]+), (?P<max>[\d.]+)\)\s*$"
)
_MS = 1e-3
_MOST_BYTES = 256 << 20
_UNEVEN = 1.1
_APART = 1.5
"""A rank's own work against that of its closest peer, from which on it stands out."""
_PEERS, _LAST = 3, 3


@dataclass(frozen=True, slots=True)
class Timer:
    """What one rank spent in one timer, in milliseconds, and the number of its line."""

    ms: float
    line: int


@dataclass(frozen=True, slots=True)
class Outlier:
    """The rank whose own work took far longer than that of all its peers, in milliseconds."""

    rank: int
    name: str
    ms: float
    others_ms: float
    line: int


Block = dict[str, dict[int, Timer]]


def looks_like_timers(head: str) -> bool:
    """Tell whether a text holds a block of Megatron's timers."""
    return "across ranks (ms):" in head


def read_timers(path: Path) -> Records | None:
    """Read the blocks of one log, or return None where it holds none that says anything."""
    with path.open("rb") as stream:
        raw = stream.read(_MOST_BYTES)
    if b"across ranks (ms):" not in raw:
        return None
    blocks, spread = _blocks(enumerate(raw.decode("utf-8", "replace").splitlines(), 1))
    own, waiting = _kinds()
    records = Records(str(path))
    records.device_times = False  # the process's time around its kernels
    whole = [block for block in blocks if any(name in block for name in own)]
    for block in whole:
        for rank in {rank for name in own for rank in block.get(name, {})}:
            spent = sum(one[rank].ms for name in own if rank in (one := block.get(name, {})))
            records.self_s[rank].append(spent * _MS)
    used = _used(whole, waiting)
    for rank in records.self_s:
        records.role[rank] = ", ".join(sorted(used[rank])) or "no pipeline"
    records.notes += _notes(spread, own) if not whole else []
    return records if records.self_s or records.notes else None


def outlier(lines: Iterable[tuple[int, str]]) -> Outlier | None:
    """Return the one rank that the last blocks show far behind all ranks of its pipeline stage, or None.

    `lines` are (line number, text). Stages do different work: only ranks that wait in the same timers are peers.
    """
    blocks, _ = _blocks(lines)
    own, waiting = _kinds()
    whole = [block for block in blocks if any(name in block for name in own)]
    used = _used(whole, waiting)
    found = [_behind(block, own, used) for block in whole[-_LAST:]]
    return found[-1] if found and len({one.rank if one else None for one in found}) == 1 else None


def _behind(block: Block, own: Iterable[str], used: Mapping[int, set[str]]) -> Outlier | None:
    found: list[Outlier] = []
    for name in own:
        timers = block.get(name, {})
        stages: dict[frozenset[str], list[int]] = defaultdict(list)
        for rank in timers:
            stages[frozenset(used.get(rank, ()))].append(rank)
        for ranks in stages.values():
            *others, top = sorted(ranks, key=lambda rank: timers[rank].ms)
            if len(others) >= _PEERS and timers[top].ms >= _APART * timers[others[-1]].ms > 0:
                usual = median(timers[rank].ms for rank in others)
                found.append(Outlier(top, name, timers[top].ms, usual, timers[top].line))
    return found[0] if len({one.rank for one in found}) == 1 else None


def _kinds() -> tuple[list[str], frozenset[str]]:
    """Return the timers of a rank's own work, and those in which it waits."""
    table = timing_table()["megatron"]
    return list(table["own"]), frozenset(table["waiting"])


def _used(blocks: Iterable[Block], waiting: frozenset[str]) -> dict[int, set[str]]:
    """Return in which timers each rank waits: that tells the pipeline stages apart."""
    used: dict[int, set[str]] = defaultdict(set)
    for block in blocks:
        for name in waiting & block.keys():
            for rank in block[name]:
                used[rank].add(name)
    return used


def _blocks(lines: Iterable[tuple[int, str]]) -> tuple[list[Block], dict[str, float]]:
    """Return the blocks that name ranks, and the largest ratio of each timer of those that do not."""
    blocks: list[Block] = []
    spread: dict[str, float] = {}
    mode, name = "", ""
    for number, line in lines:
        if _SPREAD.search(line):
            mode = "spread"
            continue
        if _ALL.search(line):
            mode, name = "all", ""
            blocks.append({})
            continue
        if mode == "spread":
            pair = _PAIR.match(line)
            if pair is None:
                mode = ""
                continue
            low, high = float(pair["min"]), float(pair["max"])
            if low > 0:
                spread[pair["name"]] = max(spread.get(pair["name"], 1.0), high / low)
        elif mode == "all":
            rank, title = _RANK.match(line), _NAME.match(line)
            if rank is not None and name:
                timer = Timer(float(rank["ms"]), number)
                blocks[-1].setdefault(name, {})[int(rank["rank"])] = timer
            elif title is not None:
                name = title["name"]
            else:
                mode = ""
    return blocks, spread


def _notes(spread: dict[str, float], own: list[str]) -> list[str]:
    uneven = [(spread[name], name) for name in own if spread.get(name, 1.0) >= _UNEVEN]
    return [
        f"{name} takes {ratio:.2f} times as long on the slowest rank as on the fastest; which rank that is "
        "Megatron prints with --timing-log-option all"
        for ratio, name in sorted(uneven, reverse=True)
    ]
