"""Samples of GPU counters beside traces: which resource of which GPU was used how far, and when.

Files called `*.counters.csv`, `.txt` or `.prom` in the folder of a trace: `nvidia-smi --query-gpu=timestamp,
index,... --format=csv -lms 100`, `dcgmi dmon -e 1002,1005,... -d 100 | ts %.s` (it prints no time itself), or
scrapes of dcgm-exporter with time stamps. Which counter is which resource is a table (`counters.yaml`).
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rerail.cached_yaml import load_cached
from rerail.errors import EvidenceError
from rerail.tools.dcgm.exposition import read_exposition
from rerail.tools.profiles.trace import Samples, Trace

TABLE = Path(__file__).with_name("counters.yaml")
SUFFIXES = (".counters.csv", ".counters.txt", ".counters.prom")
_MOST_BYTES = 512 << 20
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_DMON = re.compile(r"^(?P<time>\d{9,11}(?:\.\d+)?|\d{4}-\S+)?\s*GPU (?P<gpu>\d+)\s+(?P<values>.+)$")


class _Counter(NamedTuple):
    resource: str
    scale: float
    rank: int


@dataclass
class CounterFile:
    """What one file holds: by host (empty where it does not say) and GPU, samples of counters.

    `at` maps (host, gpu) to counter name to (Unix seconds, value) rows.
    """

    path: Path
    at: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    @property
    def host(self) -> str:
        """Return what the file is called before its suffix."""
        return next(self.path.name.removesuffix(s) for s in SUFFIXES if self.path.name.endswith(s))


@lru_cache(maxsize=1)
def _counters() -> dict[str, _Counter]:
    found: dict[str, _Counter] = {}
    for rank, row in enumerate(load_cached(TABLE)["counters"]):
        for name in row["names"]:
            found[name.lower()] = _Counter(row["resource"], float(row["scale"]), rank)
    return found


def with_counters(trace: Trace) -> Trace:
    """Return the trace with the samples of its GPU, if counter files beside it hold any; else a note says why."""
    folder = Path(trace.source).parent
    paths = [path for path in sorted(folder.glob("*.counters.*")) if path.name.endswith(SUFFIXES)]
    if not paths or trace.rank is None or not len(trace.start_us):
        return trace
    if not np.isfinite(trace.epoch_us):
        note = "counters were left out: the trace does not say when it was taken"
        return replace(trace, notes=[*trace.notes, note])
    try:
        files = [read_counters(path, path.stat().st_mtime_ns) for path in paths]
    except (EvidenceError, OSError) as error:
        return replace(trace, notes=[*trace.notes, f"counters were left out: {error}"])
    samples, note = _of_rank(files, trace)
    notes = [*trace.notes, note] if note else trace.notes
    return replace(trace, samples=samples, notes=notes)


@lru_cache(maxsize=64)
def read_counters(path: Path, changed: int = 0) -> CounterFile:
    """Read one file; `changed` is its time, so that a file that grew is read again.

    Raises:
        EvidenceError: it holds no counter of the table, or samples without a time.
    """
    found = CounterFile(path)
    with path.open("rb") as stream:
        text = stream.read(_MOST_BYTES).decode("utf-8", "replace")
    lines = text.splitlines()
    if path.name.endswith(".prom"):
        rows: Iterable[tuple[str, str, str, float | None, float]] = _scrapes(text)
    elif any(line.lstrip("0123456789.: -TZ+").startswith("#Entity") for line in lines[:50]):
        rows = _dmon(lines)
    else:
        rows = _smi(lines)
    timeless = 0
    for host, gpu, name, time, value in rows:
        if name.lower() not in _counters() or not np.isfinite(value):
            continue
        if time is None:
            timeless += 1
            continue
        found.at[host, gpu][name.lower()].append((time, value))
    if not found.at:
        why = "its samples have no time" if timeless else "it holds no counter of the table"
        raise EvidenceError(
            f"{path}: {why}", subject=str(path),
            hint="nvidia-smi --query-gpu=timestamp,index,utilization.gpu --format=csv -lms 100, "
            "or dcgmi dmon -e 1002,1005 -d 100 | ts %.s",
        )  # fmt: skip
    return found


def _scrapes(text: str) -> Iterator[tuple[str, str, str, float | None, float]]:
    for sample in read_exposition(text):
        labels = sample.labels
        yield (
            labels.get("Hostname", ""), labels.get("gpu", ""), sample.name, sample.time_s,
            sample.value,
        )  # fmt: skip


def _dmon(lines: Iterable[str]) -> Iterator[tuple[str, str, str, float | None, float]]:
    names: list[str] = []
    for line in lines:
        head = line.partition("#Entity")
        if head[1]:
            names = head[2].split()
            continue
        match = _DMON.match(line.strip())
        if match is None:
            continue
        time = _time(match["time"]) if match["time"] else None
        for name, value in zip(names, match["values"].split(), strict=False):
            if _NUMBER.fullmatch(value):
                yield "", match["gpu"], name, time, float(value)


def _smi(lines: list[str]) -> Iterator[tuple[str, str, str, float | None, float]]:
    reader = csv.reader(lines, skipinitialspace=True)
    header = [name.strip().lower().split(" [")[0] for name in next(reader, [])]
    for cells in reader:
        row = dict(zip(header, (cell.strip() for cell in cells), strict=False))
        gpu = row.get("index", row.get("gpu", ""))
        time = _time(row.get("timestamp", ""))
        for name, cell in row.items():
            number = _NUMBER.match(cell)
            if name not in ("timestamp", "index", "gpu") and number:
                yield row.get("hostname", ""), gpu, name, time, float(number[0])


def _time(text: str) -> float | None:
    """Return Unix seconds; a stamp without a zone is of this machine's zone (TZ), as nvidia-smi prints it."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text.replace("/", "-")).timestamp()
    except ValueError:
        return None


def _of_rank(files: Iterable[CounterFile], trace: Trace) -> tuple[Samples | None, str]:
    """Return the samples of the rank's GPU: number n of the host with n GPUs is that of rank modulo n."""
    rank = trace.rank
    assert rank is not None
    mine: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for file in files:
        for (host, gpu), series in file.at.items():
            if trace.host and _short(host or file.host) == _short(trace.host):
                mine.setdefault(gpu, {}).update(series)
    gpus = sorted(mine, key=lambda gpu: (not gpu.isdigit(), int(gpu) if gpu.isdigit() else 0, gpu))
    if not gpus:
        return None, f"no counters of the trace's host ({trace.host or 'not named'}) were found"
    gpu = gpus[rank % len(gpus)]
    samples = _samples(mine[gpu], trace)
    if samples is None:
        return None, f"the counters of GPU {gpu} of {trace.host} are of another time"
    return samples, f"counters of GPU {gpu} of {trace.host}, taken for rank {rank}"


def _samples(series: dict[str, list[tuple[float, float]]], trace: Trace) -> Samples | None:
    chosen: dict[str, list[tuple[str, _Counter]]] = defaultdict(list)
    for name in series:
        counter = _counters()[name]
        chosen[counter.resource].append((name, counter))
    times = sorted({time for rows in series.values() for time, _ in rows})
    at = np.array(times) * 1e6 - trace.epoch_us
    begin, end = trace.start_us.min(), (trace.start_us + trace.dur_us).max()
    inside = (at >= begin) & (at <= end)
    if not inside.any():
        return None
    place = {time: n for n, time in enumerate(times)}
    use = {}
    for resource, found in chosen.items():
        best = min(counter.rank for _, counter in found)
        total = np.full(len(times), np.nan)
        for name, counter in found:
            if counter.rank != best:
                continue
            for time, value in series[name]:
                n = place[time]
                total[n] = np.nansum([total[n], value * counter.scale])
        use[resource] = np.clip(total[inside], 0.0, 1.0)
    return Samples(at[inside], use)


def _short(host: str) -> str:
    return host.split(".")[0].lower()
