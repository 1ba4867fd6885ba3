"""Write a simulated job as the op-level timeline that `rerail localize` replays."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from rerail.domain.series import FloatArray
from rerail.evals.jobsim.simulate import Simulator, StepRun
from rerail.evals.jobsim.spec import JobSpec


def write_timeline(spec: JobSpec, path: Path) -> None:
    """Simulate the job and write its timeline as Parquet, one traced rank per (dp, stage)."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    simulator = Simulator(spec)
    rows: dict[str, list[Any]] = defaultdict(list)
    for step in range(spec.steps):
        _step_rows(spec, simulator.step(), step, rows)
    parquet.write_table(arrow.table(dict(rows)), path)


def _step_rows(spec: JobSpec, run: StepRun, step: int, rows: dict[str, list[Any]]) -> None:
    number: dict[tuple[int, str], int] = defaultdict(int)

    def add(stage: int, optype: str, start: FloatArray, end: FloatArray, mc: int = -1,
            gmc: int = -1, micro_batch: int = -1) -> None:  # fmt: skip
        seq = number[stage, optype]
        number[stage, optype] += 1
        for dp in range(spec.dp):
            rows["dp_rank"].append(dp)
            rows["stage"].append(stage)
            rows["rank"].append(spec.rank(dp, stage))
            rows["step"].append(step)
            rows["optype"].append(optype)
            rows["start_ts"].append(float(start[dp]))
            rows["duration"].append(max(0.0, float(end[dp] - start[dp])))
            rows["seq_id"].append(seq)
            rows["mc"].append(mc)
            rows["gmc"].append(gmc)
            rows["mb_id"].append(micro_batch)

    sends: dict[int, list[tuple[float, str, FloatArray, FloatArray]]] = defaultdict(list)
    for (stage, one), (start, end) in run.passes.items():
        name = "forward" if one.forward else "backward"
        if (stage, one) in run.recvs:
            idle, arrival = run.recvs[stage, one]
            add(stage, f"{name}-recv", idle, arrival)
        add(stage, f"{name}-compute", start, end, one.chunk, one.chunk * spec.pp + stage,
            one.micro_batch)  # fmt: skip
    ends = {
        (stage, "forward" if one.forward else "backward", one.chunk, one.micro_batch): end
        for (stage, one), (_, end) in run.passes.items()
    }
    for (stage, one), (_, arrival) in run.recvs.items():
        name = "forward" if one.forward else "backward"
        source = (stage + (-1 if one.forward else 1)) % spec.pp
        chunk = one.chunk
        if abs(source - stage) != 1 or spec.pp == 1:
            chunk += -1 if one.forward else 1
        sent = ends[source, name, chunk, one.micro_batch]
        sends[source].append((float(sent[0]), f"{name}-send", sent, np.maximum(sent, arrival)))
    for stage, ones in sends.items():
        for _, optype, start, end in sorted(ones, key=lambda item: item[0]):
            add(stage, optype, start, end)
    ready, done_s = run.gradients
    for stage in range(spec.pp):
        finish = np.full(spec.dp, float(done_s[stage]))
        add(stage, "params-all-gather", np.zeros(spec.dp), np.full(spec.dp, 1e-6), mc=0)
        add(stage, "gc", ready[:, stage], ready[:, stage])
        add(stage, "grads-reduce-scatter", ready[:, stage], finish, mc=0)
        latest = np.full(spec.dp, float(done_s.max()))
        add(stage, "optimizer-clip-main-grad", finish, latest + 1e-4)
        add(stage, "optimizer", latest + 1e-4, latest + 1e-4 + spec.optimizer_s)
