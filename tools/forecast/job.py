"""How long the whole job takes: steps, checkpoints, failures and restarts; spares; the deadline.

Checkpoint interval: Young 1974 and Daly 2006, sqrt(2 w / (N r)). Expected time of a segment with
exponential failures of mean M, restarts of R: M e^(R/M) (e^((tau + w)/M) - 1) (Daly 2006, eq. 20).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from rerail.domain.series import FloatArray
from rerail.errors import ConfigError
from rerail.tools.durations import seconds
from rerail.tools.forecast.presets import preset
from rerail.tools.forecast.spec import Job
from rerail.tools.forecast.step import StepForecast

DAY_S = 86_400.0
_MOST_EXACT = 400_000
_MOST_TRAINING_S = 1e12
_LEAST_INTERVAL_S = 0.01


@dataclass(frozen=True)
class Reliability:
    """What fails and what it costs: nodes, failures per node and day, seconds of each cost."""

    nodes: int
    failures_per_node_day: float
    checkpoint_s: float
    restart_s: float
    every_s: float | None

    @property
    def mean_between_s(self) -> float:
        """Return the mean seconds between failures of the job."""
        rate = self.nodes * self.failures_per_node_day
        return DAY_S / rate if rate > 0 else math.inf

    @property
    def young_daly_s(self) -> float:
        """Return the best seconds of training between checkpoints; infinite where nothing fails."""
        if math.isinf(self.mean_between_s):
            return math.inf
        return math.sqrt(2 * self.checkpoint_s * self.mean_between_s)

    @property
    def interval_s(self) -> float:
        """Return the seconds of training between checkpoints, as given or the best."""
        return self.young_daly_s if self.every_s is None else self.every_s

    def goodput(self) -> float:
        """Return training time over all time, expected over failures."""
        tau, mean = self.interval_s, self.mean_between_s
        if math.isinf(mean):
            return 1.0 if math.isinf(tau) else tau / (tau + self.checkpoint_s)
        exponent = (tau + self.checkpoint_s) / mean
        if exponent > 500 or self.restart_s / mean > 500:
            return 0.0
        return tau / (mean * math.exp(self.restart_s / mean) * math.expm1(exponent))

    def spares(self, repair_s: float, sure: float = 0.99) -> int:
        """Return how many spare nodes suffice with this probability at any moment.

        Nodes under repair are Poisson with mean nodes x rate x repair time.
        """
        from scipy.stats import poisson

        return int(poisson.ppf(sure, self.nodes * self.failures_per_node_day * repair_s / DAY_S))


@dataclass(frozen=True, eq=False)
class JobForecast:
    """Job time in seconds over many drawn runs, and what it consists of."""

    steps: int
    reliability: Reliability
    goodput: float
    train_s: float
    time_s: FloatArray = field(repr=False)
    failures: float = 0.0
    spares: int = 0
    repair_s: float = DAY_S
    deadline_s: float | None = None
    notes: tuple[str, ...] = ()

    def percentile(self, percent: float) -> float:
        """Return a percentile of the job time, in seconds."""
        return float(np.percentile(self.time_s, percent))

    @property
    def misses_deadline(self) -> float | None:
        """Return the probability of missing the deadline, or None without one."""
        if self.deadline_s is None:
            return None
        return float((self.time_s > self.deadline_s).mean())

    @property
    def misses_deadline_error(self) -> float | None:
        """Return the Monte Carlo standard error of `misses_deadline` (Laplace's rule at 0 and 1)."""
        if self.deadline_s is None:
            return None
        count = len(self.time_s)
        share = (float((self.time_s > self.deadline_s).sum()) + 1) / (count + 2)
        return math.sqrt(share * (1 - share) / count)


def reliability_of(job: Job, nodes: int) -> tuple[Reliability, tuple[str, ...]]:
    """Return the job's reliability, presets filled in, and notes on where numbers come from.

    Raises:
        ConfigError: no failure rate is known, or failures without any checkpoint interval.
    """
    notes: list[str] = []
    rate = job.failures_per_node_day
    restart = job.restart_s
    if job.preset is not None:
        known = preset(job.preset)
        notes.append(f"failure rate of {known.title}: {known.source}")
        rate = known.failures_per_node_day if rate is None else rate
        if known.restart_s is not None and "restart_s" not in job.model_fields_set:
            restart = known.restart_s
    if rate is None:
        rate = 0.0
        notes.append("no failures: give job.failures_per_node_day or job.preset")
    if rate > 0 and job.checkpoint_every_s is None and job.checkpoint_s == 0:
        raise ConfigError(
            "job.checkpoint_every_s: a job that fails needs checkpoints",
            subject="job.checkpoint_every_s",
            hint="give job.checkpoint_s (then the best interval is used) or the interval itself",
        )
    return Reliability(nodes, rate, job.checkpoint_s, restart, job.checkpoint_every_s), tuple(notes)


def forecast_job(
    step: StepForecast, job: Job, nodes: int, runs: int = 4000, seed: int = 0
) -> JobForecast:
    """Draw whole runs of a job.

    Raises:
        ConfigError: as `reliability_of`, the job would never end, or its interval is too short.
    """
    known, notes = reliability_of(job, nodes)
    rng = np.random.default_rng([seed, 23])
    train = _training(step, job.steps, runs, rng)
    if train.max() > _MOST_TRAINING_S:
        raise ConfigError(
            f"job.steps: so many steps train for {train.mean() / DAY_S / 365:.3g} years",
            subject="job.steps", hint="give fewer job.steps, or shorter durations",
        )  # fmt: skip
    if known.interval_s < _LEAST_INTERVAL_S:
        raise ConfigError(
            f"job.checkpoint_every_s: a checkpoint every {known.interval_s:.2g} s is no interval",
            subject="job.checkpoint_every_s", hint="give job.checkpoint_every_s of a second or more",
        )  # fmt: skip
    goodput = known.goodput()
    if goodput < 1e-6 and math.isinf(known.mean_between_s):
        raise ConfigError(
            f"job.checkpoint_every_s: checkpoints of {seconds(known.checkpoint_s)} every "
            f"{seconds(known.interval_s)} of training leave the job no time",
            subject="job.checkpoint_every_s", hint="give a longer job.checkpoint_every_s",
        )  # fmt: skip
    if goodput < 1e-6:
        raise ConfigError(
            "job: failures come so often that the job would never end "
            f"(one every {seconds(known.mean_between_s)})",
            subject="job.failures_per_node_day",
            hint="shorten job.checkpoint_every_s or job.restart_s",
        )
    total, failures = draw_runs(train, known, rng)
    return JobForecast(
        job.steps, known, goodput, float(train.mean()), total, float(failures.mean()),
        known.spares(job.repair_s) if known.failures_per_node_day else 0, job.repair_s,
        job.deadline_s, notes,
    )  # fmt: skip


def _training(step: StepForecast, steps: int, runs: int, rng: np.random.Generator) -> FloatArray:
    """Draw the time of all steps without failures [runs], in seconds."""
    within = sum(part.share * part.step.sd**2 for part in step.parts) or step.step.sd**2
    mean = step.step.mean
    between = sum(part.share * (part.step.mean - mean) ** 2 for part in step.parts)
    # A regime lasts: steps of one phase are alike, which widens the sum (Markov, lag-1 rho).
    share = max((part.share for part in step.parts), default=1.0)
    leave = 1.0 / max(step.regime_steps, 1.0)
    enter = leave * (1.0 - share) / share if share > 0 else 1.0
    rho = max(0.0, 1.0 - leave - enter) if between > 0 else 0.0
    # Persistent effects are part of the drawn step; over a job they are one number, not noise.
    noise = max(within - step.persistent_sd_s**2, 0.0)
    sd = math.sqrt(steps * (noise + between * (1 + rho) / (1 - rho)))
    persistent = step.persistent_sd_s * steps
    drawn = steps * mean + math.hypot(sd, persistent) * rng.standard_normal(runs)
    return np.asarray(np.maximum(drawn, 0.0))


def draw_runs(
    train_s: FloatArray, known: Reliability, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw the whole time and the number of failures of runs that train for `train_s` seconds."""
    if math.isinf(known.mean_between_s):
        every = known.interval_s
        saves = np.floor(train_s / every) if math.isfinite(every) else np.zeros(len(train_s))
        return train_s + saves * known.checkpoint_s, np.zeros(len(train_s))
    mean, tau, save = known.mean_between_s, known.interval_s, known.checkpoint_s
    whole = np.floor(train_s / tau).astype(int)
    rest = train_s - whole * tau
    failures = np.zeros(len(train_s))
    lost = np.zeros(len(train_s))
    for count, length in ((whole, np.full(len(train_s), tau + save)), (np.ones_like(whole), rest)):
        survive = np.exp(-length / mean)
        drawn = np.where(count > 0, rng.negative_binomial(np.maximum(count, 1), survive), 0)
        lost += _sum_of_truncated(drawn, length, mean, rng)
        failures += drawn
    again = rng.negative_binomial(
        np.maximum(failures, 1).astype(int), math.exp(-known.restart_s / mean)
    )
    again = np.where(failures > 0, again, 0)
    lost += failures * known.restart_s
    lost += _sum_of_truncated(again, np.full(len(train_s), known.restart_s), mean, rng)
    return train_s + whole * save + lost, failures + again


def _sum_of_truncated(
    counts: np.ndarray, length: FloatArray, mean: float, rng: np.random.Generator
) -> FloatArray:
    """Draw sums of `counts` exponential times of this mean, each known to be below `length`."""
    out = np.zeros(len(counts))
    if int(counts.sum()) == 0:
        return out
    if int(counts.sum()) <= _MOST_EXACT:
        owner = np.repeat(np.arange(len(counts)), counts)
        top = -np.expm1(-length[owner] / mean)
        times = -mean * np.log1p(-rng.random(len(owner)) * top)
        np.add.at(out, owner, times)
        return out
    # Many failures: the sum is Normal by its exact moments.
    ratio = length / mean
    gone = -np.expm1(-ratio)
    first = mean - length * np.exp(-ratio) / gone
    second = 2 * mean * first - length**2 * np.exp(-ratio) / gone
    spread = np.sqrt(np.maximum(counts * (second - first**2), 0.0))
    return np.asarray(np.maximum(counts * first + spread * rng.standard_normal(len(counts)), 0.0))
