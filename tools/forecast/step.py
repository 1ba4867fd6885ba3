"""The distribution of the step time of a job, composed from its spec.

Replicas that are alike are drawn once and their maximum is taken by order statistics; named slow
nodes make classes of their own; persistent effects of unknown size are drawn with each sample;
calm and congested steps are composed apart and mixed, since all ranks share the regime of a step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rerail.domain.series import FloatArray
from rerail.tools.forecast.durations import Duration, empirical, maximum, tabulated, total
from rerail.tools.forecast.engine import Draw, deterministic, simulate
from rerail.tools.forecast.program import Program, graph_program, pipeline_program
from rerail.tools.forecast.spec import Spec
from rerail.tools.forecast.stages import PassTime, lognormal_factors, pass_time, standard_shape
from rerail.tools.forecast.tails import slowest, standard_error

Places = tuple[tuple[float, ...], ...]
"""For each stage the factors of its ranks, by how much each is slower than usual."""
Kind = tuple[str, int, float, float]
"""What a pass's time depends on: pass, layers, load of the stage, scale of communication."""
_LEAST_SAMPLES = 200
_MANY_REPLICAS = 16
_JOBS, _STEPS = 256, 16  # of a graph whose effects persist
_BUDGET = 24_000_000  # drawn ops that cost below a second
_BANK = 1 << 16  # drawn groups times their ranks
_LEAST_GROUPS, _FEWEST_GROUPS = 256, 64
_MOST_DRAWN = 1 << 20  # ranks of the least groups


@dataclass(frozen=True, eq=False)
class RegimePart:
    """The step time in one regime and the regime's share of the steps."""

    share: float
    step: Duration
    classes: tuple[tuple[FloatArray, float], ...] = field(repr=False)


@dataclass(frozen=True, eq=False)
class StepForecast:
    """What a step takes, in seconds.

    `standard_error_p95_s` is that of the drawing, not of the spec. `replica` is one pipeline alone.
    `persistent_sd_s` is by how much a job's mean step differs from job to job, `drift_sd_s` by how
    much the regime moves it within a run of one step.
    """

    name: str
    step: Duration
    replica: Duration
    replicas: int
    samples: int
    standard_error_p95_s: float
    persistent_sd_s: float = 0.0
    parts: tuple[RegimePart, ...] = ()
    regime_steps: float = 1.0
    notes: tuple[str, ...] = ()

    def percentile(self, percent: float) -> float:
        """Return a percentile of the step time, in seconds."""
        return float(self.step.quantile(np.array([percent / 100.0]))[0])


class StepModel:
    """A spec made ready to draw from.

    Persistent effects of unknown size are drawn for at most `most_groups` groups of ranks: fewer cost
    less and suffice where forecasts are compared that share their draws.
    """

    def __init__(self, spec: Spec, most_groups: int = 8192) -> None:
        self.spec = spec
        self.most_groups = most_groups
        self.program = _program(spec)
        self._times: dict[Kind, PassTime] = {}
        self._durations: dict[Kind, Duration] = {}
        self._shapes: dict[Kind, Duration] = {}
        self._moments: dict[tuple[Kind, tuple[float, ...]], tuple[float, float]] = {}
        self._banks: dict[tuple[Kind, tuple[float, ...]], tuple[FloatArray, FloatArray]] = {}

    def forecast(
        self, samples: int = 20_000, seed: int = 0, *, errors: bool = True
    ) -> StepForecast:
        """Compose the step time.

        `samples` pipelines are drawn in each regime and class of replicas: fewer where there are
        many classes, up to ten times as many where pipelines are short and replicas many, since the
        slowest of them lies far in the tail. Without `errors` the standard error and what persists are left at 0.
        """
        spec = self.spec
        classes = self.classes()
        if sum(classes.values()) >= _MANY_REPLICAS:
            cheap = _BUDGET // max(1, len(self.program.nodes))
            samples = max(samples, min(10 * samples, cheap))
        parts = []
        for share, scale in self.regimes():
            drawn = []
            for places, count in classes.items():
                wanted = samples if count == max(classes.values()) else samples // len(classes)
                drawn.append(
                    (self.replica_samples(places, scale, max(_LEAST_SAMPLES, wanted), seed), count)
                )
            parts.append(self.step_part(share, scale, drawn, seed))
        mixed = mixture(parts, seed)
        error = 0.0
        if errors:
            error = max(standard_error(p.classes, 0.95, seed) for p in parts if p.share >= 0.05)
        regime = spec.effects.regime
        common = max(parts, key=lambda one: one.share).classes
        biggest = max(common, key=lambda item: item[1])[0]
        return StepForecast(
            spec.name,
            mixed,
            tabulated(empirical(biggest).table, "replica"),
            sum(classes.values()),
            samples,
            error,
            self.persistent_sd(biggest, seed) if errors else 0.0,
            tuple(parts),
            1.0 if regime is None else regime.steps,
        )

    def step_part(
        self, share: float, scale: float, drawn: Sequence[tuple[FloatArray, float]], seed: int = 0
    ) -> RegimePart:
        """Return the step of one regime: the slowest of the drawn replicas, and what runs after it."""
        most = slowest(drawn)
        step = total([(most, 1), *((one, 1) for one in self._after(scale))], seed)
        return RegimePart(share, step, tuple(drawn))

    @property
    def _groups(self) -> int:
        """Return how many groups of ranks are drawn where persistent effects are of unknown size."""
        ranks = self.spec.parallel.world_size // self.spec.parallel.replicas
        ranks = ranks // self.spec.parallel.pp
        least = max(_FEWEST_GROUPS, min(_LEAST_GROUPS, _MOST_DRAWN // ranks))
        return min(self.most_groups, max(least, _BANK // ranks))

    def regimes(self) -> list[tuple[float, float]]:
        """Return (share, scale of communication) of each regime that occurs."""
        regime = self.spec.effects.regime
        if regime is None or regime.share == 0.0:
            return [(1.0, 1.0)]
        return [(1.0 - regime.share, 1.0), (regime.share, regime.scale)]

    def classes(self) -> Counter[Places]:
        """Return how many replicas there are of each kind: healthy ones, and those with slow nodes."""
        parallel = self.spec.parallel
        healthy: Places = tuple((1.0,) for _ in range(parallel.pp))
        found: Counter[Places] = Counter()
        touched: dict[int, dict[int, list[float]]] = {}
        if self.spec.graph is None:
            for slow in self.spec.nodes.slow:
                for replica, stage, inside, width in self._ranks_of(slow.node):
                    ranks = touched.setdefault(replica, {}).setdefault(stage, [1.0] * width)
                    ranks[inside] = slow.ratio
        for stages in touched.values():
            found[tuple(tuple(stages.get(s, [1.0])) for s in range(parallel.pp))] += 1
        if parallel.replicas > len(touched):
            found[healthy] += parallel.replicas - len(touched)
        return found

    def _ranks_of(self, node: int) -> list[tuple[int, int, int, int]]:
        """Return (replica, stage, rank inside the group, ranks of the group) of a node's ranks."""
        parallel, per = self.spec.parallel, self.spec.nodes.gpus_per_node
        inner = parallel.tp * parallel.cp
        joined = parallel.dp // parallel.replicas
        out = []
        for rank in range(node * per, min((node + 1) * per, parallel.world_size)):
            inside, outer = rank % inner, rank // inner
            if parallel.rank_order == "tp-cp-pp-dp":
                dp, stage = divmod(outer, parallel.pp)
            else:
                stage, dp = divmod(outer, parallel.dp)
            replica, member = divmod(dp, joined)
            out.append((replica, stage, member * inner + inside, inner * joined))
        return out

    def replica_samples(
        self, places: Places, scale: float, samples: int, seed: int = 0
    ) -> FloatArray:
        """Draw the time of one replica [samples], in seconds, its persistent effects included."""
        draws = self.draws(places, scale, samples, seed)
        return simulate(self.program, draws, samples, seed)

    def draws(self, places: Places, scale: float, samples: int, seed: int = 0) -> list[Draw]:
        """Return how each op of a replica is drawn."""
        if self.spec.graph is not None:
            return self._graph_draws(scale, samples, seed)
        made: dict[tuple[str, int], Draw] = {}
        rng = np.random.default_rng([seed, 7])
        picks: dict[int, np.ndarray] = {
            s: rng.integers(0, self._groups, samples) for s in range(self.spec.parallel.pp)
        }
        out = []
        for node in self.program.nodes:
            at = (node.duration, node.place)
            if at not in made:
                made[at] = self._draw(*at, places, scale, picks, seed)
            out.append(made[at])
        return out

    def _draw(
        self, key: str, stage: int, places: Places, scale: float,
        picks: Mapping[int, np.ndarray], seed: int,
    ) -> Draw:  # fmt: skip
        if key == "transfer":
            assert self.spec.transfer is not None
            return Draw(self._kept(("transfer", 1, 1.0, scale)))
        kind = self._kind(key, stage, scale)
        factors = places[stage]
        effects = self.spec.effects
        if not effects.rank_cv and not effects.node_cv:
            if all(factor == 1.0 for factor in factors):
                return Draw(self._kept(kind))
            mean, sd = self._group_moments(kind, factors)
            return Draw(self._shape(kind), mean, sd)
        means, sds = self._bank(kind, factors, seed)
        return Draw(self._shape(kind), means[picks[stage]], sds[picks[stage]])

    def _kind(self, key: str, stage: int, scale: float) -> Kind:
        load = 1.0 if self.spec.stage_load is None else self.spec.stage_load[stage]
        return key, self.spec.layers[stage] // self.spec.schedule.chunks, load, scale

    def _time(self, kind: Kind) -> PassTime:
        if kind not in self._times:
            assert self.spec.passes is not None
            names = getattr(self.spec.passes, kind[0])
            self._times[kind] = pass_time(self.spec, names, kind[1], kind[2], kind[3])
        return self._times[kind]

    def _kept(self, kind: Kind) -> Duration:
        if kind not in self._durations:
            if kind[0] == "transfer":
                assert self.spec.transfer is not None
                self._durations[kind] = self.spec.duration(self.spec.transfer).scaled(kind[3])
            else:
                self._durations[kind] = self._time(kind).duration()
        return self._durations[kind]

    def _shape(self, kind: Kind) -> Duration:
        if kind not in self._shapes:
            self._shapes[kind] = standard_shape(self._kept(kind))
        return self._shapes[kind]

    def _group_moments(self, kind: Kind, factors: tuple[float, ...]) -> tuple[float, float]:
        if (kind, factors) not in self._moments:
            mean, sd = self._time(kind).moments(np.array([factors]))
            self._moments[kind, factors] = float(mean[0]), float(sd[0])
        return self._moments[kind, factors]

    def _bank(
        self, kind: Kind, factors: tuple[float, ...], seed: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd [groups] of a pass on groups whose persistent effects were drawn."""
        if (kind, factors) in self._banks:
            return self._banks[kind, factors]
        spec = self.spec
        parallel = spec.parallel
        # Forward and backward passes run on the same ranks, whichever groups meet in them.
        together = parallel.world_size // (parallel.pp * parallel.replicas)
        width = max(self._time(kind).ranks, together)
        rng = np.random.default_rng([seed, 11])
        effects = spec.effects
        drawn = lognormal_factors(
            rng, (self._groups, width), effects.rank_cv, effects.node_cv, self._ranks_of_a_node
        )
        known = np.array([factors[i % len(factors)] for i in range(width)])
        self._banks[kind, factors] = self._time(kind).moments(drawn * known)
        return self._banks[kind, factors]

    @property
    def _ranks_of_a_node(self) -> int:
        """Return how many neighbouring ranks of one stage share a node."""
        parallel, per = self.spec.parallel, self.spec.nodes.gpus_per_node
        if parallel.pp > 1 and parallel.rank_order == "tp-cp-pp-dp":
            return min(per, parallel.tp * parallel.cp)
        return per

    def _graph_draws(self, scale: float, samples: int, seed: int, steps: int = 1) -> list[Draw]:
        """Return how each op of the graph is drawn; effects last for so many samples on end."""
        spec = self.spec
        assert spec.graph is not None
        per = spec.nodes.gpus_per_node
        slow = {one.node: one.ratio for one in spec.nodes.slow}
        ranks = 1 + max((node.place for node in self.program.nodes), default=0)
        effects = spec.effects
        drawn: FloatArray | None = None
        if effects.rank_cv or effects.node_cv:
            rng = np.random.default_rng([seed, 13])
            shape = (samples // steps, max(ranks, 1))
            drawn = lognormal_factors(rng, shape, effects.rank_cv, effects.node_cv, per)
            drawn = np.repeat(drawn, steps, axis=0)
        kept: dict[str, Duration] = {}
        out = []
        for node in self.program.nodes:
            pool = spec.pools[node.duration]
            one = kept.setdefault(node.duration, spec.duration(node.duration))
            if pool.group is not None or node.place < 0:
                out.append(Draw(one, scale=scale))
                continue
            factor: float | FloatArray = slow.get(node.place // per, 1.0)
            if drawn is not None:
                factor = factor * drawn[:, node.place]
            out.append(Draw(one, scale=factor))
        return out

    def _after(self, scale: float) -> list[Duration]:
        """Return what all ranks do after the slowest replica: collectives once, compute at the latest."""
        parallel = self.spec.parallel
        out = []
        for name in self.spec.step:
            one = self.spec.duration(name)
            if self.spec.pools[name].group is None:
                out.append(maximum(one, parallel.world_size))
            else:
                # Every inner rank has a ring of its own; the last one ends the step.
                out.append(maximum(one.scaled(scale), parallel.tp * parallel.cp))
        return out

    def replica_means(self, factors: FloatArray, scale: float = 1.0) -> FloatArray:
        """Return the time of replicas without noise [replicas], in seconds.

        `factors` [replicas, stages] are how much slower each stage's slowest rank is.
        """
        seconds: list[FloatArray | float] = []
        for node in self.program.nodes:
            if node.duration == "transfer":
                seconds.append(self._kept(("transfer", 1, 1.0, scale)).mean)
                continue
            time = self._time(self._kind(node.duration, node.place, scale))
            still = time.communication_s
            mean = self._kept(self._kind(node.duration, node.place, scale)).mean
            seconds.append(still + (mean - still) * factors[:, node.place])
        return deterministic(self.program, seconds)

    def persistent_sd(self, replica: FloatArray, seed: int = 0, jobs: int = 48) -> float:
        """Return how much the mean step differs between jobs whose effects are drawn, in seconds."""
        effects, parallel = self.spec.effects, self.spec.parallel
        if not (effects.rank_cv or effects.node_cv):
            return 0.0
        if self.spec.graph is not None:
            return self._graph_persistent_sd(seed)
        rng = np.random.default_rng([seed, 17])
        count = min(parallel.replicas, 512)
        means = {}
        for node in self.program.nodes:
            key = (node.duration, node.place)
            if node.duration == "transfer" or key in means:
                continue
            kind = self._kind(node.duration, node.place, 1.0)
            means[key] = self._bank(kind, (1.0,), seed)[0]
        picks = rng.integers(0, self._groups, (jobs * count, parallel.pp))
        seconds = [
            self._kept(("transfer", 1, 1.0, 1.0)).mean
            if node.duration == "transfer"
            else means[node.duration, node.place][picks[:, node.place]]
            for node in self.program.nodes
        ]
        fixed = deterministic(self.program, seconds).reshape(jobs, count)
        noise = float(np.sqrt(max(replica.var() - fixed.var(), 0.0)))
        # The slowest replica of a job: its own mean plus what noise adds, alike in all jobs.
        slow = np.sort(fixed + noise * rng.standard_normal((64, jobs, count)), axis=-1)[..., -1]
        return float(slow.mean(axis=0).std(ddof=1))

    def _graph_persistent_sd(self, seed: int) -> float:
        """Return the spread of the mean step over jobs of some steps each, that of noise taken out."""
        draws = self._graph_draws(1.0, _JOBS * _STEPS, seed, _STEPS)
        drawn = simulate(self.program, draws, _JOBS * _STEPS, seed).reshape(_JOBS, _STEPS)
        noise = float(drawn.var(axis=1, ddof=1).mean()) / _STEPS
        return float(np.sqrt(max(drawn.mean(axis=1).var(ddof=1) - noise, 0.0)))


def _program(spec: Spec) -> Program:
    if spec.graph is not None:
        return graph_program(
            {name: (op.pool, op.rank, op.after) for name, op in spec.graph.items()}
        )
    schedule = spec.schedule
    return pipeline_program(
        spec.parallel.pp,
        schedule.micro_batches,
        schedule.kind,
        schedule.chunks,
        spec.transfer is not None,
    )


def mixture(parts: Sequence[RegimePart], seed: int) -> Duration:
    """Return the step time over all regimes, each with its share."""
    if len(parts) == 1:
        return parts[0].step
    size = 1 << 16
    rng = np.random.default_rng(seed)
    values = []
    left = size
    for one in parts[:-1]:
        count = round(one.share * size)
        left -= count
        values.append(one.step.quantile((np.arange(count) + rng.random()) / max(count, 1)))
    values.append(parts[-1].step.quantile((np.arange(left) + 0.5) / max(left, 1)))
    return tabulated(np.concatenate(values))
