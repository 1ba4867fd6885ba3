"""Run a simulated job: every op of every rank, with waits, transfers and faults.

The recursion is exact for a static schedule (an op starts when its rank is free and its input has
arrived); data- and tensor-parallel ranks are array axes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rerail.domain.series import FloatArray
from rerail.evals.jobsim.spec import JobSpec
from rerail.tools.forecast.schedule import Pass, stage_order


@dataclass(eq=False)
class StepRun:
    """One simulated step. Arrays of the shape (dp, pp, tp) hold seconds per rank and step.

    `self_s` is the rank's own compute, the waits and transfers are inside the other three.
    Transfer arrays hold what the link itself took: `tp_s` (dp, pp), `pp_s` (dp, pp - 1) and
    `dp_s` (pp, tp). `passes` maps (stage, pass) to (start, end, arrival) of the shape (dp,).
    """

    step_s: float
    self_s: FloatArray
    tp_dur_s: FloatArray
    recv_dur_s: FloatArray
    dp_dur_s: FloatArray
    tp_transfer_s: FloatArray
    pp_transfer_s: FloatArray
    dp_transfer_s: FloatArray
    passes: dict[tuple[int, Pass], tuple[FloatArray, FloatArray]]
    gradients: tuple[FloatArray, FloatArray]
    recvs: dict[tuple[int, Pass], tuple[FloatArray, FloatArray]]


class Simulator:
    """Draws steps of one job; the same spec and seed give the same steps."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.rng = np.random.default_rng(spec.seed)
        self.orders = [
            stage_order(stage, spec.pp, spec.micro_batches, spec.chunks) for stage in range(spec.pp)
        ]
        self.factor = spec.compute_factor() * spec.stage_factor()[None, :, None]
        self.links = self._link_factors()

    def _link_factors(self) -> dict[str, FloatArray]:
        spec = self.spec
        pp = np.ones((spec.dp, max(spec.pp - 1, 1)))
        tp = np.ones((spec.dp, spec.pp))
        ring = np.ones((spec.pp, spec.tp))
        launch = np.zeros((spec.dp, spec.pp, spec.tp))
        first = np.zeros(spec.dp)
        for fault in spec.faults:
            if fault.kind == "pp_link":
                pp[fault.dp, fault.stage] *= fault.ratio
            elif fault.kind == "tp_link":
                tp[fault.dp, fault.stage] *= fault.ratio
            elif fault.kind == "dp_ring":
                ring[fault.stage, fault.tp] *= fault.ratio
            elif fault.kind == "cpu":
                launch[fault.dp, fault.stage, fault.tp] += (fault.ratio - 1) * spec.forward_s
            elif fault.kind == "storage":
                first[fault.dp] += (fault.ratio - 1) * spec.forward_s * spec.micro_batches
        return {"pp": pp, "tp": tp, "dp": ring, "launch": launch, "first": first}

    def _noise(self, *shape: int) -> FloatArray:
        out: FloatArray = np.exp(
            self.rng.standard_normal(shape, dtype=np.float32) * self.spec.noise
        )
        return out

    def step(self) -> StepRun:
        """Simulate one step."""
        spec = self.spec
        shape = (spec.dp, spec.pp, spec.tp)
        lengths = np.exp(self.rng.normal(0, spec.length_sigma, (spec.dp, spec.micro_batches)))
        run = StepRun(
            0.0, np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape),
            np.zeros((spec.dp, spec.pp)), np.zeros((spec.dp, max(spec.pp - 1, 1))),
            np.zeros((spec.pp, spec.tp)), {}, (np.zeros(0), np.zeros(0)), {},
        )  # fmt: skip
        free = np.tile(self.links["first"][:, None], (1, spec.pp))
        place = [0] * spec.pp
        arrived: dict[tuple[int, Pass], FloatArray] = {}
        left = sum(len(order) for order in self.orders)
        while left:
            moved = 0
            for stage in range(spec.pp):
                while place[stage] < len(self.orders[stage]):
                    one = self.orders[stage][place[stage]]
                    source = self._source(stage, one)
                    if source is not None and (stage, one) not in arrived:
                        break
                    self._run_pass(run, stage, one, free, arrived, lengths, source)
                    place[stage] += 1
                    moved += 1
            left -= moved
            if not moved:
                raise ValueError("the schedule cannot run: stages wait for each other")
        self._gradients(run, free)
        return run

    def _source(self, stage: int, one: Pass) -> int | None:
        """Return the stage that sends this pass its input, or None at the ends of the model."""
        spec = self.spec
        if one.forward:
            if stage == 0 and one.chunk == 0:
                return None
            return (stage - 1) % spec.pp
        if stage == spec.pp - 1 and one.chunk == spec.chunks - 1:
            return None
        return (stage + 1) % spec.pp

    def _run_pass(
        self, run: StepRun, stage: int, one: Pass, free: FloatArray,
        arrived: dict[tuple[int, Pass], FloatArray], lengths: FloatArray, source: int | None,
    ) -> None:  # fmt: skip
        spec = self.spec
        idle = free[:, stage].copy()
        begin = idle
        if source is not None:
            ready = arrived.pop((stage, one))
            begin = np.maximum(idle, ready)
            run.recvs[stage, one] = (idle, begin)
            run.recv_dur_s[:, stage] += (begin - idle)[:, None]
        usual = spec.forward_s if one.forward else spec.backward_s
        work = usual * self._noise(spec.dp, spec.tp) * self.factor[:, stage]
        work = work * lengths[:, one.micro_batch, None]
        delayed = work + self.links["launch"][:, stage]
        run.self_s[:, stage] += delayed
        slowest = delayed.max(axis=1)
        end = begin + slowest
        if spec.tp > 1:
            transfer = spec.tp_s * self.links["tp"][:, stage] * self._noise(spec.dp)
            run.tp_transfer_s[:, stage] += transfer
            run.tp_dur_s[:, stage] += (slowest[:, None] - delayed) + transfer[:, None]
            end = end + transfer
        free[:, stage] = end
        run.passes[stage, one] = (begin, end)
        self._send(run, stage, one, end, arrived)

    def _send(
        self, run: StepRun, stage: int, one: Pass, end: FloatArray,
        arrived: dict[tuple[int, Pass], FloatArray],
    ) -> None:  # fmt: skip
        spec = self.spec
        step = 1 if one.forward else -1
        target, chunk = stage + step, one.chunk
        if not 0 <= target < spec.pp:
            chunk += step
            target %= spec.pp
            if not 0 <= chunk < spec.chunks:
                return
        edge = min(stage, target) if abs(stage - target) == 1 else None
        slow = self.links["pp"][:, edge] if edge is not None else 1.0
        transfer = spec.p2p_s * slow * self._noise(spec.dp)
        if edge is not None:
            run.pp_transfer_s[:, edge] += transfer
        arrived[target, Pass(one.forward, chunk, one.micro_batch)] = end + transfer

    def _gradients(self, run: StepRun, free: FloatArray) -> None:
        spec = self.spec
        ready = free.copy()
        latest = ready.max(axis=0)
        transfer = spec.dp_transfer_s() * self.links["dp"] * self._noise(spec.pp, spec.tp)
        shown = transfer * (0.2 if spec.overlap_dp else 1.0)
        run.dp_transfer_s = shown
        run.dp_dur_s = (latest[None, :, None] - ready[:, :, None]) + shown[None]
        done = latest + shown.max(axis=1)
        run.gradients = (ready, done)
        run.step_s = float(done.max()) + spec.optimizer_s
