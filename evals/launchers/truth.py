"""The truth of each recorded run: type, line, rank, host, and whom nobody may accuse."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rerail.errors import EvidenceError
from rerail.evals.launchers.hosts import FIRST_ADDRESS, SUBNET
from rerail.evals.launchers.job import Launcher
from rerail.evals.launchers.scenarios import RANK, Scenario
from rerail.log_parsers.text import strip_escapes

TRUTH = "truth.json"
_ON = re.compile(r"\brank (?P<rank>\d+) of \d+ on (?P<host>[\w.-]+), pid")
_SEAT = re.compile(rf"\(ip=(?P<address>[\d.]+\.(?P<last>\d+)), pid=\d+\) world_rank={RANK},")


@dataclass(frozen=True, slots=True)
class Truth:
    """What is right for one run.

    Attributes:
        leaves: Types that are right; empty for a healthy run.
        rank: The culprit; None where the logs do not tell it, or where it is a host.
        culprits: Ranks that may be named without being wrong.
        host: The host at fault as the logs call it; None where they do not tell it.
        hosts: Names of that host that may be given without being wrong.
        lines: Right lines, from 1, by file.
    """

    leaves: tuple[str, ...]
    rank: int | None
    culprits: tuple[int, ...]
    host: str | None
    hosts: tuple[str, ...]
    lines: Mapping[str, tuple[int, ...]]

    @property
    def healthy(self) -> bool:
        """Tell whether nothing failed."""
        return not self.leaves


def truth_of(
    launcher: Launcher, scenario: Scenario, logs: Mapping[str, str], culprit_host: str, address: str
) -> dict[str, Any]:
    """Return the truth of a run as it is stored, with the first right line quoted."""
    if scenario.healthy:
        return {"leaves": [], "rank": None, "culprits": [], "host": None, "hosts": [], "lines": {}}
    lines: dict[str, list[int]] = {}
    quote = ""
    if not scenario.vanish and (seat := _SEAT.search("\n".join(logs.values()))):
        # Ray gives its ranks to hosts as it likes, and says so.
        culprit_host, address = launcher.hosts[int(seat["last"]) - FIRST_ADDRESS], seat["address"]
    # Others give ranks to hosts as they like too; the program says which it is and where.
    seats = {int(one["rank"]): one["host"] for one in _ON.finditer("\n".join(logs.values()))}
    if not scenario.vanish and seats.get(RANK) in launcher.hosts:
        culprit_host = seats[RANK]
        address = f"{SUBNET}.{FIRST_ADDRESS + launcher.hosts.index(culprit_host)}"
    for pattern in scenario.lines:
        for name, text in logs.items():
            for number, line in enumerate(_without_colours(text).split("\n"), 1):
                if re.search(pattern, line):
                    lines.setdefault(name, []).append(number)
                    quote = quote or line.strip()[:160]
        if lines:
            break
    whole_host = scenario.vanish
    first = RANK // launcher.per_host * launcher.per_host
    lost = sorted(rank for rank, host in seats.items() if host == culprit_host)
    culprits = (lost or list(range(first, first + launcher.per_host))) if whole_host else [RANK]
    nobody = scenario.name in launcher.no_rank
    host = None if scenario.name in launcher.no_host else culprit_host
    return {
        "leaves": [*scenario.leaves, *launcher.more_leaves.get(scenario.name, ())],
        "rank": None if whole_host or nobody else RANK,
        "culprits": culprits,
        "host": host,
        "hosts": [culprit_host, address],
        "lines": lines,
        "quote": quote,
    }


def _without_colours(text: str) -> str:
    return strip_escapes(text.encode()).decode()


def read_truths(folder: Path) -> dict[tuple[str, str], Truth]:
    """Read the truth of every recorded run.

    Raises:
        EvidenceError: The folder holds no recordings.
    """
    path = folder / TRUTH
    if not path.is_file():
        raise EvidenceError(
            f"no {TRUTH} in {str(folder)!r}",
            subject=str(folder),
            hint="rerail eval launchers --remake",
        )
    stored = json.loads(path.read_text())["runs"]
    return {
        (launcher, scenario): Truth(
            leaves=tuple(entry["leaves"]),
            rank=entry["rank"],
            culprits=tuple(entry["culprits"]),
            host=entry["host"],
            hosts=tuple(entry["hosts"]),
            lines={name: tuple(numbers) for name, numbers in entry["lines"].items()},
        )
        for launcher, runs in stored.items()
        for scenario, entry in runs.items()
    }
