"""The labelled cases: ten root causes at several severities and sizes, and healthy jobs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rerail.evals.patterns.shape import Fault, FaultKind, Shape
from rerail.evals.patterns.simulate import COLLECT, COPY_IN, LAUNCH, NEXT, VOCABULARY, Job
from rerail.tools.profiles.expected import Expected, learn
from rerail.tools.profiles.function_table import short_name
from rerail.tools.profiles.matrix import ProfileMatrix, build_matrix
from rerail.tools.profiles.summarise import summarise

_S64, _S128 = Shape(8, 1, 8), Shape(16, 2, 4)
_S256, _S512 = Shape(8, 4, 8), Shape(64, 1, 8, lighter=True)
_MIXED, _S1024 = Shape(16, 4, 8, mixed=True), Shape(32, 4, 8)
_S3400 = Shape(425, 1, 8)
_PIPED = (_S128, _S256, _MIXED)
_EIGHT = (_S64, _S256, _S512, _MIXED)
_ANY = (_S64, _S128, _S256, _S512, _MIXED)


@dataclass(frozen=True)
class Case:
    """A job, its fault, and whether boxes of a healthy window of the same job are given.

    `expect` is localized, imbalance, healthy or no_reference.
    """

    name: str
    cause: str
    shape: Shape
    faults: tuple[Fault, ...] = ()
    learned: bool = False
    expect: str = "localized"


@dataclass(frozen=True, eq=False)
class Made:
    """A case as profiles, with the truth: functions that may be named, and all guilty workers."""

    matrix: ProfileMatrix
    expected: Expected | None
    functions: frozenset[str]
    workers: frozenset[int]


@dataclass(frozen=True)
class _Group:
    """Cases of one cause: every severity with every shape. `who` is one, node, all or nobody."""

    cause: str
    kind: FaultKind
    ratios: tuple[float, ...]
    shapes: tuple[Shape, ...]
    who: str = "nobody"
    learned: bool = False
    random: bool = False
    expect: str = "localized"


_COUNTED = (Shape(16, 2, 8, counters=True), Shape(32, 1, 4, counters=True))
_FAULTY = (
    _Group("slow link", "link", (1.5, 2.0, 4.0), (_S64, _S256, _MIXED), "one"),
    _Group("slow link, counters", "link", (1.5, 2.0, 4.0), _COUNTED, "one"),
    _Group("GPU clock", "clock", (1.1, 1.25, 1.6, 2.0), _ANY[1:], "one"),
    _Group("GPU clock", "clock", (1.1, 1.4), (_S256, _S512), "node"),
    _Group("PCIe", "pcie", (2.0, 4.0, 8.0), (_S128, _S256, _S512), "one"),
    _Group("NVLink", "nvlink", (1.5, 2.0, 4.0), _EIGHT, "node"),
    _Group("data loading, one rank", "loader", (0.2, 0.6), (_S64, _S128, _S512), "one"),
    _Group("data loading, stalls", "loader", (0.4, 1.0), (_S128, _S256), "all", random=True),
    _Group("data loading, all", "loader", (0.4, 1.0), (_S128, _S256)),
    _Group("CPU contention", "cpu", (2.0, 4.0), (_S64, _S256, _MIXED), "node"),
    _Group("garbage collection", "gc", (0.2, 0.6), (*_PIPED[:2], _S64, _S512), "all", random=True),
    _Group("sequence lengths", "lengths", (0.12, 0.25, 0.4), (_S64, _S128, _S256), expect="imbalance"),
    _Group("last stage", "last_stage", (1.2, 1.35, 1.7), _PIPED[:2], expect="imbalance"),
    _Group("code on all ranks", "code", (2.5, 5.0), (_S64, _S256, _S512), learned=True),
    _Group("GPU clock", "clock", (1.2,), (_S3400, _S1024), "one"),
    _Group("NVLink", "nvlink", (2.0,), (_S3400,), "node"),
    _Group("slow link", "link", (2.0,), (_S1024,), "one"),
    _Group(
        "GPU clock, roles unknown", "clock", (1.3,),
        (replace(_S256, labels=False), replace(_S128, labels=False)), "one",
    ),
    _Group("a fifth slow", "clock", (1.4,), (_S256,), "fifth"),
    _Group("half slow", "clock", (1.4,), (_S256,), "half", expect="no_reference"),
    _Group("half slow, learned", "clock", (1.4,), (_S256,), "half", learned=True),
)  # fmt: skip
_HEALTHY = (
    *((shape, False) for shape in (*_ANY, *_ANY, _S1024, _S3400)),
    *((replace(shape, jitter=0.06, spread=0.015), False) for shape in _ANY),
    *((replace(shape, labels=False), False) for shape in _ANY[:4]),
    *((shape, True) for shape in _ANY),
    (_COUNTED[1], False), (Shape(64, counters=True), False),
)  # fmt: skip


def all_cases(seed: int = 1) -> list[Case]:
    """Return the suite; another seed gives other workers, other noise."""
    random = np.random.default_rng(seed)
    rows: list[Case] = []
    for group in _FAULTY:
        for ratio in group.ratios:
            for shape in group.shapes:
                fault = Fault(group.kind, ratio, _workers(group.who, shape, random), group.random)
                name = f"{len(rows):03d} {group.cause} {ratio:g} {shape.workers}"
                shape = replace(shape, seed=seed * 1000 + len(rows))
                rows.append(Case(name, group.cause, shape, (fault,), group.learned, group.expect))
    # Two node types that run the same kernels at two speeds cannot be told from half a slow job.
    name = f"{len(rows):03d} healthy, two node types that nobody named {_MIXED.workers}"
    shape = replace(_MIXED, labels=False, seed=seed * 1000 + len(rows))
    rows.append(Case(name, "healthy, node types unknown", shape, (), expect="no_reference"))
    for shape, learned in _HEALTHY:
        name = f"{len(rows):03d} healthy {shape.workers}"
        shape = replace(shape, seed=seed * 1000 + len(rows))
        rows.append(Case(name, "healthy", shape, (), learned, "healthy"))
    return rows


def _workers(who: str, shape: Shape, random: np.random.Generator) -> tuple[int, ...]:
    count = shape.workers
    if who == "one":
        return (int(random.integers(count)),)
    if who == "node":
        first = int(random.integers(count // 8)) * 8
        return tuple(range(first, first + 8))
    return tuple(range(int(count * {"all": 1.0, "fifth": 0.2, "half": 0.5, "nobody": 0.0}[who])))


def profiles(job: Job) -> ProfileMatrix:
    """Return the matrix of a simulated job, by the same summaries as real traces."""
    shape = job.shape
    role = {
        shape.rank(d, s, t): shape.role(d, s)
        for d in range(shape.dp) for s in range(shape.pp) for t in range(shape.tp)
    }  # fmt: skip
    return build_matrix(
        summarise(trace, role=role[trace.rank or 0] if shape.labels else "")
        for trace in job.traces()
    )


def make(case: Case) -> Made:
    """Simulate a case and label it."""
    job = Job(case.shape, case.faults)
    expected = None
    if case.learned:
        windows = [
            (
                f"healthy window {i}",
                profiles(Job(replace(case.shape, seed=case.shape.seed + 500 + i))),
            )
            for i in range(2)
        ]
        expected = learn(windows)
    matrix = profiles(job)
    functions, workers = _truth(case, job, matrix)
    return Made(matrix, expected, functions, workers)


def _truth(case: Case, job: Job, matrix: ProfileMatrix) -> tuple[frozenset[str], frozenset[int]]:
    everybody = frozenset(range(case.shape.workers))
    if not case.faults:
        return frozenset(), frozenset()
    fault = case.faults[0]
    named = frozenset(fault.workers)
    if fault.random:
        named = frozenset(job.touched[fault.kind])
    match fault.kind:
        case "clock":
            return frozenset({"all compute kernels"}), named
        case "link":
            found = frozenset(f for f in matrix.functions if "[dp" in f)
            return found, named if case.shape.counters else _ring(case.shape, fault.workers[0])
        case "nvlink":
            return frozenset(f for f in matrix.functions if "[tp" in f), named
        case "pcie":
            return frozenset({COPY_IN}), named
        case "loader":
            return frozenset({NEXT}), named or everybody
        case "cpu":
            return frozenset((*LAUNCH, "(nothing ran)")), named
        case "gc":
            return frozenset({COLLECT}), named
        case "lengths":
            return frozenset(f for f in matrix.functions if "flash" in f), everybody
        case "last_stage":
            last = job.ranks[-1].ravel().tolist()
            return frozenset({short_name(VOCABULARY)}), frozenset(last)
        case _:
            found = frozenset(f for f in matrix.functions if "layer_norm" in f)
            return found, named or everybody


def _ring(shape: Shape, worker: int) -> frozenset[int]:
    tensor, stage = worker % shape.tp, worker // shape.tp % shape.pp
    return frozenset(shape.rank(d, stage, tensor) for d in range(shape.dp))
