"""How long a pass takes on a pipeline stage: layers in series, ranks in parallel, shared collectives.

A rank's kernels between two collectives add up; the collective begins when the last of its ranks is
there (order statistics, one look-up) and takes one draw for all of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rerail.domain.series import FloatArray
from rerail.tools.forecast.durations import (
    Duration,
    constant,
    longer_of,
    max_moments,
    maximum,
    tabulated,
    total,
)
from rerail.tools.forecast.spec import Spec


@dataclass(frozen=True, eq=False)
class Segment:
    """Work of one rank up to a meeting of `ranks` ranks, then the collective; `count` times.

    `block` ranks have met before inside (a tensor-parallel group inside an expert group), so that
    only ranks / block of them are independent.
    """

    compute: Duration
    ranks: int
    block: int
    collective: Duration
    overlap: bool
    count: int

    def duration(self, load: float) -> Duration:
        """Return the time of one such segment on healthy ranks."""
        latest = maximum(self.compute.scaled(load), self.ranks // self.block)
        if self.overlap:
            return longer_of(latest, self.collective)
        return total([(latest, 1), (self.collective, 1)])


@dataclass(frozen=True, eq=False)
class PassTime:
    """The time of one pass on a stage, as a sum of segments; `load` multiplies its compute."""

    segments: tuple[Segment, ...]
    load: float

    def duration(self) -> Duration:
        """Return the time on healthy ranks."""
        return total([(one.duration(self.load), one.count) for one in self.segments])

    def moments(self, factors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd of the pass [groups] where ranks are slower by `factors` [groups, ranks].

        A segment that needs more ranks than are given takes the given ones in turn.
        """
        mean = np.zeros(len(factors))
        variance = np.zeros(len(factors))
        for one in self.segments:
            blocks = np.stack(
                [
                    factors[:, [i % factors.shape[1] for i in part]].max(axis=1)
                    for part in np.array_split(np.arange(one.ranks), max(1, one.ranks // one.block))
                ],
                axis=1,
            )
            first, spread = max_moments(one.compute, blocks)
            first, spread = first * self.load, spread * self.load
            if one.overlap:
                healthy = maximum(one.compute.scaled(self.load), one.ranks // one.block)
                both = one.duration(self.load)
                hidden = max(both.mean - healthy.mean, 0.0)
                first = np.maximum(first + hidden * (healthy.mean / first), one.collective.mean)
            else:
                first = first + one.collective.mean
                spread = np.hypot(spread, one.collective.sd)
            mean += one.count * first
            variance += one.count * spread**2
        return mean, np.sqrt(variance)


def pass_time(spec: Spec, names: Sequence[str], layers: int, load: float, scale: float) -> PassTime:
    """Return the time of a pass of so many layers; `scale` multiplies all communication."""
    inner = spec.parallel.group_size("cp")
    found: Counter[tuple[tuple[str, ...], int, str | None]] = Counter()
    chain: list[str] = []
    for name in list(names) * layers:
        group = spec.pools[name].group
        if group is None:
            chain.append(name)
            continue
        found[tuple(chain), spec.parallel.group_size(group), name] += 1
        chain = []
    if chain:
        found[tuple(chain), inner, None] += 1
    segments = [
        Segment(
            total([(spec.duration(n), c) for n, c in Counter(chain_names).items()]),
            ranks,
            1,
            constant(0.0) if name is None else spec.duration(name).scaled(scale),
            name is not None and spec.pools[name].overlap,
            count,
        )
        for (chain_names, ranks, name), count in found.items()
    ]
    return PassTime(tuple(_nested(segments)), load)


def _nested(segments: list[Segment]) -> list[Segment]:
    """Join small groups' segments into the wider group's where a pass has groups of several sizes.

    Between two meetings of a wide group the narrow ones meet several times; the wide group waits for
    the slowest sum of these, not for the sum of the slowest.
    """
    widths = sorted({one.ranks for one in segments})
    if len(widths) < 2:
        return segments
    wide = [one for one in segments if one.ranks == widths[-1]]
    narrow = [one for one in segments if one.ranks < widths[-1]]
    meetings = sum(one.count for one in wide)
    block = max(one.ranks for one in narrow)
    per_meeting = [(one.duration(1.0), max(1, round(one.count / meetings))) for one in narrow]
    joined = []
    for one in wide:
        own = maximum(one.compute, block)
        joined.append(
            Segment(
                total([*per_meeting, (own, 1)]),
                one.ranks,
                block,
                one.collective,
                one.overlap,
                one.count,
            )
        )
    return joined


def standard_shape(one: Duration) -> Duration:
    """Return the duration's shape with mean 0 and standard deviation 1."""
    if one.sd == 0.0:
        return constant(0.0)
    table = one.table
    return tabulated((table - table.mean()) / table.std(), "standard")


def lognormal_factors(
    rng: np.random.Generator, shape: tuple[int, int], rank_cv: float, node_cv: float, per_node: int
) -> FloatArray:
    """Return persistent factors [draws, ranks] of mean 1; ranks of a node share its part.

    Each rank's and each node's draws are stratified (a Latin hypercube).
    """
    out = np.ones(shape)
    if rank_cv:
        sigma = math.sqrt(math.log1p(rank_cv**2))
        out *= np.exp(sigma * _stratified(rng, shape) - sigma**2 / 2)
    if node_cv:
        sigma = math.sqrt(math.log1p(node_cv**2))
        nodes = -(-shape[1] // per_node)
        drawn = np.exp(sigma * _stratified(rng, (shape[0], nodes)) - sigma**2 / 2)
        out *= np.repeat(drawn, per_node, axis=1)[:, : shape[1]]
    return out


def _stratified(rng: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
    """Return standard Normal draws whose every column has one value in each of equal strata."""
    from scipy.special import ndtri

    strata = (np.arange(shape[0])[:, None] + rng.random(shape)) / shape[0]
    return np.asarray(rng.permuted(ndtri(strata), axis=0))
