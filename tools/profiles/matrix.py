"""The summaries of a job as arrays: functions by workers, and collectives by group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rerail.domain.series import FloatArray, IntArray
from rerail.errors import EvidenceError
from rerail.tools.profiles.channels import BETA, Float32
from rerail.tools.profiles.roles import unknown_roles
from rerail.tools.profiles.summary import CollectiveRuns, Summary

_MOST_CELLS = 400_000_000


@dataclass(frozen=True, eq=False)
class CollectiveTable:
    """One collective of one kind of group: a row for each member of each group.

    `worker` (n,) and `group` (n,) number workers and process groups; `runs_s` (n, K) are durations of
    the first K executions, NaN where fewer were seen; `bytes` (n,) per call, NaN where unknown.
    """

    function: str
    kind: str
    size: int
    bytes: FloatArray
    calls_per_step: float
    worker: IntArray
    group: IntArray
    runs_s: Float32


@dataclass(frozen=True, eq=False)
class ProfileMatrix:
    """One window of one job.

    `pattern` (F, 3, W) holds beta, mu and sigma; `by_step_s` (F, S, W) what each function owned in each
    step, or None where it would not fit. `counted` (F,) says that mu comes from counters. `role`
    (W,) numbers `role_names`. `step_s` and `own_s` are (S, W). Missing functions have beta 0. `cpu_wait_s` (S, W) is how
    long the thread of the loop was ready and had no core, None where a profile does not say it. `unread` is how
    many files and shards were left out.
    """

    ranks: IntArray
    world: int
    role: IntArray
    role_names: tuple[str, ...]
    role_known: bool
    host: tuple[str, ...]
    functions: tuple[str, ...]
    work: tuple[str, ...]
    counted: NDArray[np.bool_]
    pattern: Float32
    by_step_s: Float32 | None
    step_s: FloatArray
    own_s: FloatArray
    device: bool
    collectives: tuple[CollectiveTable, ...]
    notes: tuple[str, ...] = ()
    cpu_wait_s: FloatArray | None = None
    unread: int = 0

    @property
    def whole(self) -> bool:
        """Tell whether every rank of the job is here; of an unknown world, whether nothing was left out."""
        return len(self.ranks) >= self.world if self.world else not self.unread

    @property
    def steps(self) -> int:
        """Return how many steps all workers share."""
        return len(self.step_s)

    @property
    def step_time_s(self) -> float:
        """Return the median step time over steps and workers."""
        return float(np.median(self.step_s))

    def of_class(self, *names: str) -> IntArray:
        """Return the numbers of the functions of these classes."""
        return np.array([i for i, work in enumerate(self.work) if work in names], dtype=np.int64)

    def seconds(self, functions: IntArray) -> FloatArray:
        """Return the seconds per step that functions own together, (S, W)."""
        assert self.by_step_s is not None
        total: FloatArray = self.by_step_s[functions].sum(axis=0, dtype=np.float64)
        return total

    def without(self, left_out: tuple[str, ...]) -> ProfileMatrix:
        """Return the same window with a note in front for each file or shard that was left out."""
        return replace(self, notes=left_out + self.notes, unread=self.unread + len(left_out))

    def of_ranks(self, who: Sequence[int] | IntArray) -> tuple[int, ...]:
        """Return global ranks of worker numbers, in order."""
        return tuple(sorted(int(r) for r in self.ranks[np.asarray(who, dtype=np.int64)]))


def build_matrix(summaries: Iterable[Summary]) -> ProfileMatrix:
    """Put the summaries of one job side by side; their order does not matter.

    Raises:
        EvidenceError: there are none, a rank is given twice, or they are not of one run.
    """
    rows = sorted(summaries, key=lambda one: one.rank)
    notes = _check(rows)
    names: dict[str, int] = {}
    work: list[str] = []
    for one in rows:
        for pattern in one.functions:
            if names.setdefault(pattern.function, len(names)) == len(work):
                work.append(pattern.work)
    steps = min(len(one.step_s) for one in rows)
    shape = (len(names), 3, len(rows))
    values = np.full(shape, np.nan, dtype=np.float32)
    values[:, BETA] = 0.0
    fits = len(names) * steps * len(rows) <= _MOST_CELLS
    by_step = np.zeros((len(names), steps, len(rows)), dtype=np.float32) if fits else None
    counted = np.zeros(len(names), dtype=bool)
    for w, one in enumerate(rows):
        at = [names[pattern.function] for pattern in one.functions]
        values[at, :, w] = [(p.beta, p.mu, p.sigma) for p in one.functions]
        counted[[i for i, p in zip(at, one.functions, strict=True) if p.source == "counter"]] = True
        if by_step is not None:
            by_step[at, :, w] = [p.by_step_s[:steps] for p in one.functions]
    known = all(one.role for one in rows)
    role, role_names = _roles(rows, values) if known else unknown_roles(values, work)
    return ProfileMatrix(
        np.array([one.rank for one in rows], dtype=np.int64), max(one.world for one in rows), role,
        role_names, known, tuple(one.host for one in rows), tuple(names), tuple(work), counted,
        values, by_step, np.array([one.step_s[:steps] for one in rows]).T,
        np.array([one.own_s[:steps] for one in rows]).T, all(one.device for one in rows),
        tuple(_tables(rows)), tuple(notes), _waits(rows, steps),
    )  # fmt: skip


def _waits(rows: list[Summary], steps: int) -> FloatArray | None:
    if any(len(one.cpu_wait_s) < steps for one in rows):
        return None
    return np.array([one.cpu_wait_s[:steps] for one in rows]).T


def _check(rows: list[Summary]) -> list[str]:
    if not rows:
        raise EvidenceError("no profile summary was given", hint="rerail localize FOLDER")
    notes = [note for one in rows for note in one.notes]
    for before, after in pairwise(rows):
        if before.rank == after.rank:
            raise EvidenceError(
                f"{after.source}: rank {after.rank} was already read from {before.source}",
                subject=after.source, hint="give one profile per rank, of one run",
            )  # fmt: skip
    _one_job(rows)
    world = max(one.world for one in rows)
    if world > len(rows):
        notes.append(f"profiles of {world - len(rows)} of {world} ranks are missing")
    if len({one.device for one in rows}) > 1:
        few = [one.rank for one in rows if not one.device]
        notes.append(
            f"ranks {', '.join(map(str, few[:8]))} have no GPU events, the others have: only process "
            "times are compared"
        )
    return notes


def _one_job(rows: list[Summary]) -> None:
    """Refuse profiles of different runs or windows: their difference says nothing of a worker."""
    checks: tuple[tuple[str, str, Callable[[Summary], object]], ...] = (
        ("job", "jobs", lambda one: one.job), ("world", "world sizes", lambda one: one.world or ""),
        ("first step", "profiled windows", lambda one: one.first_step),
    )  # fmt: skip
    for name, plural, get in checks:
        seen: dict[object, Summary] = {}
        for one in rows:
            if get(one) != "":
                seen.setdefault(get(one), one)
        if len(seen) > 1:
            (a, one), (b, other) = list(seen.items())[:2]
            raise EvidenceError(
                f"{other.source}: {name} {b}, but {a} in {one.source}: profiles of different {plural} "
                "cannot be compared",
                subject=other.source, hint="give the profiles of one window of one run",
            )  # fmt: skip


def _roles(rows: list[Summary], values: Float32) -> tuple[IntArray, tuple[str, ...]]:
    names = tuple(sorted({one.role for one in rows}))
    at = {name: i for i, name in enumerate(names)}
    return np.array([at[one.role] for one in rows], dtype=np.int64), names


def _tables(rows: list[Summary]) -> list[CollectiveTable]:
    places: dict[str, list[tuple[int, CollectiveRuns]]] = {}
    for w, one in enumerate(rows):
        for runs in one.collectives:
            places.setdefault(runs.function, []).append((w, runs))
    steps = max(len(rows[0].step_s), 1)
    out = []
    for function, seen in places.items():
        most = max(len(runs.durations_s) for _, runs in seen)
        took = np.full((len(seen), most), np.nan, dtype=np.float32)
        names: dict[str, int] = {}
        group = [names.setdefault(runs.group, len(names)) for _, runs in seen]
        for i, (_, runs) in enumerate(seen):
            took[i, : len(runs.durations_s)] = runs.durations_s
        first = seen[0][1]
        out.append(
            CollectiveTable(
                function, first.kind, first.size or len(seen) // max(len(names), 1),
                np.array([runs.bytes for _, runs in seen]),
                float(np.median([runs.calls for _, runs in seen])) / steps,
                np.array([w for w, _ in seen], dtype=np.int64), np.array(group, dtype=np.int64), took,
            )
        )  # fmt: skip
    return out
