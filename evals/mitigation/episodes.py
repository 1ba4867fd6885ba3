"""Bar M2, second half: escalation over many slow phases, beside somebody who knows their length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rerail.recovery.mitigation.escalation import Cause, Escalation, Option, Remedy

STEP_S = 3.5
S2_S, S3_S, S4_S = 15.0, 90.0, 900.0


@dataclass(frozen=True)
class Episodes:
    """Shares of lost time recovered, costs included, and the price of not knowing the length."""

    law: str
    recovered: dict[str, float]
    ratio_mean: float
    ratio_p99: float
    ratio_max: float


def _draw(law: str, count: int, rng: np.random.Generator) -> np.ndarray:
    if law.startswith("exp"):
        return rng.exponential(float(law.split()[1]), count) + STEP_S
    lengths = 60.0 * (1.0 + rng.pareto(1.1, count))
    return np.minimum(lengths, 36_000.0)


def _cost(options: list[Option], excess: float, steps: int, when: dict[Remedy, int]) -> float:
    """Return the cost of a fixed plan: which remedy at which step."""
    leaves, paid = 1.0, 0.0
    known = {one.remedy: one for one in options}
    for step in range(steps):
        for remedy, at in when.items():
            if at == step:
                leaves = min(leaves, known[remedy].leaves_ratio)
                paid += known[remedy].cost_s
        paid += excess * leaves
    return paid


def _fixed(options: list[Option], excess: float, steps: int, remedy: Remedy | None) -> float:
    if remedy is None:
        return excess * steps
    one = next(o for o in options if o.remedy is remedy)
    return one.cost_s + excess * steps * one.leaves_ratio


def _escalated(options: list[Option], excess: float, steps: int, at_once_s: float) -> float:
    phase = Escalation(options, Cause.COMPUTE, healthy_s=STEP_S, at_once_s=at_once_s)
    leaves, paid = 1.0, 0.0
    known = {one.remedy: one for one in options}
    for _ in range(steps):
        paid += excess * leaves
        chosen = phase.step(STEP_S + excess * leaves, excess)
        if chosen is not None:
            paid += known[chosen].cost_s
            leaves = known[chosen].leaves_ratio
    return paid


def episodes(law: str, count: int, seed: int) -> Episodes:
    """Draw phases of 1.1 to 3 times the healthy step and pay for each way of reacting."""
    rng = np.random.default_rng(seed)
    lengths = _draw(law, count, rng)
    lost = 0.0
    paid: dict[str, float] = {}
    ratios = []
    for length in lengths:
        excess = STEP_S * rng.uniform(0.1, 2.0)
        steps = max(1, int(length / STEP_S))
        options = [
            Option(Remedy.MICRO_BATCHES, S2_S, rng.uniform(0.1, 0.5)),
            Option(Remedy.PLACEMENT, S3_S, rng.uniform(0.03, 0.3)),
            Option(Remedy.RESTART, S4_S, 0.0),
        ]
        plain = excess * steps
        knowing = min(
            _fixed(options, excess, steps, r) for r in (None, *(o.remedy for o in options))
        )
        ways = {
            "ski rental": _escalated(options, excess, steps, 0.0),
            "S2 at once, then ski rental": _escalated(options, excess, steps, 20.0),
            "clairvoyant": knowing,
            "S2 at once": _fixed(options, excess, steps, Remedy.MICRO_BATCHES),
            "S3 at once": _fixed(options, excess, steps, Remedy.PLACEMENT),
            "restart at once": _fixed(options, excess, steps, Remedy.RESTART),
        }
        lost += plain
        for name, value in ways.items():
            paid[name] = paid.get(name, 0.0) + value
        ratios.append(ways["ski rental"] / knowing)
    return Episodes(
        law,
        {name: 1.0 - value / lost for name, value in paid.items()},
        float(np.mean(ratios)),
        float(np.percentile(ratios, 99)),
        float(np.max(ratios)),
    )
