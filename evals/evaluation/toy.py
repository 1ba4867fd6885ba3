"""The toy of Acme's size: 63 data sets, their times as log-normal draws; by the planner's clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rerail.tools.evaluation.baselines import one_job_per_set, size_partitioned
from rerail.tools.evaluation.plan import plan_evaluation
from rerail.tools.evaluation.spec import EvaluationSpec, parse_evaluation

SETS = 63
LOCAL_LOAD_S = 1.0  # a 7B model, 14 GB over PCIe


@dataclass(frozen=True)
class Speedups:
    """How much longer the other rules take, one number per drawn toy, and the plan over its bound."""

    nodes: int
    over_jobs: list[float]
    over_sizes: list[float]
    over_bound: list[float]


def toy(seed: int, nodes: int, scale: float = 1.0, gpus: int = 8) -> EvaluationSpec:
    """Return one toy: median 240 s a set (sigma 0.8), 10 s to prepare, 40 s to load, metrics of 3 s.

    30 % of the sets have long metrics (median 40 s). `scale` multiplies all times.
    """
    rng = np.random.default_rng(seed)
    sets = {}
    for i in range(SETS):
        seconds = 240 * math.exp(0.8 * rng.standard_normal())
        metric = 40 * math.exp(0.8 * rng.standard_normal()) if rng.random() < 0.3 else 3.0
        sets[f"set{i:02d}"] = {
            "inference_s": scale * seconds, "prepare_s": scale * 10, "metric_s": scale * metric,
            "items": max(10, round(seconds * 2)),
        }  # fmt: skip
    return parse_evaluation(
        {
            "datasets": sets,
            "model": {
                "load_s": scale * 40,
                "local_load_s": scale * LOCAL_LOAD_S,
                "contention": 0.05,
            },
            "cluster": {"nodes": nodes, "gpus_per_node": gpus, "cpus_per_node": gpus},
        }
    )


def toy_speedups(count: int, nodes: int) -> Speedups:
    """Plan toys of many seeds and compare."""
    found = Speedups(nodes, [], [], [])
    for seed in range(count):
        spec = toy(seed, nodes)
        plan = plan_evaluation(spec)
        found.over_jobs.append(one_job_per_set(spec) / plan.makespan_s)
        found.over_sizes.append(size_partitioned(spec)[0] / plan.makespan_s)
        found.over_bound.append(plan.makespan_s / plan.bound_s)
    return found
