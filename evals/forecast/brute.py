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
from rerail.tools.forecast.schedule import Pass, stage_order, zero_bubble_order
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
    d, p, inner = parallel.dp, parallel.pp, parallel.tp * parallel.cp
    # How many neighbours of the ranks [dp, cp, tp] of a stage meet in each kind of group.
    sizes = {
        "tp": parallel.tp, "cp": inner, "ep": inner * parallel.ep, "fsdp": inner * parallel.fsdp,
    }  # fmt: skip
    assert spec.passes is not None
    factor = _factors(spec, rng, (samples, d, p, inner))
    congestion = np.ones((samples, 1))
    regime = spec.effects.regime
    if regime is not None:
        hit = rng.random((samples, 1)) < regime.share
        congestion = np.where(hit, regime.scale, 1.0)

    def draw(name: str, shape: tuple[int, ...]) -> FloatArray:
        return _draw(rng, spec, name, shape)

    def work(names: tuple[str, ...], stage: int, begin: FloatArray) -> FloatArray:
        """Return when the pass ends [samples, d]: all ranks of a tensor-parallel group go on together."""
        load = 1.0 if spec.stage_load is None else spec.stage_load[stage]
        ready = np.repeat(begin[:, :, None], inner, axis=2)
        for _ in range(spec.layers[stage] // spec.schedule.chunks):
            for name in names:
                group = spec.pools[name].group
                if group is None:
                    ready += draw(name, ready.shape) * factor[:, :, stage] * load
                    continue
                met = ready.reshape(samples, -1, sizes[group]).max(axis=2)
                met = met + draw(name, met.shape) * congestion
                ready = np.repeat(met, sizes[group], axis=1).reshape(ready.shape)
        return np.asarray(ready.max(axis=2))

    def send() -> FloatArray:
        if spec.transfer is None:
            return np.zeros((samples, d))
        return draw(spec.transfer, (samples, d)) * congestion

    latest = _pipeline(spec, work, send, samples)
    step = latest.max(axis=1)
    for name in spec.step:
        step = step + draw(name, (samples, inner)).max(axis=1) * congestion[:, 0]
    return np.asarray(step)


def _factors(spec: Spec, rng: np.random.Generator, shape: tuple[int, int, int, int]) -> FloatArray:
    """Return by how much each rank [samples, dp, pp, inner] is slower."""
    factor = np.ones(shape)
    effects, stages = spec.effects, shape[2]
    if effects.rank_cv:
        factor *= _around_one(rng, effects.rank_cv, shape)
    if effects.node_cv:
        factor *= _around_one(rng, effects.node_cv, (*shape[:3], 1))
    for slow in spec.nodes.slow:
        factor[:, slow.node // stages, slow.node % stages] *= slow.ratio
    return factor


def _pipeline(
    spec: Spec, work: Callable[..., FloatArray], send: Callable[[], FloatArray], samples: int
) -> FloatArray:
    stages, schedule, passes = spec.parallel.pp, spec.schedule, spec.passes
    assert passes is not None
    split, last = schedule.kind == "zero_bubble", schedule.chunks - 1
    orders = [
        zero_bubble_order(s, stages, schedule.micro_batches)
        if split
        else stage_order(s, stages, schedule.micro_batches, schedule.chunks)
        for s in range(stages)
    ]
    at = [0] * stages
    free = [np.zeros((samples, spec.parallel.dp)) for _ in range(stages)]
    arrived: dict[tuple[int, Pass], FloatArray] = {}
    while any(at[s] < len(orders[s]) for s in range(stages)):
        for s in range(stages):
            while at[s] < len(orders[s]):
                one = orders[s][at[s]]
                end_of_model = s == stages - 1 and one.chunk == last
                begins_model = s == 0 and one.chunk == 0
                outer = one.weights or (begins_model if one.forward else end_of_model)
                if not outer and (s, one) not in arrived:
                    break
                begin = free[s] if outer else np.maximum(free[s], arrived.pop((s, one)))
                names = passes.weights if one.weights else passes.backward
                free[s] = work(passes.forward if one.forward else names, s, begin)
                at[s] += 1
                if one.weights or (end_of_model if one.forward else begins_model):
                    continue
                way = 1 if one.forward else -1
                chunk = one.chunk + (s + way) // stages
                sent = free[s] if stages == 1 else free[s] + send()
                arrived[(s + way) % stages, one._replace(chunk=chunk)] = sent
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


def _nested(group: str, **changes: Any) -> Spec:
    """Return a job whose wide groups `w` (and of sharding, `g`) lie around tensor-parallel ones."""
    base: dict[str, Any] = {
        "parallel": {"tp": 4, "pp": 1, "dp": 16},
        "schedule": {"micro_batches": 2},
        "layers_per_stage": 3,
        "pools": {
            "w": {"mean_s": 0.3, "cv": 0.1, "distribution": "lognormal", "group": group},
            "g": {"mean_s": 0.2, "cv": 0.1, "distribution": "lognormal", "group": "fsdp"},
        },
        "passes": {"forward": ["f", "c", "w"], "backward": ["b", "c", "w"]},
        "nodes": {"gpus_per_node": 4},
    }
    for key, value in changes.items():
        base[key] = {**base.get(key, {}), **value} if isinstance(value, dict) else value
    return _case(**base)


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
        ("sharded by 4 around tensor parallel 4, uneven stage",
         _nested("fsdp", parallel={"fsdp": 4}, stage_load=[1.5]), 4000 // few, 0.08),
        ("sharded by 4 around tensor parallel 4, two slow nodes",
         _nested("fsdp", parallel={"fsdp": 4}, nodes={"slow": [
             {"node": 0, "ratio": 1.3}, {"node": 6, "ratio": 1.1}]}), 4000 // few, 0.08),
        ("experts on 4 around tensor parallel 4, persistent ranks 3 % and nodes 2 %",
         _nested("ep", parallel={"ep": 4}, effects={"rank_cv": 0.03, "node_cv": 0.02}),
         4000 // few, 0.08),
        ("context 2 around tensor parallel 4, persistent ranks 3 %",
         _nested("cp", parallel={"cp": 2}, nodes={"gpus_per_node": 8}, effects={"rank_cv": 0.03}),
         4000 // few, 0.08),
        ("experts on 2 within sharding by 4, sharded first, congested steps 20 %",
         _nested("ep", parallel={"ep": 2, "fsdp": 4}, effects={
             "rank_cv": 0.02, "regime": {"share": 0.2, "scale": 3.0}},
             passes={"forward": ["g", "f", "c", "w"], "backward": ["g", "b", "c", "w"]}),
         4000 // few, 0.08),
        ("two stages, sharded by 4 around tensor parallel 4, persistent ranks 3 %",
         _nested("fsdp", parallel={"pp": 2, "fsdp": 4}, effects={"rank_cv": 0.03}),
         2000 // few, 0.08),
        ("interleaved, 2 chunks, 16 replicas, persistent nodes 3 %",
         _case(parallel={"dp": 16}, schedule={"kind": "interleaved", "chunks": 2},
               layers_per_stage=2, effects={"node_cv": 0.03}), 4000 // few, 0.08),
        ("zero bubble, 16 replicas, uneven stages and a slow node",
         _case(parallel={"dp": 16}, schedule={"kind": "zero_bubble"}, stage_load=[0.9, 1, 1, 1.1],
               passes={"forward": ["f", "c"], "backward": ["f", "c"], "weights": ["f"]},
               nodes={"slow": [{"node": 5, "ratio": 1.2}]}), 4000 // few, 0.08),
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
    ranks = spec.parallel.world_size // spec.parallel.pp
    kinds = 3 if spec.schedule.kind == "zero_bubble" else 2
    ops = kinds * spec.parallel.pp * spec.schedule.micro_batches
    return Agreement(
        name,
        max(ks_distance(one.step.table, brute) for one in drawn),
        max((one.step.mean / mean - 1.0 for one in drawn), key=abs),
        max((one.percentile(95) / p95 - 1.0 for one in drawn), key=abs),
        samples,
        float(ops * samples * ranks * spec.layers[0]),
        float(ops * spec.schedule.chunks * found.samples * len(found.parts[0].classes)),
        bar,
    )
