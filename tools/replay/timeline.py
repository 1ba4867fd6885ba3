"""An op-level timeline of a pipeline-parallel job as arrays: one row per op, one column per step.

The file format is that of the public what-if traces (ByteDance StragglerAnalysis, OSDI 2025): one
Parquet row per op with `dp_rank, stage, rank, step, optype, start_ts, duration, seq_id` and, where
known, `mc, gmc, mb_id`. All workers and steps share one program, so that ops become an axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rerail.domain.series import FloatArray
from rerail.errors import EvidenceError

REQUIRED = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id")
COMPUTE = ("forward-compute", "backward-compute")
P2P = ("forward-send", "forward-recv", "backward-send", "backward-recv")
DP_COLLECTIVES = ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce")
TAIL = ("gc", "layernorm-grads-all-reduce", "embedding-grads-all-reduce",
        "optimizer-clip-main-grad", "optimizer")  # fmt: skip
OP_TYPES = frozenset((*COMPUTE, *P2P, *DP_COLLECTIVES, *TAIL))
_MOST_S = 1e6


class Op(NamedTuple):
    """One op of the program: the `seq_id`-th of its type on a stage in each step."""

    stage: int
    optype: str
    seq_id: int
    mc: int
    gmc: int
    mb_id: int


@dataclass(frozen=True, eq=False)
class Timeline:
    """What each worker did in each step.

    `start_s` and `end_s` have the shape (ops, steps, dp ranks), in seconds since the first op of
    the step. `ranks[dp, stage]` is the global rank that was traced. `dropped_steps` lack ops.
    """

    name: str
    ops: list[Op]
    steps: NDArray[np.int64]
    dp_ranks: NDArray[np.int64]
    stages: NDArray[np.int64]
    ranks: NDArray[np.int64]
    start_s: FloatArray
    end_s: FloatArray
    dropped_steps: tuple[int, ...] = ()

    @property
    def duration_s(self) -> FloatArray:
        """Return end - start."""
        return self.end_s - self.start_s

    def step_time_s(self) -> FloatArray:
        """Return the measured time of each step, in seconds."""
        times: FloatArray = self.end_s.max(axis=(0, 2)) - self.start_s.min(axis=(0, 2))
        return times


def column_names(path: Path) -> list[str]:
    """Return the column names of a Parquet file.

    Raises:
        EvidenceError: pyarrow is not installed or the file is not Parquet.
    """
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise EvidenceError(
            f"{path}: reading Parquet needs pyarrow", subject=str(path),
            hint="pip install 'rerail[fast]'",
        ) from None  # fmt: skip
    try:
        return list(parquet.read_schema(path).names)
    except (OSError, arrow.ArrowException) as error:
        raise EvidenceError(
            f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})",
            subject=str(path), hint="rerail localize trace.parquet",
        ) from None  # fmt: skip


def read_timeline(path: Path) -> Timeline:
    """Read a timeline from Parquet.

    Steps in which a worker lacks an op of the program are dropped and named.

    Raises:
        EvidenceError: not Parquet, a column is missing, a value is out of range, or no step is
            complete.
    """
    columns = _columns(path)
    keep = columns["optype"]
    unknown = sorted(set(keep.tolist()) - OP_TYPES)
    if unknown:
        raise EvidenceError(
            f"{path}: op type {unknown[0]!r} is not one that the replay knows",
            subject=str(path),
            hint=f"known op types: {', '.join(sorted(OP_TYPES))}",
        )
    _check(path, columns)
    return _arrange(path, columns)


def _columns(path: Path) -> dict[str, NDArray[Any]]:
    names = column_names(path)
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise EvidenceError(
            f"{path}: column {missing[0]!r} is missing",
            subject=str(path), hint=f"an op timeline has the columns {', '.join(REQUIRED)}",
        )  # fmt: skip
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    table = parquet.read_table(path)
    out: dict[str, NDArray[Any]] = {}
    for name in (*REQUIRED, "mc", "gmc", "mb_id"):
        if name not in table.column_names:
            out[name] = np.full(table.num_rows, -1)
            continue
        column = table.column(name)
        if name == "optype":
            coded = column.combine_chunks().cast(arrow.string()).dictionary_encode()
            words = np.array(coded.dictionary.to_pylist(), dtype=str)
            out[name] = words[coded.indices.to_numpy()]
        else:
            out[name] = np.asarray(column.to_numpy())
    return out


def _check(path: Path, columns: dict[str, NDArray[Any]]) -> None:
    if not len(columns["step"]):
        raise EvidenceError(f"{path}: the timeline has no rows", subject=str(path))
    for name in ("start_ts", "duration"):
        values = columns[name].astype(np.float64)
        bad = ~np.isfinite(values) | (np.abs(values) > _MOST_S * 1e6)
        if name == "duration":
            bad |= (values < 0) | (values > _MOST_S)
        if bad.any():
            row = int(np.argmax(bad))
            raise EvidenceError(
                f"{path}: row {row + 1}: {name} is {values[row]}; seconds are expected",
                subject=str(path), hint="remove the row or convert the unit",
            )  # fmt: skip


def _arrange(path: Path, columns: dict[str, NDArray[Any]]) -> Timeline:
    steps, step_at = np.unique(columns["step"].astype(np.int64), return_inverse=True)
    dp_ranks, dp_at = np.unique(columns["dp_rank"].astype(np.int64), return_inverse=True)
    stages, stage_at = np.unique(columns["stage"].astype(np.int64), return_inverse=True)
    types, type_at = np.unique(columns["optype"], return_inverse=True)
    seq = columns["seq_id"].astype(np.int64)
    key = (stage_at * len(types) + type_at) * (int(seq.max()) + 1) + seq
    _, first, op_at = np.unique(key, return_index=True, return_inverse=True)
    ops = [
        Op(int(stage_at[i]), str(types[type_at[i]]), int(seq[i]), int(columns["mc"][i]),
           int(columns["gmc"][i]), int(columns["mb_id"][i]))
        for i in first
    ]  # fmt: skip
    shape = (len(ops), len(steps), len(dp_ranks))
    flat = (op_at * shape[1] + step_at) * shape[2] + dp_at
    seen = np.bincount(flat, minlength=int(np.prod(shape)))
    if seen.max() > 1:
        row = int(np.flatnonzero(seen[flat] > 1)[1])
        raise EvidenceError(
            f"{path}: row {row + 1} repeats {ops[op_at[row]].optype} {seq[row]} of step "
            f"{columns['step'][row]} on dp_rank {columns['dp_rank'][row]}",
            subject=str(path), hint="one row per op, worker and step; are two runs in this file?",
        )  # fmt: skip
    start = np.full(shape, np.nan)
    end = np.full(shape, np.nan)
    began = columns["start_ts"].astype(np.float64)
    start.reshape(-1)[flat] = began
    end.reshape(-1)[flat] = began + columns["duration"].astype(np.float64)
    whole = (seen.reshape(shape) == 1).all(axis=(0, 2))
    if not whole.any():
        gap = np.argwhere(seen.reshape(shape) == 0)[0]
        raise EvidenceError(
            f"{path}: no step is complete; {ops[gap[0]].optype} {ops[gap[0]].seq_id} of stage "
            f"{stages[ops[gap[0]].stage]} is missing on dp_rank {dp_ranks[gap[2]]} in step "
            f"{steps[gap[1]]}",
            subject=str(path), hint="trace whole steps on every worker",
        )  # fmt: skip
    start, end = start[:, whole], end[:, whole]
    zero = start.min(axis=(0, 2), keepdims=True)
    ranks = np.full((len(dp_ranks), len(stages)), -1, dtype=np.int64)
    ranks[dp_at, stage_at] = columns["rank"]
    return Timeline(
        str(path), ops, steps[whole], dp_ranks, stages, ranks, start - zero, end - zero,
        tuple(int(s) for s in steps[~whole]),
    )  # fmt: skip
