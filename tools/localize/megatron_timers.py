"""Megatron-LM's timers of all ranks in a log: own work of each rank by logging interval.

Source: megatron/core/timers.py. Blocks `times across ranks (ms):` name ranks; the `(min, max)` and `max`
blocks of the other options name none, so that nobody can be blamed from them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

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
Block = dict[str, dict[int, float]]


def looks_like_timers(head: str) -> bool:
    """Tell whether a text holds a block of Megatron's timers."""
    return "across ranks (ms):" in head


def read_timers(path: Path) -> Records | None:
    """Read the blocks of one log, or return None where it holds none that says anything."""
    with path.open("rb") as stream:
        raw = stream.read(_MOST_BYTES)
    if b"across ranks (ms):" not in raw:
        return None
    blocks, spread = _blocks(raw.decode("utf-8", "replace").splitlines())
    table = timing_table()["megatron"]
    own, waiting = list(table["own"]), frozenset(table["waiting"])
    records = Records(str(path))
    records.device_times = False  # the process's time around its kernels
    used: dict[int, set[str]] = defaultdict(set)
    whole = [block for block in blocks if any(name in block for name in own)]
    for block in whole:
        for name, ranks in block.items():
            for rank in ranks:
                if name in waiting:
                    used[rank].add(name)
    for block in whole:
        for rank in {rank for name in own for rank in block.get(name, {})}:
            spent = sum(block.get(name, {}).get(rank, 0.0) for name in own)
            records.self_s[rank].append(spent * _MS)
    for rank in records.self_s:
        records.role[rank] = ", ".join(sorted(used[rank])) or "no pipeline"
    records.notes += _notes(spread, own) if not whole else []
    return records if records.self_s or records.notes else None


def _blocks(lines: Iterable[str]) -> tuple[list[Block], dict[str, float]]:
    """Return the blocks that name ranks, and the largest ratio of each timer of those that do not."""
    blocks: list[Block] = []
    spread: dict[str, float] = {}
    mode, name = "", ""
    for line in lines:
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
                blocks[-1].setdefault(name, {})[int(rank["rank"])] = float(rank["ms"])
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
