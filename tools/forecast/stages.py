"""How long a pass takes on a pipeline stage: layers in series, ranks in parallel, shared collectives.

A rank's kernels between two collectives add up; the collective begins when the last of its ranks is
there (order statistics, one look-up) and takes one draw for all of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rerail.domain.series import FloatArray
from rerail.tools.forecast.durations import (
    Duration,
    constant,
    longer_of,
    max_located,
    max_moments,
    maximum,
    tabulated,
    total,
)
from rerail.tools.forecast.spec import Spec


@dataclass(frozen=True, eq=False)
class Segment:
    """What `ranks` ranks do up to a meeting of them all, then the collective; `count` times.

    A rank runs `compute` where no narrower group meets before. Else groups of `block` ranks (a
    tensor-parallel group inside an expert group) run the segments of `inner` one after the other,
    and the meeting waits for the slowest sum of these, not for the sum of the slowest.
    """

    ranks: int
    compute: Duration
    inner: tuple[Segment, ...]
    collective: Duration
    overlap: bool
    count: int
    load: float

    @property
    def block(self) -> int:
        """Return how many ranks have met before, so that only ranks / block of them are independent."""
        return max((one.ranks for one in self.inner), default=1)

    @cached_property
    def part(self) -> Duration:
        """Return the time of one block up to the meeting, on healthy ranks."""
        if not self.inner:
            return self.compute.scaled(self.load)
        return total([(one.duration, one.count) for one in self.inner])

    @cached_property
    def latest(self) -> Duration:
        """Return when the last healthy rank is there."""
        return maximum(self.part, max(1, self.ranks // self.block))

    @cached_property
    def duration(self) -> Duration:
        """Return the time of one such segment on healthy ranks, the collective included."""
        if self.overlap:
            return longer_of(self.latest, self.collective)
        return total([(self.latest, 1), (self.collective, 1)])

    @property
    def communication_s(self) -> float:
        """Return the mean seconds of collectives that no compute hides, those within included."""
        shown = self.duration.mean - self.latest.mean if self.overlap else self.collective.mean
        return shown + sum(one.count * one.communication_s for one in self.inner)

    def moments(self, factors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd [groups] of one segment on ranks slower by `factors` [groups, ranks].

        Only compute is slower: collectives, those of `inner` included, take what they take.
        """
        mean, sd = self._latest_moments(factors)
        if not self.overlap:
            return mean + self.collective.mean, np.hypot(sd, self.collective.sd)
        hidden = self.collective
        alike = np.ones(len(factors))
        return max_located(
            [
                (standard_shape(self.latest), mean, sd),
                (standard_shape(hidden), hidden.mean * alike, hidden.sd * alike),
            ]
        )

    def _latest_moments(self, factors: FloatArray) -> tuple[FloatArray, FloatArray]:
        if not self.inner:
            mean, sd = max_moments(self.compute, factors)
            return mean * self.load, sd * self.load
        shape = standard_shape(self.part)
        blocks = []
        for begin in range(0, self.ranks, self.block):
            mine = factors[:, begin : begin + self.block]
            blocks.append((shape, *_sum_of_moments(self.inner, mine)))
        return max_located(blocks)


@dataclass(frozen=True, eq=False)
class PassTime:
    """The time of one pass on a stage, as a sum of segments."""

    segments: tuple[Segment, ...]

    @property
    def ranks(self) -> int:
        """Return how many ranks the widest meeting of the pass has."""
        return max(one.ranks for one in self.segments)

    @property
    def communication_s(self) -> float:
        """Return the mean seconds of collectives that no compute hides."""
        return sum(one.count * one.communication_s for one in self.segments)

    def duration(self) -> Duration:
        """Return the time on healthy ranks."""
        return total([(one.duration, one.count) for one in self.segments])

    def moments(self, factors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd of the pass [groups] where ranks are slower by `factors` [groups, ranks].

        Where the ranks make several groups that do not meet within the pass, the group of the
        longest mean counts: the others wait for it at the next meeting.
        """
        wide = self.ranks
        if factors.shape[1] < wide:
            factors = factors[:, np.arange(wide) % factors.shape[1]]
        mean, sd = _sum_of_moments(self.segments, factors[:, :wide])
        for begin in range(wide, factors.shape[1] - wide + 1, wide):
            other, spread = _sum_of_moments(self.segments, factors[:, begin : begin + wide])
            sd = np.where(other > mean, spread, sd)
            mean = np.maximum(mean, other)
        return mean, sd


def _sum_of_moments(
    segments: Sequence[Segment], factors: FloatArray
) -> tuple[FloatArray, FloatArray]:
    mean, variance = np.zeros(len(factors)), np.zeros(len(factors))
    for one in segments:
        first, spread = one.moments(factors[:, : one.ranks])
        mean += one.count * first
        variance += one.count * spread**2
    return mean, np.sqrt(variance)


def pass_time(spec: Spec, names: Sequence[str], layers: int, load: float, scale: float) -> PassTime:
    """Return the time of a pass of so many layers; `scale` multiplies all communication."""
    work = _Work(spec, load, scale)
    chain = tuple(list(names) * layers)
    inner = spec.parallel.group_size("cp")
    wide = work.widest(chain)
    pieces, rest = work.split(chain, wide)
    if rest and wide > inner and not spec.pools[pieces[0][1]].overlap:
        # What follows the last wide collective waits at the first one of the next pass.
        pieces[0] = (rest + pieces[0][0], pieces[0][1])
        rest = ()
    segments = work.segments(pieces, wide)
    if rest:
        segments.append(work.segment(rest, max(wide, inner), None, 1))
    return PassTime(tuple(segments))


@dataclass(frozen=True)
class _Work:
    """Makes segments of the pools that a pass runs one after the other."""

    spec: Spec
    load: float
    scale: float

    def width(self, name: str) -> int:
        """Return how many ranks meet in this pool: 0 for compute."""
        group = self.spec.pools[name].group
        return 0 if group is None else self.spec.parallel.group_size(group)

    def widest(self, chain: Sequence[str]) -> int:
        """Return how many ranks the widest meeting has: 0 where there is none."""
        return max((self.width(name) for name in chain), default=0)

    def split(
        self, chain: tuple[str, ...], width: int
    ) -> tuple[list[tuple[tuple[str, ...], str]], tuple[str, ...]]:
        """Return (what runs before, collective) of each meeting of this width, and what is left."""
        pieces, begin = [], 0
        for i, name in enumerate(chain):
            if width and self.width(name) == width:
                pieces.append((chain[begin:i], name))
                begin = i + 1
        return pieces, chain[begin:]

    def segments(self, pieces: Sequence[tuple[tuple[str, ...], str]], width: int) -> list[Segment]:
        """Return one segment for each different piece, with how often it occurs."""
        return [
            self.segment(chain, width, name, count)
            for (chain, name), count in Counter(pieces).items()
        ]

    def segment(self, chain: tuple[str, ...], ranks: int, name: str | None, count: int) -> Segment:
        """Return the segment of these pools up to the collective `name`."""
        compute, inner = constant(0.0), []
        narrow = self.widest(chain)
        if narrow:
            pieces, rest = self.split(chain, narrow)
            inner = self.segments(pieces, narrow)
            if rest:
                inner.append(self.segment(rest, narrow, None, 1))
        elif chain:
            compute = total([(self.spec.duration(n), c) for n, c in Counter(chain).items()])
        met = constant(0.0) if name is None else self.spec.duration(name).scaled(self.scale)
        overlap = name is not None and self.spec.pools[name].overlap
        return Segment(ranks, compute, tuple(inner), met, overlap, count, self.load)


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
