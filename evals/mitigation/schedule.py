"""The 64-GPU schedule of slow phases that FALCON published (16 data-parallel groups, 4 stages), replayed.

Start, length in seconds and what is slow are the paper's. How slow each phase is was not published,
so two numbers are fitted to the paper's own two results: how much slower a slow GPU is, so that the
run without mitigation has the paper's throughput (14.8 it/min), and how much a slow link costs
beside a slow GPU, so that the paper's own strategy, simulated, has its published throughput
(16.2 it/min, 60.1 per cent). Then ours runs on the same two numbers. Reaction times and costs are
charged as the paper reports or assumes them. How much depends on the second number is shown by
`replay_at`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rerail.recovery.mitigation.escalation import Cause, Escalation, Option, Remedy
from rerail.recovery.mitigation.micro_batches import split_by_table
from rerail.tools.forecast.replica_time import replica_time_s, table_s

GROUPS, STAGES, BATCHES = 16, 4, 16
HEALTHY_PER_MIN, SLOW_PER_MIN, PAPER_PER_MIN = 17.1, 14.8, 16.2
PAPER_RECOVERED = 0.601
REACTION_S = 10.56
S2_COST_S, S3_COST_S, S4_COST_S = 0.5, 60.0, 900.0
PAPER_S2_STEPS = (
    5  # Algorithm 1 with its released constants: S2 once five slow steps have been lost
)
EXCHANGE_SHARE = 0.15
LINK_LEAVES = 0.14  # of a slow link's loss, once it serves the pipeline (placements.link_recovered)
END_S = 3720.0


@dataclass(frozen=True)
class Phase:
    """One slow phase; `groups` are the slow data-parallel groups, or () for a slow exchange."""

    start_s: float
    length_s: float
    groups: int

    def at(self, time_s: float) -> bool:
        """Whether it is going on."""
        return self.start_s <= time_s < self.start_s + self.length_s


SCHEDULE = tuple(
    Phase(*one)
    for one in (
        *(
            (212, 97, 1),
            (510, 126, 2),
            (710, 1025, 0),
            (1191, 140, 1),
            (1396, 108, 3),
            (1612, 209, 2),
        ),
        *((1868, 67, 3), (2078, 339, 0), (2504, 111, 1), (2785, 155, 3), (3096, 507, 0)),
    )
)


class Strategy(StrEnum):
    """Who decides."""

    NONE = "none"
    PAPER = "paper"
    OURS = "ours"


@dataclass(frozen=True)
class Replay:
    """Iterations a minute of each strategy, shares of the loss recovered, and what was fitted."""

    slow_gpu: float
    link_cost: float
    slow_per_min: float
    paper_per_min: float
    ours_per_min: float
    paper_recovered: float
    ours_recovered: float
    applied: dict[str, int]


class Run:
    """One pass through the schedule. `link_cost` is in units of what one slow GPU costs a step."""

    def __init__(self, slow_gpu: float, link_cost: float, strategy: Strategy) -> None:
        self.slow_gpu = slow_gpu
        self.strategy = strategy
        self.healthy_s = 60.0 / HEALTHY_PER_MIN
        plain = replica_time_s((1.0,) * STAGES, BATCHES)
        self.unit_s = self.healthy_s * (1.0 - EXCHANGE_SHARE) / plain
        self.applied: dict[str, int] = {}
        self._known: dict[tuple[int, bool], float] = {}
        self.link_excess_s = link_cost * self.excess_s(1, rebalanced=False)

    def excess_s(self, slow_groups: int, *, rebalanced: bool) -> float:
        """Return what slow groups add to a step, with an even or the best split."""
        key = slow_groups, rebalanced
        if key not in self._known:
            slow = (self.slow_gpu,) + (1.0,) * (STAGES - 1)
            rows = [slow] * slow_groups + [(1.0,) * STAGES] * (GROUPS - slow_groups)
            time = max(replica_time_s(row, BATCHES) for row in rows)
            if rebalanced:
                tables = [table_s(row, 2 * BATCHES) for row in rows]
                counts = split_by_table(tables, GROUPS * BATCHES)
                time = max(t[c - 1] for t, c in zip(tables, counts, strict=True))
            self._known[key] = self.unit_s * (time - replica_time_s((1.0,) * STAGES, BATCHES))
        return self._known[key]

    def per_minute(self) -> float:
        """Return the mean throughput over the whole schedule."""
        now, steps = 0.0, 0
        phases: dict[Phase, Decider] = {}
        while now < END_S:
            active = [one for one in SCHEDULE if one.at(now)]
            phases = {one: known for one, known in phases.items() if one in active}
            computing = exchanging = pause = 0.0
            for one in active:
                known = phases.get(one)
                done = known.applied if known is not None else Remedy.IGNORE
                if one.groups:
                    left = self.excess_s(one.groups, rebalanced=done is Remedy.MICRO_BATCHES)
                    excess = self.excess_s(one.groups, rebalanced=False)
                    computing = max(computing, 0.0 if done is Remedy.RESTART else left)
                else:
                    excess = self.link_excess_s
                    leaves = {Remedy.PLACEMENT: LINK_LEAVES, Remedy.RESTART: 0.0}.get(done, 1.0)
                    exchanging += excess * leaves
                if self.strategy is not Strategy.NONE and now - one.start_s >= REACTION_S:
                    pause += self._decide(phases, one, excess)
            now += self.healthy_s + computing + exchanging + pause
            steps += 1
        return 60.0 * steps / now

    def _decide(self, phases: dict[Phase, Decider], one: Phase, excess: float) -> float:
        """Let the decider of a phase take this step; return the cost of what it applies."""
        if one not in phases:
            phases[one] = self._decider(one, excess)
        chosen = phases[one].step(self.healthy_s + excess, excess)
        if chosen is None:
            return 0.0
        self.applied[str(chosen)] = self.applied.get(str(chosen), 0) + 1
        return next(option.cost_s for option in phases[one].options if option.remedy is chosen)

    def _decider(self, one: Phase, excess: float) -> Decider:
        if one.groups:
            left = self.excess_s(one.groups, rebalanced=True)
            options = [Option(Remedy.MICRO_BATCHES, S2_COST_S, left / excess)]
        else:
            options = [Option(Remedy.PLACEMENT, S3_COST_S, LINK_LEAVES)]
        options.append(Option(Remedy.RESTART, S4_COST_S, 0.0))
        if self.strategy is Strategy.PAPER:
            return PaperEscalation(options)
        cause = Cause.COMPUTE if one.groups else Cause.COMMUNICATION
        return Escalation(options, cause, self.healthy_s, at_once_s=20.0)


@dataclass
class PaperEscalation:
    """Algorithm 1 of the paper: the whole loss since the onset against each strategy's overhead."""

    options: list[Option]
    applied: Remedy = Remedy.IGNORE
    _lost_s: float = 0.0
    _next: int = 0

    def step(self, time_s: float, excess_s: float) -> Remedy | None:
        """Take one slow step; return the strategy to apply now, or None."""
        self._lost_s += excess_s
        if self._next >= len(self.options):
            return None
        option = self.options[self._next]
        first = option.remedy is Remedy.MICRO_BATCHES
        if self._lost_s < (PAPER_S2_STEPS * excess_s if first else option.cost_s):
            return None
        self._next += 1
        self.applied = option.remedy
        return option.remedy


Decider = Escalation | PaperEscalation


def _fit_gpu(link_cost: float) -> float:
    """Return the slowness of a slow GPU that gives the paper's throughput without mitigation."""
    low, high = 1.0, 8.0
    for _ in range(30):
        middle = (low + high) / 2
        if Run(middle, link_cost, Strategy.NONE).per_minute() > SLOW_PER_MIN:
            low = middle
        else:
            high = middle
    return high


def _recovered(per_minute: float, slow: float) -> float:
    return (per_minute - slow) / (HEALTHY_PER_MIN - slow)


def replay_at(link_cost: float) -> Replay:
    """Fit the slow GPU to the paper's slow throughput for a given cost of a slow link; run all."""
    gpu = _fit_gpu(link_cost)
    slow = Run(gpu, link_cost, Strategy.NONE).per_minute()
    paper = Run(gpu, link_cost, Strategy.PAPER).per_minute()
    run = Run(gpu, link_cost, Strategy.OURS)
    ours = run.per_minute()
    shares = (_recovered(paper, slow), _recovered(ours, slow))
    return Replay(gpu, link_cost, slow, paper, ours, *shares, run.applied)


def replay() -> Replay:
    """Return the replay whose simulated paper strategy comes nearest to the published result."""
    low, high = 0.0, 4.0
    for _ in range(16):
        middle = (low + high) / 2
        if replay_at(middle).paper_per_min > PAPER_PER_MIN:
            low = middle
        else:
            high = middle
    return replay_at(low)
