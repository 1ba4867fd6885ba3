"""Brute force: every rank, layer and replica drawn one by one; bar R1 of the composition.

Nothing here comes from the forecast but the order of passes on a stage. Persistent effects are drawn
once per job and rank, regimes once per step for all ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rerail.domain.series import FloatArray
from rerail.tools.forecast.fit import ks_distance
from rerail.tools.forecast.schedule import Pass, stage_order
from rerail.tools.forecast.spec import Spec, parse_spec
from rerail.tools.forecast.step import StepModel

DRAWN = 20_000
FORECASTS = 3


@dataclass(frozen=True)
class Agreement:
    """Forecast against brute force: KS distance, relative errors of mean and p95, draws of both.

    Distance and errors are the worst of three forecasts of other seeds, so that no lucky draw passes.
    """

    case: str
    ks: float
    mean_error: float
    p95_error: float
    brute: int
    brute_draws: float
    forecast_draws: float
    bar: float

    @property
    def holds(self) -> bool:
        """Return whether bar R1 holds: the KS distance, and p95 within 0.5 %."""
        return self.ks <= self.bar and abs(self.p95_error) <= 0.005


def brute_steps(spec: Spec, samples: int, seed: int) -> FloatArray:
    """Return step times [samples], in seconds; samples are the first axis of every array."""
    rng = np.random.default_rng(seed)
    parallel = spec.parallel
    d, p, t = parallel.dp, parallel.pp, parallel.tp
    micro = spec.schedule.micro_batches
    assert spec.passes is not None
    factor = np.ones((samples, d, p, t))
    effects = spec.effects
    if effects.rank_cv:
        factor *= _around_one(rng, effects.rank_cv, factor.shape)
    if effects.node_cv:
        factor *= _around_one(rng, effects.node_cv, (samples, d, p, 1))
    for slow in spec.nodes.slow:
        factor[:, slow.node // p, slow.node % p] *= slow.ratio
    congestion = np.ones((samples, 1))
    if effects.regime is not None:
        hit = rng.random((samples, 1)) < effects.regime.share
        congestion = np.where(hit, effects.regime.scale, 1.0)

    def draw(name: str, shape: tuple[int, ...]) -> FloatArray:
        return _draw(rng, spec, name, shape)

    def work(names: tuple[str, ...], stage: int) -> FloatArray:
        ready = np.zeros((samples, d, t))
        for _ in range(spec.layers[stage]):
            for name in names:
                if spec.pools[name].group is None:
                    ready += draw(name, ready.shape) * factor[:, :, stage]
                else:
                    shared = draw(name, (samples, d)) * congestion
                    ready = np.broadcast_to(
                        (ready.max(axis=2) + shared)[:, :, None], ready.shape
                    ).copy()
        return np.asarray(ready.max(axis=2))

    def send() -> FloatArray:
        assert spec.transfer is not None
        return draw(spec.transfer, (samples, d)) * congestion

    latest = _pipeline(p, micro, work, spec.passes.forward, spec.passes.backward, send, samples, d)
    step = latest.max(axis=1)
    for name in spec.step:
        step = step + draw(name, (samples, t)).max(axis=1) * congestion[:, 0]
    return np.asarray(step)


def _pipeline(
    stages: int, micro: int, work: Callable[..., FloatArray], forward: tuple[str, ...],
    backward: tuple[str, ...], send: Callable[[], FloatArray], samples: int, replicas: int,
) -> FloatArray:  # fmt: skip
    orders = [stage_order(s, stages, micro) for s in range(stages)]
    at = [0] * stages
    free = [np.zeros((samples, replicas)) for _ in range(stages)]
    arrived: dict[tuple[int, Pass], FloatArray] = {}
    while any(at[s] < len(orders[s]) for s in range(stages)):
        for s in range(stages):
            while at[s] < len(orders[s]):
                one = orders[s][at[s]]
                outer = s == 0 if one.forward else s == stages - 1
                if not outer and (s, one) not in arrived:
                    break
                begin = free[s] if outer else np.maximum(free[s], arrived.pop((s, one)))
                free[s] = begin + work(forward if one.forward else backward, s)
                target = s + 1 if one.forward else s - 1
                if 0 <= target < stages:
                    arrived[target, one] = free[s] + send()
                at[s] += 1
    return np.asarray(np.maximum.reduce(free))


def _around_one(rng: np.random.Generator, cv: float, shape: tuple[int, ...]) -> FloatArray:
    sigma = np.sqrt(np.log1p(cv**2))
    return np.asarray(rng.lognormal(-(sigma**2) / 2, sigma, shape))


def _draw(rng: np.random.Generator, spec: Spec, name: str, shape: tuple[int, ...]) -> FloatArray:
    pool = spec.pools[name]
    mean, cv = pool.mean_s or 0.0, pool.cv or 0.0
    if pool.distribution == "normal":
        return np.asarray(np.maximum(rng.normal(mean, mean * cv, shape), 0.0))
    if pool.distribution == "gamma":
        return np.asarray(rng.gamma(cv**-2, mean * cv**2, shape))
    sigma = np.sqrt(np.log1p(cv**2))
    return np.asarray(mean * rng.lognormal(-(sigma**2) / 2, sigma, shape))


def _case(**changes: Any) -> Spec:
    base: dict[str, Any] = {
        "parallel": {"tp": 1, "pp": 4, "dp": 1, "rank_order": "tp-cp-pp-dp"},
        "schedule": {"micro_batches": 8},
        "pools": {
            "f": {"mean_s": 1.0, "cv": 0.05, "distribution": "normal"},
            "b": {"mean_s": 2.0, "cv": 0.05, "distribution": "normal"},
            "c": {"mean_s": 0.1, "cv": 0.2, "distribution": "lognormal", "group": "tp"},
            "s": {"mean_s": 0.05, "cv": 0.2, "distribution": "gamma"},
        },
        "passes": {"forward": ["f", "c"], "backward": ["b", "c"]},
        "transfer": "s",
        "nodes": {"gpus_per_node": 1},
    }
    for key, value in changes.items():
        base[key] = {**base[key], **value} if isinstance(base.get(key), dict) else value
    return parse_spec(base)


def cases(quick: bool) -> list[tuple[str, Spec, int, float]]:
    """Return (name, spec, brute samples, bar of the KS distance)."""
    few = 2 if quick else 1
    heavy = {"f": {"mean_s": 1.0, "cv": 0.3, "distribution": "lognormal"}}
    return [
        ("tensor parallel: 8 ranks x 6 layers",
         _case(parallel={"tp": 8}, layers_per_stage=6), 12_000 // few, 0.03),
        ("8 replicas", _case(parallel={"dp": 8}), 10_000 // few, 0.08),
        ("64 replicas", _case(parallel={"dp": 64}), 4000 // few, 0.08),
        ("512 replicas", _case(parallel={"dp": 512}), 2000 // few, 0.08),
        ("512 replicas, forward passes of cv 30 %",
         _case(parallel={"dp": 512}, pools=heavy), 2000 // few, 0.08),
        ("512 replicas, transfers of cv 100 %",
         _case(parallel={"dp": 512}, pools={"s": {"mean_s": 0.05, "cv": 1.0,
                                                  "distribution": "lognormal"}}),
         2000 // few, 0.08),
        ("64 replicas, three with slow nodes",
         _case(parallel={"dp": 64}, nodes={"slow": [
             {"node": 9, "ratio": 1.06}, {"node": 10, "ratio": 1.04}, {"node": 99, "ratio": 1.05}]}),
         4000 // few, 0.08),
        ("persistent ranks 3 % and nodes 2 %, 32 replicas x 8 ranks",
         _case(parallel={"tp": 8, "dp": 32}, effects={"rank_cv": 0.03, "node_cv": 0.02},
               nodes={"gpus_per_node": 8}), 2000 // few, 0.08),
        ("congested steps 20 %, x3, 64 replicas",
         _case(parallel={"dp": 64}, effects={"regime": {"share": 0.2, "scale": 3.0}}),
         4000 // few, 0.08),
    ]  # fmt: skip


def agreement(name: str, spec: Spec, samples: int, bar: float, seed: int = 1) -> Agreement:
    """Compare one case."""
    blocks = []
    per = max(1, min(samples, int(4e6 // max(1, spec.parallel.world_size * spec.parallel.pp))))
    for i in range(0, samples, per):
        blocks.append(brute_steps(spec, min(per, samples - i), seed + i))
    brute = np.concatenate(blocks)
    drawn = [StepModel(spec).forecast(DRAWN, seed + i, errors=False) for i in range(FORECASTS)]
    found = drawn[0]
    mean, p95 = float(brute.mean()), float(np.percentile(brute, 95))
    ops = 2 * spec.parallel.pp * spec.schedule.micro_batches
    return Agreement(
        name,
        max(ks_distance(one.step.table, brute) for one in drawn),
        max((one.step.mean / mean - 1.0 for one in drawn), key=abs),
        max((one.percentile(95) / p95 - 1.0 for one in drawn), key=abs),
        samples,
        float(ops * samples * spec.parallel.tp * spec.parallel.dp * spec.layers[0]),
        float(ops * found.samples * len(found.parts[0].classes)),
        bar,
    )
