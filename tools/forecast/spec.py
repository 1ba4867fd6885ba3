"""The spec of a forecast: what a person writes in YAML, checked key by key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from rerail.tools.forecast.durations import Duration, constant, empirical, gamma, lognormal, normal
from rerail.tools.forecast.fit import fit_pool
from rerail.tools.forecast.presets import preset_names
from rerail.tools.spec_file import SpecPart, WrongKey, check_spec, read_spec_file

Positive = Annotated[int, Field(ge=1, le=1 << 20)]
Layers = Annotated[int, Field(ge=1, le=10_000)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]  # up to thirty years
Factor = Annotated[float, Field(gt=0, le=1e6)]
Share = Annotated[float, Field(ge=0, le=1)]
MOST_GRAPH_RANKS = 2048  # with persistent effects: a number for every rank and drawn step
MOST_STAGE_RANKS = 1 << 16  # of one replica; with persistent effects each of them is drawn
MOST_PASSES = 100_000  # 20,000 replicas of so many are a minute of drawing
Group = Literal["tp", "cp", "ep", "fsdp", "dp"]


class Parallelism(SpecPart):
    """Sizes of the parallel groups; ranks = tp x cp x pp x dp. `ep` and `fsdp` divide dp."""

    tp: Positive = 1
    pp: Positive = 1
    dp: Positive = 1
    cp: Positive = 1
    ep: Positive = 1
    fsdp: Positive = 1
    rank_order: Literal["tp-cp-dp-pp", "tp-cp-pp-dp"] = "tp-cp-dp-pp"

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def replicas(self) -> int:
        """Return how many pipelines run side by side without waiting for each other in a step."""
        return self.dp // max(self.ep, self.fsdp)

    def group_size(self, group: Group) -> int:
        """Return how many ranks take part in a collective of this kind, inner ranks included."""
        inner = self.tp * self.cp
        return {
            "tp": self.tp,
            "cp": inner,
            "ep": inner * self.ep,
            "fsdp": inner * self.fsdp,
            "dp": inner * self.dp,
        }[group]


class Schedule(SpecPart):
    """The pipeline schedule; `chunks` are model chunks per stage of the interleaved one."""

    kind: Literal["1f1b", "interleaved", "zero_bubble"] = "1f1b"
    micro_batches: Positive = 1
    chunks: Positive = 1


class Pool(SpecPart):
    """Durations of one signature, in seconds: a distribution, measured samples, or bytes on a tier.

    `kernel` is the class by which sensitivity is told; `group` makes it a collective. `overlap`
    hides it behind the compute before it; `visible` is the share of it that is not hidden at all.
    `scale` and `spread` are for what-ifs: times as long, and deviations from the mean times as large.
    """

    distribution: Literal["normal", "gamma", "lognormal", "constant", "empirical", "fit"] = "normal"
    mean_s: Seconds | None = None
    sd_s: Seconds | None = None
    cv: Annotated[float, Field(ge=0, le=20)] | None = None
    samples_s: tuple[Seconds, ...] | None = None
    bytes: Annotated[float, Field(ge=0, le=1e18)] | None = None
    tier: str | None = None
    kernel: str = ""
    group: Group | None = None
    overlap: bool = False
    visible: Share = 1.0
    scale: Factor = 1.0
    spread: Annotated[float, Field(ge=0, le=1000)] = 1.0


class Tier(SpecPart):
    """A class of links: intra-node, inter-node, between pods."""

    bytes_per_s: Annotated[float, Field(ge=1, le=1e18)]
    latency_s: Seconds = 0.0
    scale: Factor = 1.0


class Passes(SpecPart):
    """What one layer runs, by pool names in order; `weights` only where a schedule splits them off."""

    forward: Annotated[tuple[str, ...], Field(min_length=1)]
    backward: Annotated[tuple[str, ...], Field(min_length=1)]
    weights: tuple[str, ...] = ()


class Slow(SpecPart):
    """A node of known speed: `ratio` times the usual compute time for all of the job, below 1 where faster."""

    node: Annotated[int, Field(ge=0)]
    ratio: Annotated[float, Field(gt=0, le=100)]


class Nodes(SpecPart):
    """The machines: GPUs per node and the ones known to be slow."""

    gpus_per_node: Positive = 8
    slow: tuple[Slow, ...] = ()


class Regime(SpecPart):
    """Calm and congested steps: which share is congested, how slow, for how many steps on end."""

    share: Share
    scale: Annotated[float, Field(ge=1, le=1e6)]
    steps: Annotated[float, Field(ge=1, le=1e12)] = 1.0


class Effects(SpecPart):
    """What persists for a whole job: spread of speed over ranks and over nodes, and the regime."""

    rank_cv: Annotated[float, Field(ge=0, le=1)] = 0.0
    node_cv: Annotated[float, Field(ge=0, le=1)] = 0.0
    regime: Regime | None = None


class GraphOp(SpecPart):
    """One op of an explicit graph: its pool, the rank it runs on, the ops it waits for."""

    pool: str
    rank: Annotated[int, Field(ge=-1, lt=1 << 20)] = -1
    after: tuple[str, ...] = ()


class Job(SpecPart):
    """The run: steps to do, failures, checkpoints and restarts, and the deadline."""

    steps: Annotated[int, Field(ge=1, le=10**12)]
    failures_per_node_day: Annotated[float, Field(ge=0, le=1e6)] | None = None
    preset: str | None = None
    checkpoint_s: Seconds = 0.0
    checkpoint_every_s: Annotated[float, Field(gt=0, le=1e12)] | None = None
    restart_s: Seconds = 0.0
    repair_s: Annotated[float, Field(gt=0, le=1e9)] = 86_400.0
    deadline_s: Annotated[float, Field(gt=0, le=1e12)] | None = None
    nodes: Positive | None = None


class Spec(SpecPart):
    """The whole spec; either `passes` (a pipeline) or `graph` (an explicit graph of ops)."""

    name: str = "forecast"
    parallel: Parallelism = Parallelism()
    schedule: Schedule = Schedule()
    pools: Annotated[dict[str, Pool], Field(min_length=1)]
    tiers: dict[str, Tier] = {}
    layers_per_stage: Layers | tuple[Layers, ...] = 1
    stage_load: tuple[Factor, ...] | None = None
    passes: Passes | None = None
    transfer: str | None = None
    step: tuple[str, ...] = ()
    graph: Annotated[dict[str, GraphOp], Field(min_length=1)] | None = None
    nodes: Nodes = Nodes()
    effects: Effects = Effects()
    job: Job | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Spec:
        for key, problem in _problems(self):
            raise WrongKey(key, problem)
        return self

    def duration(self, name: str) -> Duration:
        """Return the duration of a pool, link tier included."""
        return pool_duration(self, name)

    @property
    def layers(self) -> tuple[int, ...]:
        """Return the layers of each stage."""
        given = self.layers_per_stage
        return (given,) * self.parallel.pp if isinstance(given, int) else given

    @property
    def world_size(self) -> int:
        """Return the number of ranks: of the parallel groups, or those that occur in a graph."""
        return self.parallel.world_size if self.graph is None else max(1, len(self._graph_ranks))

    @property
    def _graph_ranks(self) -> set[int]:
        return {op.rank for op in (self.graph or {}).values() if op.rank >= 0}

    @property
    def node_count(self) -> int:
        """Return how many nodes the job occupies."""
        if self.job is not None and self.job.nodes is not None:
            return self.job.nodes
        if self.graph is not None:
            return max(1, len({rank // self.nodes.gpus_per_node for rank in self._graph_ranks}))
        return -(-self.parallel.world_size // self.nodes.gpus_per_node)


def _problems(spec: Spec) -> list[tuple[str, str]]:
    return [
        *_shape_problems(spec),
        *_pool_problems(spec),
        *_reference_problems(spec),
        *_job_problems(spec),
    ]


def _job_problems(spec: Spec) -> list[tuple[str, str]]:
    name = None if spec.job is None else spec.job.preset
    if name is None or name in preset_names():
        return []
    return [("job.preset", f"there is no preset {name!r}, but {', '.join(preset_names())}")]


def _shape_problems(spec: Spec) -> list[tuple[str, str]]:
    parallel = spec.parallel
    found = []
    if (spec.passes is None) == (spec.graph is None):
        found.append(("passes", "give either passes (a pipeline) or graph (an explicit graph)"))
    for key in ("ep", "fsdp"):
        if parallel.dp % getattr(parallel, key):
            found.append(
                (f"parallel.{key}", f"{getattr(parallel, key)} does not divide dp = {parallel.dp}")
            )
    if max(parallel.ep, parallel.fsdp) % min(parallel.ep, parallel.fsdp):
        found.append(("parallel.ep", "ep and fsdp must divide each other"))
    for key, values in (("layers_per_stage", spec.layers), ("stage_load", spec.stage_load)):
        if values is not None and len(values) != parallel.pp:
            found.append((key, f"{len(values)} values for pp = {parallel.pp} stages"))
    wide = parallel.world_size // (parallel.pp * max(1, parallel.replicas))
    if wide > MOST_STAGE_RANKS:
        text = f"a stage of one replica has {wide:,} ranks; more than {MOST_STAGE_RANKS:,} are not drawn"
        found.append(("parallel", text))
    ranks = 1 + max((op.rank for op in (spec.graph or {}).values()), default=0)
    if ranks > MOST_GRAPH_RANKS and (spec.effects.rank_cv or spec.effects.node_cv):
        text = f"ranks up to {ranks - 1:,} of a graph; they are drawn for {MOST_GRAPH_RANKS:,}"
        found.append(("effects", text))
    named = [slow.node for slow in spec.nodes.slow]
    for i, slow in enumerate(spec.nodes.slow):
        if slow.node in named[:i]:
            found.append((f"nodes.slow.{i}.node", f"node {slow.node} was named before"))
        if spec.graph is None and slow.node * spec.nodes.gpus_per_node >= parallel.world_size:
            found.append((f"nodes.slow.{i}.node", f"the job has {spec.node_count} nodes, from 0"))
    return found + _schedule_problems(spec) + _graph_problems(spec)


def _graph_problems(spec: Spec) -> list[tuple[str, str]]:
    if spec.graph is None:
        return []
    found = []
    nodes = {rank // spec.nodes.gpus_per_node for rank in spec._graph_ranks}
    for i, slow in enumerate(spec.nodes.slow):
        if slow.node not in nodes:
            found.append((f"nodes.slow.{i}.node", "no op of the graph runs on this node"))
    for key in ("parallel", "schedule", "layers_per_stage", "stage_load", "transfer"):
        if getattr(spec, key) != Spec.model_fields[key].default:
            found.append((key, "belongs to a pipeline (passes); a graph says all of it by its ops"))
    return found


def _schedule_problems(spec: Spec) -> list[tuple[str, str]]:
    schedule, stages = spec.schedule, spec.parallel.pp
    found = []
    passes = 2 * stages * schedule.micro_batches * schedule.chunks
    if passes > MOST_PASSES:
        text = f"a replica would run {passes:,} passes, more than {MOST_PASSES:,} are not drawn"
        found.append(("schedule.micro_batches", text))
    if schedule.chunks > 1 and schedule.kind != "interleaved":
        found.append(("schedule.chunks", f"{schedule.kind} has one chunk per stage"))
    if schedule.kind == "interleaved":
        if schedule.micro_batches % stages:
            text = f"{schedule.micro_batches} do not divide into pp = {stages} stages"
            found.append(("schedule.micro_batches", text))
        if any(layers % schedule.chunks for layers in spec.layers):
            found.append(("layers_per_stage", f"must divide into {schedule.chunks} chunks"))
    apart = schedule.kind == "zero_bubble"
    if spec.passes is not None and apart != bool(spec.passes.weights):
        text = "zero_bubble needs it" if apart else f"only zero_bubble runs it, not {schedule.kind}"
        found.append(("passes.weights", f"the gradient of the weights apart: {text}"))
    return found


def _pool_problems(spec: Spec) -> list[tuple[str, str]]:
    found = []
    for name, pool in spec.pools.items():
        key = f"pools.{name}"
        sampled = pool.distribution in ("empirical", "fit")
        if sampled and not pool.samples_s:
            found.append((f"{key}.samples_s", f"{pool.distribution} needs at least one sample"))
        if not sampled and pool.samples_s is not None:
            found.append((f"{key}.samples_s", "give distribution: fit or empirical with samples"))
        if not sampled and pool.bytes is None and pool.mean_s is None:
            found.append((f"{key}.mean_s", "is missing"))
        if pool.bytes is not None and pool.tier is None:
            found.append((f"{key}.tier", "bytes need a tier"))
        if pool.tier is not None and pool.tier not in spec.tiers:
            found.append((f"{key}.tier", f"there is no tier {pool.tier!r}"))
        if pool.cv is not None and pool.sd_s is not None:
            found.append((f"{key}.cv", "give cv or sd_s, not both"))
        if pool.sd_s is not None and pool.mean_s is not None and pool.sd_s > 20 * pool.mean_s > 0:
            found.append((f"{key}.sd_s", "is more than 20 times the mean"))
        if pool.distribution in ("gamma", "lognormal") and pool.mean_s == 0:
            found.append((f"{key}.mean_s", f"a {pool.distribution} duration is above zero"))
    return found


def _reference_problems(spec: Spec) -> list[tuple[str, str]]:
    used = _used(spec)
    found = [(k, f"there is no pool {name!r}") for k, name in used if name not in spec.pools]
    if not found and not any(_takes_time(spec.pools[name]) for _, name in used):
        found.append(("pools", "everything that a step runs takes no time"))
    return found


def _takes_time(pool: Pool) -> bool:
    return pool.visible > 0 and bool(pool.mean_s or pool.bytes or any(pool.samples_s or ()))


def _used(spec: Spec) -> list[tuple[str, str]]:
    """Return (key, pool) of all pools that a step runs."""
    used: list[tuple[str, str]] = [(f"step.{i}", name) for i, name in enumerate(spec.step)]
    if spec.transfer is not None:
        used.append(("transfer", spec.transfer))
    if spec.passes is not None:
        for kind in ("forward", "backward", "weights"):
            names = getattr(spec.passes, kind)
            used += [(f"passes.{kind}.{i}", name) for i, name in enumerate(names)]
    if spec.graph is not None:
        used += [(f"graph.{op}.pool", one.pool) for op, one in spec.graph.items()]
    return used


def pool_duration(spec: Spec, name: str) -> Duration:
    """Return the duration of a pool of the spec, in seconds."""
    pool = spec.pools[name]
    tier = spec.tiers.get(pool.tier or "")
    scale = (tier.scale if tier else 1.0) * pool.visible * pool.scale
    if pool.samples_s:
        values = np.asarray(pool.samples_s)
        made = (
            fit_pool(values, f"pools.{name}.samples_s").duration
            if pool.distribution == "fit"
            else empirical(values)
        )
        return made.scaled(scale).widened(pool.spread)
    mean = pool.mean_s or 0.0
    if pool.bytes is not None and tier is not None:
        mean += tier.latency_s + pool.bytes / tier.bytes_per_s
    sd = pool.sd_s if pool.sd_s is not None else mean * (pool.cv or 0.0)
    if pool.distribution == "constant" or sd == 0.0 or mean == 0.0:
        return constant(mean * scale)
    make = {"normal": normal, "gamma": gamma, "lognormal": lognormal}[pool.distribution]
    return make(mean * scale, sd * scale).widened(pool.spread)


def parse_spec(content: Any, source: str = "spec") -> Spec:
    """Check a spec that was read from YAML or JSON.

    Raises:
        ConfigError: a key is wrong; the message names it.
    """
    return check_spec(Spec, content, source, "docs/forecast.md")


def read_spec(path: Path) -> Spec:
    """Read a spec from a YAML or JSON file.

    Raises:
        ConfigError: the file is missing, is no YAML, or a key is wrong.
    """
    return parse_spec(read_spec_file(path, "rerail forecast spec.yaml"), str(path))
