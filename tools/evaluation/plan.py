"""Which trial runs what, in which order: long sets split, short ones packed, long metrics first.

A trial is a process that loads the model once from the node's memory and infers its pieces one by
one; outputs go to files, so that the metric of a set runs on a CPU while the GPU goes on. Of several
ways of splitting, the one with the shortest expected makespan is taken (`expected`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rerail.tools.evaluation.spec import EvaluationSpec

_SPLITS = (math.inf, 2.0, 1.5, 1.0, 0.7, 0.5, 0.35, 0.25)
_BATCHES = (math.inf, 1.0, 0.5)
_MOST_PIECES = 250_000  # of all ways that are tried, some seconds


@dataclass(frozen=True)
class Piece:
    """Items `first` to `last` (exclusive) of a data set, with the seconds it should take on a GPU."""

    dataset: str
    first: int
    last: int
    seconds: float


@dataclass(frozen=True)
class Trial:
    """Pieces that one process infers in order after it has loaded the model."""

    pieces: tuple[Piece, ...]

    @property
    def seconds(self) -> float:
        """Return the inference and preparation time, in seconds."""
        return sum(piece.seconds for piece in self.pieces)


@dataclass(frozen=True)
class Slot:
    """When what runs where: a trial on a GPU or a metric on a CPU, in seconds from the start."""

    kind: str
    name: str
    place: int
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Plan:
    """Trials in the order in which free GPUs take them, and what is expected of them, in seconds."""

    trials: tuple[Trial, ...]
    makespan_s: float
    slots: tuple[Slot, ...] = field(default=(), repr=False)
    bound_s: float = 0.0


def plan_evaluation(
    spec: EvaluationSpec,
    left: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    factor: Mapping[str, float] | None = None,
    scored: Collection[str] = (),
    loaded: bool = False,
) -> Plan:
    """Plan all data sets, or what is left of them.

    `left` are the item ranges still to infer; `factor` multiplies the prior time of a set by what was
    seen of it; metrics of the `scored` sets are done; `loaded` nodes hold the model already.
    """
    ranges = (
        {name: ((0, one.items),) for name, one in spec.datasets.items()} if left is None else left
    )
    per_item = {
        name: (factor or {}).get(name, 1.0) * one.inference_s / one.items
        for name, one in spec.datasets.items()
    }
    work = {
        name: sum(last - first for first, last in parts) * per_item[name]
        for name, parts in ranges.items()
    }
    mean = (sum(work.values()) + sum(spec.datasets[n].prepare_s for n in work)) / spec.gpus
    best: Plan | None = None
    tried: set[tuple[int, ...]] = set()
    weighed = 0
    for split in _SPLITS:
        numbers = _numbers(ranges, per_item, split * mean)
        if numbers in tried or (tried and weighed + sum(numbers) > _MOST_PIECES):
            continue
        tried.add(numbers)
        counts: set[int] = set()
        queues = _dealt(spec, _pieces(spec, ranges, per_item, numbers))
        for batch in _BATCHES:
            trials = _trials(spec, queues, batch * mean)
            if len(trials) in counts:
                continue  # shorter batches cut nothing further
            counts.add(len(trials))
            weighed += sum(numbers)
            slots = expected(spec, trials, scored, loaded)
            makespan = max((slot.end_s for slot in slots), default=0.0)
            if best is None or makespan < best.makespan_s - 1e-9:
                best = Plan(tuple(trials), makespan, tuple(slots), _bound(spec, work))
    assert best is not None
    return best


def _numbers(
    ranges: Mapping[str, Sequence[tuple[int, int]]], per_item: Mapping[str, float], longest: float
) -> tuple[int, ...]:
    """Return into how many pieces each range is cut, so that none takes longer than `longest` seconds."""
    out = []
    for name, parts in ranges.items():
        for first, last in parts:
            seconds = (last - first) * per_item[name]
            number = math.ceil(seconds / longest) if 0 < longest < seconds else 1
            out.append(max(1, min(number, last - first)))
    return tuple(out)


def _pieces(
    spec: EvaluationSpec,
    ranges: Mapping[str, Sequence[tuple[int, int]]],
    per_item: Mapping[str, float],
    numbers: Iterable[int],
) -> list[Piece]:
    out = []
    of_range = iter(numbers)
    for name, parts in ranges.items():
        prepare = spec.datasets[name].prepare_s
        for first, last in parts:
            number = next(of_range)
            cuts = [first + round(i * (last - first) / number) for i in range(number + 1)]
            out += [
                Piece(name, a, b, prepare + (b - a) * per_item[name])
                for a, b in pairwise(cuts)
                if b > a
            ]
    return out


def _dealt(spec: EvaluationSpec, pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Give pieces to GPUs longest first, then order each GPU's by metric."""
    loads = [(0.0, gpu) for gpu in range(min(spec.gpus, len(pieces)))]
    queues: list[list[Piece]] = [[] for _ in loads]

    def weight(piece: Piece) -> tuple[float, float]:
        metric = spec.datasets[piece.dataset].metric_s
        return -(piece.seconds + metric), -piece.seconds

    for piece in sorted(pieces, key=weight):
        load, gpu = loads[0]
        queues[gpu].append(piece)
        heapq.heapreplace(loads, (load + piece.seconds, gpu))
    for mine in queues:
        mine.sort(key=lambda piece: -spec.datasets[piece.dataset].metric_s)
    return queues


def _trials(spec: EvaluationSpec, queues: Sequence[Sequence[Piece]], batch_s: float) -> list[Trial]:
    """Cut each GPU's pieces into trials.

    A GPU's list is one trial where `batch_s` is infinite (one load); shorter trials let a GPU that is
    free early take over.
    """
    trials: list[Trial] = []
    for mine in queues:
        batch: list[Piece] = []
        held = 0.0
        for piece in mine:
            batch.append(piece)
            held += piece.seconds
            if held >= batch_s:
                trials.append(Trial(tuple(batch)))
                batch, held = [], 0.0
        if batch:
            trials.append(Trial(tuple(batch)))

    def urgency(trial: Trial) -> float:
        metric = max(spec.datasets[piece.dataset].metric_s for piece in trial.pieces)
        return -(trial.seconds + metric)

    return sorted(trials, key=urgency)


def expected(
    spec: EvaluationSpec,
    trials: Sequence[Trial],
    scored: Collection[str] = (),
    loaded: bool = False,
) -> list[Slot]:
    """Return when everything runs if all times are as given: trials by free GPU, metrics by free CPU.

    The metric of a set starts when its last piece is done.
    """
    begin = 0.0 if loaded or (not spec.model.path and not spec.model.load_s) else spec.model.load_s
    gpus = [(begin, gpu) for gpu in range(min(spec.gpus, len(trials)))]
    slots: list[Slot] = []
    done: dict[str, float] = {}
    for trial in trials:
        free, gpu = heapq.heappop(gpus)
        clock = free + spec.model.local_load_s
        for piece in trial.pieces:
            end = clock + piece.seconds
            name = f"{piece.dataset}[{piece.first}:{piece.last}]"
            slots.append(Slot("inference", name, gpu, clock, end))
            done[piece.dataset] = max(done.get(piece.dataset, 0.0), end)
            clock = end
        heapq.heappush(gpus, (clock, gpu))
    for name in spec.datasets:
        done.setdefault(name, 0.0)
    ready = [(at, name) for name, at in done.items() if name not in scored]
    cpus = [(0.0, cpu) for cpu in range(min(spec.cpus, len(ready)))]
    for at, name in sorted(ready, key=lambda one: (one[0], -spec.datasets[one[1]].metric_s)):
        free, cpu = heapq.heappop(cpus)
        start = max(free, at)
        end = start + spec.datasets[name].metric_s
        slots.append(Slot("metric", name, cpu, start, end))
        heapq.heappush(cpus, (end, cpu))
    return slots


def _bound(spec: EvaluationSpec, work: Mapping[str, float]) -> float:
    """Return a time that no plan can better: all inference over all GPUs, or one load and metric."""
    start = spec.model.load_s + spec.model.local_load_s
    metric = max((spec.datasets[name].metric_s for name in work), default=0.0)
    return start + max(sum(work.values()) / spec.gpus, metric)
