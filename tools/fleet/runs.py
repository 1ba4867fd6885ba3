"""The record of jobs of a site, as Slurm's accounting prints it (`sacct -P`)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from rerail.errors import ClusterError, EvidenceError
from rerail.tools.clusters.host_list import expand
from rerail.tools.clusters.slurm_records import state_word

COLUMNS = ("JobID", "User", "State", "Submit", "Start", "End", "NodeList", "AllocTRES")
COMMAND = (
    "SLURM_TIME_FORMAT=%s sacct -a -X -D -P -S now-365days -o "
    "JobID,User,State,Submit,Start,End,NodeList,AllocTRES"
)
MOST_BYTES = 2 << 30
_GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)")


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt of one job that has ended. Times are seconds since the epoch; attempts count from 0."""

    job: str
    attempt: int
    user: str
    state: str
    nodes: tuple[str, ...]
    gpus: int
    submit: float
    start: float
    end: float

    @property
    def hours(self) -> float:
        """Wall-clock hours."""
        return (self.end - self.start) / 3600.0

    @property
    def gpu_hours(self) -> float:
        """Hours times GPUs."""
        return self.hours * self.gpus


@dataclass(frozen=True, slots=True)
class Runs:
    """The attempts of a record, in the order of their starts, and how many rows were no ended attempt."""

    runs: tuple[Run, ...]
    passed_over: int


def read_runs(path: Path) -> Runs:
    """Read the output of `sacct -P` with its headings; rows of jobs that did not start are passed over.

    Raises:
        EvidenceError: It cannot be read, is larger than 2 GiB, or lacks a column.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise EvidenceError(f"{path} is larger than 2 GiB", subject=str(path), hint=COMMAND)
        with path.open(encoding="utf-8", errors="replace") as lines:
            return _rows(path, lines)
    except OSError as error:
        raise EvidenceError(
            f"{path}: {error.strerror}", subject=str(path), hint=f"{COMMAND} > {path}"
        ) from None


def _rows(path: Path, lines: Iterator[str]) -> Runs:
    heads = next(lines, "").rstrip("\n").split("|")
    lacking = [one for one in COLUMNS if one not in heads]
    if lacking:
        raise EvidenceError(
            f"{path} line 1: no column {', '.join(lacking)}", subject=str(path), hint=COMMAND
        )
    found, passed_over = [], 0
    nodes_of: dict[str, tuple[str, ...]] = {}
    for line in lines:
        values = line.rstrip("\n").split("|")
        if values == [""]:
            continue
        run = _run(dict(zip(heads, values, strict=False)), nodes_of)
        if run is None:
            passed_over += 1
        else:
            found.append(run)
    return Runs(_numbered(found), passed_over)


def _run(row: Mapping[str, str], nodes_of: dict[str, tuple[str, ...]]) -> Run | None:
    times = [_seconds(row.get(name, "")) for name in ("Submit", "Start", "End")]
    submit, start, end = times
    text = row.get("NodeList", "")
    if start is None or end is None or end <= start or not row.get("JobID"):
        return None
    if text not in nodes_of:
        try:
            nodes_of[text] = expand(text)
        except ClusterError:
            nodes_of[text] = ()
    gpus = _GPUS.search(row.get("AllocTRES", ""))
    return Run(
        job=row["JobID"],
        attempt=0,
        user=row.get("User", ""),
        state=state_word(row.get("State", "")),
        nodes=nodes_of[text],
        gpus=int(gpus[1]) if gpus else 0,
        submit=start if submit is None else submit,
        start=start,
        end=end,
    )


def _seconds(text: str) -> float | None:
    """Return a time of sacct: seconds since the epoch, or ISO in this machine's zone."""
    if text.isdigit():
        return float(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:  # Unknown, None
        return None


def _numbered(found: list[Run]) -> tuple[Run, ...]:
    """Return attempts with their numbers: of one job they follow each other in time."""
    seen: dict[str, int] = defaultdict(int)
    numbered = []
    for run in sorted(found, key=lambda one: (one.start, one.job)):
        number = seen[run.job]
        seen[run.job] = number + 1
        numbered.append(replace(run, attempt=number) if number else run)
    return tuple(numbered)
