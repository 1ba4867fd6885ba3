"""Step series out of collective calls: NCCL COLL logs, Inspector files, flight-recorder dumps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rerail.domain.series import FloatArray, StepSeries
from rerail.log_parsers.collective_calls import (
    CallLog,
    has_nccl_calls,
    inspector_call_logs,
    nccl_call_logs,
    recorder_call_log,
)
from rerail.log_parsers.flight_recorder.loader import load_dumps
from rerail.log_parsers.flight_recorder.model import Dump
from rerail.log_parsers.flight_recorder.recognise import looks_like_flight_recorder
from rerail.tools.detectors.iterations import find_iterations

_HEAD = 1 << 20
_COARSE = 10.0


def read_call_series(path: Path) -> list[StepSeries]:
    """Return one series per process whose calls show iterations; none if the file holds no calls.

    The step time is the time between the anchors of `find_iterations`. Stamps that are coarse
    against the step (whole seconds) are averaged over as many iterations as ten of them need.
    """
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    logs: list[CallLog] = []
    if looks_like_flight_recorder(head, path.name):
        logs = [recorder_call_log(d) for d in load_dumps([path]) if isinstance(d, Dump)]
    elif b'"coll_perf"' in head:
        logs = inspector_call_logs(path)
    elif has_nccl_calls(head):
        with path.open("rb") as stream:
            logs = nccl_call_logs(stream)
    series = [_series(path, log) for log in logs]
    return [one for one in series if one is not None]


def _series(path: Path, log: CallLog) -> StepSeries | None:
    symbols, times, kinds = log.arrays()
    if not len(symbols) or not np.isfinite(times).all():
        return None
    found = find_iterations(symbols, kinds)
    if found is None:
        return None
    at = times[found.starts]
    fold = _fold(at, times)
    at = at[::fold]
    took = np.diff(at) / fold
    number = np.arange(1, len(took) + 1) * fold
    name = f"{path.name} {log.name}, iterations from collective calls"
    if fold > 1:
        name += f", mean of {fold}"
    return StepSeries(name, number.astype(np.int64), took, time=at[1:])


def _fold(starts_s: FloatArray, times_s: FloatArray) -> int:
    steps = np.diff(np.unique(times_s))
    if not len(steps) or len(starts_s) < 2:
        return 1
    resolution = float(steps.min())
    typical = float(np.median(np.diff(starts_s)))
    whole = float(np.mean(np.diff(starts_s)))
    # Clocks with fractions show steps far below the iteration; whole seconds do not.
    if resolution < 0.5 or typical >= _COARSE * resolution:
        return 1
    return max(1, min(len(starts_s) // 8, round(_COARSE * resolution / max(whole, 1e-9))))
