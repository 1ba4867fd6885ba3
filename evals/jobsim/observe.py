"""What a monitor would see of a simulated job: own compute per rank, transfers per communicator."""

from __future__ import annotations

import numpy as np

from rerail.evals.jobsim.simulate import Simulator
from rerail.evals.jobsim.spec import JobSpec
from rerail.tools.localize.observations import GroupTimes, JobTimes


def observe(spec: JobSpec, steps: int = 3, simulator: Simulator | None = None) -> JobTimes:
    """Simulate `steps` steps and return them as a monitoring window, ranks in global order."""
    simulator = simulator or Simulator(spec)
    runs = [simulator.step() for _ in range(steps)]
    n = spec.world_size
    index = np.arange(n).reshape(spec.dp, spec.pp, spec.tp)
    stage = np.broadcast_to(np.arange(spec.pp)[None, :, None], index.shape)
    groups = []
    if spec.tp > 1:
        groups.append(
            GroupTimes(
                spec.inner, index.reshape(-1, spec.tp),
                np.stack([run.tp_transfer_s.reshape(-1) for run in runs]),
                role=np.tile(np.arange(spec.pp), spec.dp),
            )
        )  # fmt: skip
    if spec.pp > 1:
        ends = np.stack([index[:, :-1, 0], index[:, 1:, 0]], axis=-1).reshape(-1, 2)
        groups.append(
            GroupTimes("pp", ends, np.stack([run.pp_transfer_s.reshape(-1) for run in runs]))
        )
    if spec.dp > 1:
        groups.append(
            GroupTimes(
                "dp", np.moveaxis(index, 0, -1).reshape(-1, spec.dp),
                np.stack([run.dp_transfer_s.reshape(-1) for run in runs]),
            )
        )  # fmt: skip
    return JobTimes(
        f"simulated {spec.dp}x{spec.pp}x{spec.tp}", np.arange(n), stage.reshape(-1).copy(),
        np.stack([run.self_s.reshape(-1) for run in runs]), None, groups,
        np.array([run.step_s for run in runs]), steps,
    )  # fmt: skip
