"""Goodput of the published Llama 3 setting, by formula and by event simulation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rerail.tools.forecast.job import Reliability, draw_runs
from rerail.tools.forecast.presets import preset

NODES = 2048
PUBLISHED = 0.90  # more than 90 % effective training time
RUN_S = 50 * 86_400.0


@dataclass(frozen=True)
class Goodput:
    """Costs in seconds, goodput by formula, by drawn runs, and by stepping through events."""

    checkpoint_s: float
    restart_s: float
    interval_s: float
    formula: float
    drawn: float
    stepped: float
    failures_54_days: float


def goodput_table(seed: int = 1) -> list[Goodput]:
    """Return rows for asynchronous to slow checkpoints and fast to slow restarts."""
    rate = preset("llama3_405b").failures_per_node_day
    rng = np.random.default_rng(seed)
    out = []
    for checkpoint_s in (1.0, 5.0, 10.0, 60.0):
        for restart_s in (120.0, 300.0, 600.0):
            known = Reliability(NODES, rate, checkpoint_s, restart_s, None)
            total, failures = draw_runs(np.full(400, RUN_S), known, rng)
            mean = float(total.mean())
            out.append(
                Goodput(
                    checkpoint_s, restart_s, known.interval_s, known.goodput(), RUN_S / mean,
                    RUN_S / stepped(known, rng), float(failures.mean()) * 54 * 86_400 / mean,
                )
            )  # fmt: skip
    return out


def stepped(known: Reliability, rng: np.random.Generator, runs: int = 40) -> float:
    """Return the mean time of runs that are stepped from failure to failure, in seconds."""
    times = []
    for _ in range(runs):
        clock, done = 0.0, 0.0
        failure = rng.exponential(known.mean_between_s)
        while done < RUN_S:
            length = min(known.interval_s, RUN_S - done)
            end = clock + length + (known.checkpoint_s if done + length < RUN_S else 0.0)
            if failure >= end:
                clock, done = end, done + length
                continue
            clock = failure
            failure = clock + rng.exponential(known.mean_between_s)
            while failure < clock + known.restart_s:
                clock = failure
                failure = clock + rng.exponential(known.mean_between_s)
            clock += known.restart_s
        times.append(clock)
    return float(np.mean(times))
