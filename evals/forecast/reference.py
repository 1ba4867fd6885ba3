"""Reference numbers of 1F1B and of maxima, computed elsewhere, and what must hold of any forecast.

Forward takes 1 and backward 2 on each stage, with Normal noise; the published numbers come from
seeded simulations of 1,000 samples, so that they carry an error of a few thousandths themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rerail.domain.series import FloatArray
from rerail.evals.forecast.brute import brute_steps
from rerail.tools.forecast.durations import Duration, maximum, normal, total
from rerail.tools.forecast.engine import Draw, deterministic, simulate
from rerail.tools.forecast.fit import ks_distance
from rerail.tools.forecast.program import Program, pipeline_program
from rerail.tools.forecast.spec import Spec, parse_spec
from rerail.tools.forecast.step import StepModel
from rerail.tools.forecast.tails import slowest


@dataclass(frozen=True)
class Check:
    """One number: what it is, what was found, what is expected, and the allowed difference."""

    what: str
    found: float
    expected: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Return whether the number is as expected."""
        return abs(self.found - self.expected) <= self.tolerance


LEAST_NEAR = 0.92  # of 200 draws, two standard errors below 95 %
_RESAMPLED = {
    "parallel": {"tp": 4, "pp": 4, "dp": 2},
    "schedule": {"micro_batches": 8},
    "pools": {
        "f": {"mean_s": 1.0, "cv": 0.05},
        "b": {"mean_s": 2.0, "cv": 0.05},
        "c": {"distribution": "lognormal", "mean_s": 0.2, "cv": 0.3, "group": "tp"},
    },
    "passes": {"forward": ["f", "c"], "backward": ["b", "c"]},
}
_MAXIMA = {
    (0.01, 8): (1.0139, 1.0249), (0.01, 64): (1.0230, 1.0316), (0.01, 512): (1.0300, 1.0372),
    (0.01, 4096): (1.0358, 1.0421), (0.01, 65_536): (1.0425, 1.0480),
    (0.03, 8): (1.0416, 1.0747), (0.03, 512): (1.0900, 1.1116), (0.03, 65_536): (1.1276, 1.1441),
    (0.05, 512): (1.1500, 1.1859), (0.05, 65_536): (1.2126, 1.2401),
}  # fmt: skip
_SLOW = {
    (8, 1.0): (1.013, 1.022, 1.035, 1.049, 1.062, 1.075, 1.088, 1.102),
    (32, 1.0): (1.116, 1.121, 1.126, 1.131, 1.137, 1.141, 1.146, 1.151),
    (8, 1.2): (1.012, 1.012, 1.012, 1.012, 1.012, 1.012, 1.015, 1.116),
    (32, 1.2): (1.0045, 1.0045, 1.0045, 1.0045, 1.0045, 1.0045, 1.011, 1.170),
}


def _draws(program: Program, cv: float, load: tuple[float, ...]) -> list[Draw]:
    kinds = {"forward": normal(1.0, cv), "backward": normal(2.0, 2 * cv)}
    return [Draw(kinds[node.duration], scale=load[node.place]) for node in program.nodes]


def _steps(stages: int, micro: int, cv: float, load: tuple[float, ...] = ()) -> FloatArray:
    program = pipeline_program(stages, micro, transfer=False)
    return simulate(program, _draws(program, cv, load or (1.0,) * stages), 20_000, 3)


def _percentiles(one: Duration) -> tuple[float, float]:
    median, high = one.quantile(np.array([0.5, 0.95]))
    return float(median), float(high)


def reference_checks() -> list[Check]:
    """Return all reference numbers beside what the forecast's parts give."""
    out = []
    for stages, micro, expected in ((4, 8, 33.0), (8, 16, 69.0), (8, 32, 117.0)):
        program = pipeline_program(stages, micro, transfer=False)
        seconds = {"forward": 1.0, "backward": 2.0}
        found = deterministic(program, [seconds[node.duration] for node in program.nodes])
        out.append(Check(f"1F1B P={stages} M={micro}", float(found), expected, 0.0))
    for (cv, ranks), (median, high) in _MAXIMA.items():
        found_median, found_high = _percentiles(maximum(normal(1.0, cv), ranks))
        name = f"maximum of {ranks}, cv {cv:.0%}"
        out.append(Check(f"{name}, median", found_median, median, 0.06 * cv))
        out.append(Check(f"{name}, p95", found_high, high, 0.06 * cv))
    several = total([(normal(1.0, 0.05), 16)])
    out.append(Check("sum of 16, mean", several.mean, 16.0, 1e-9))
    out.append(Check("sum of 16, sd", several.sd, 0.05 * 4.0, 1e-9))
    steps = _steps(4, 16, 0.05)
    out += [
        Check("1F1B P=4 M=16 cv 5 %, mean", float(steps.mean()), 58.37, 0.02),
        Check("1F1B P=4 M=16 cv 5 %, sd", float(steps.std()), 0.39, 0.01),
        Check("1F1B P=4 M=16 cv 5 %, p50", float(np.median(steps)), 58.37, 0.02),
        Check("1F1B P=4 M=16 cv 5 %, p95", float(np.percentile(steps, 95)), 59.02, 0.03),
    ]
    for replicas, median, high in ((8, 58.90, 59.35), (64, 59.29, 59.62), (512, 59.56, 59.85)):
        found_median, found_high = _percentiles(slowest([(steps, replicas)]))
        out.append(Check(f"slowest of {replicas} replicas, p50", found_median, median, 0.04))
        out.append(Check(f"slowest of {replicas} replicas, p95", found_high, high, 0.06))
    for (micro, last), ratios in _SLOW.items():
        base = (1.0,) * 7 + (last,)
        usual = np.percentile(_steps(8, micro, 0.02, base), 95)
        for stage, expected in enumerate(ratios):
            load = tuple(v * (1.2 if s == stage else 1.0) for s, v in enumerate(base))
            ratio = float(np.percentile(_steps(8, micro, 0.02, load), 95) / usual)
            what = f"stage {stage} x1.2, M={micro}" + (", last stage heavier" if last > 1 else "")
            out.append(Check(what, ratio, expected, 0.003))
    return out


def composed(spec: Spec) -> Duration:
    """Return the forecast's step time of a spec, the composition that is held to `resampled_agreement`."""
    return StepModel(spec).forecast(20_000, 5, errors=False).step


def resampled_agreement(compose: Callable[[Spec], Duration] = composed) -> float:
    """Return in which share of 200 draws a forecast's 1,000 steps lie within KS 0.061 of 1,000 brute-force ones.

    0.061 is 1.358 sqrt(2 / 1,000): two samples of one distribution stay below it in 95 % of draws
    (two-sample Kolmogorov-Smirnov). Brute force draws every pass of every replica on its own.
    """
    spec = parse_spec(_RESAMPLED)
    rng = np.random.default_rng(1)
    table = compose(spec).table
    brute = brute_steps(spec, 40_000, 2)
    near = [
        ks_distance(rng.choice(table, 1000), rng.choice(brute, 1000)) < 0.061 for _ in range(200)
    ]
    return float(np.mean(near))


def invariants() -> dict[str, bool]:
    """Return what must hold of any composition, by sentence."""
    program = pipeline_program(4, 8, transfer=False)
    plain = _draws(program, 0.05, (1.0,) * 4)

    def changed(index: int, to: Callable[[Draw], Draw]) -> FloatArray:
        draws = list(plain)
        draws[index] = to(draws[index])
        return simulate(program, draws, 4000, 5)

    base = simulate(program, plain, 4000, 5)
    still = [Draw(one.duration.widened(0.0)) for one in plain]
    # The first forward pass of the last stage waits for three stages: half of it fits into the wait.
    slack = next(
        i for i, node in enumerate(program.nodes) if node.place == 0 and "forward 3" in node.name
    )
    wide = changed(slack, lambda one: replace(one, duration=normal(1.0, 0.1)))
    longer = [
        float(np.percentile(changed(i, lambda one: replace(one, scale=1.1)), 95))
        for i in range(0, len(plain), 5)
    ]
    p95 = float(np.percentile(base, 95))
    by_ranks = maximum(normal(1.0, 0.05), 64)
    in_two = maximum(maximum(normal(1.0, 0.05), 8), 8)
    return {
        "more variation where there is slack changes nothing": bool(
            np.allclose(wide, base, atol=1e-4)
        ),
        "no variation is the deterministic step": bool(
            np.allclose(simulate(program, still, 100, 1), 33.0, atol=1e-4)
        ),
        "p95 never falls when an op gets longer": min(longer) >= p95 - 1e-4,
        "ranks may be grouped and ordered at will": bool(
            np.allclose(by_ranks.table, in_two.table, rtol=1e-6)
        ),
        "1,000 forecast steps stay within KS 0.061 of 1,000 brute-force ones in 95 % of draws": (
            resampled_agreement() >= LEAST_NEAR
        ),
    }
