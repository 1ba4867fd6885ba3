"""What others do with the same data sets: one job per set, and the rule of OpenCompass.

Both load the model from shared storage in every job, together with what else loads on the node. A
coupled job keeps its GPU while the metric is computed; OpenCompass runs metrics after all inference.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Sequence

from rerail.tools.evaluation.plan import Piece, Trial
from rerail.tools.evaluation.spec import EvaluationSpec

MAX_TASK_SIZE = 40_000
GENERATE_COEFFICIENT = 20


def one_job_per_set(spec: EvaluationSpec) -> float:
    """Return the makespan, in seconds: a job per set in the order given, metric on the held GPU."""
    trials = [
        Trial((Piece(name, 0, one.items, one.prepare_s + one.inference_s),))
        for name, one in spec.datasets.items()
    ]
    held = [spec.datasets[trial.pieces[0].dataset].metric_s for trial in trials]
    return _run_jobs(spec, trials, held)


def size_partitioned(
    spec: EvaluationSpec,
    max_task_size: int = MAX_TASK_SIZE,
    coefficient: int = GENERATE_COEFFICIENT,
) -> tuple[float, list[Trial]]:
    """Return the makespan in seconds and the tasks of OpenCompass' SizePartitioner (heuristic).

    The cost of a set is its items, times the coefficient where it generates. Sets above the largest
    size are split evenly, smaller ones are packed in falling order until the next does not fit.
    """
    chunks: list[tuple[float, Piece]] = []
    order = sorted(spec.datasets, key=lambda name: -_cost(spec, name, coefficient))
    for name in order:
        one = spec.datasets[name]
        cost = _cost(spec, name, coefficient)
        per_item = one.inference_s / one.items
        if cost <= max_task_size:
            seconds = one.prepare_s + one.inference_s
            chunks.append((cost, Piece(name, 0, one.items, seconds)))
            continue
        step = max(1, max_task_size // (coefficient if one.generates else 1))
        step = math.ceil(one.items / math.ceil(one.items / step))
        for first in range(0, one.items, step):
            last = min(first + step, one.items)
            piece = Piece(name, first, last, one.prepare_s + (last - first) * per_item)
            chunks.append((float(max_task_size), piece))
    chunks.sort(key=lambda chunk: -chunk[0])
    trials: list[Trial] = []
    current: list[Piece] = []
    size = 0.0
    for index, (cost, piece) in enumerate(chunks):
        size += cost
        current.append(piece)
        if index == len(chunks) - 1 or size + chunks[index + 1][0] > max_task_size:
            trials.append(Trial(tuple(current)))
            current, size = [], 0.0
    inferred = _run_jobs(spec, trials, [0.0] * len(trials))
    cpus = [0.0] * min(spec.cpus, len(order))
    for name in order:
        heapq.heappush(cpus, heapq.heappop(cpus) + spec.datasets[name].metric_s)
    return inferred + max(cpus), trials


def _cost(spec: EvaluationSpec, name: str, coefficient: int) -> float:
    one = spec.datasets[name]
    return float(one.items * (coefficient if one.generates else 1))


def _run_jobs(spec: EvaluationSpec, trials: Sequence[Trial], held: Sequence[float]) -> float:
    """Return the makespan of jobs that load over shared storage; free GPUs take the next one."""
    per = spec.cluster.gpus_per_node
    free = [(0.0, gpu) for gpu in range(min(spec.gpus, len(trials)))]
    loading: dict[int, list[float]] = defaultdict(list)
    last = 0.0
    for trial, after in zip(trials, held, strict=True):
        at, gpu = heapq.heappop(free)
        node = gpu // per
        loading[node] = [end for end in loading[node] if end > at]
        together = len(loading[node]) + 1
        loaded = at + spec.model.load_s * (1.0 + spec.model.contention * (together - 1))
        loading[node].append(loaded)
        end = loaded + trial.seconds + after
        last = max(last, end)
        heapq.heappush(free, (end, gpu))
    return last
