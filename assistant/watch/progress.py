"""How far a job came and which batches were bad, read from its own step lines."""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rerail.assistant.pipeline import Outcome
from rerail.domain.series import StepSeries
from rerail.errors import RerailError
from rerail.log_parsers.step_series import series_of
from rerail.recovery.safe_files import open_regular

LOSS_FAULTS = frozenset({"loss_nan", "loss_divergence"})
LEAST_BEFORE = 10
"""Finite losses from before the fault that are needed to say what was usual."""
MOST_AT_END = 30
TAIL_BYTES = 256 << 10
_STEP = re.compile(r"\b(?:step|iteration|iter)\s*[:=#]?\s*(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BadData:
    """The first and last batch (inclusive) that can hold what spoiled the loss."""

    first: int
    last: int


def last_step(outcome: Outcome) -> int | None:
    """Return the highest training step that the logs report, or None."""
    steps = [int(one.step.max()) for one in _series(outcome) if len(one)]
    return max(steps, default=None)


def _series(outcome: Outcome) -> list[StepSeries]:
    return [one.series for view in outcome.collection.views for one in series_of(view, least=2)]


def bad_data(outcome: Outcome) -> BadData | None:
    """Return which batches can have spoiled the loss, or None where the logs do not say.

    Between the last good logged step and the first bad one lie the batches in doubt; a job that
    logs every step leaves one. A bad step may stand in a step line (NaN, or a spike that the
    detector finds) or in the message of the fault itself.
    """
    from rerail.tools.detectors.detect import detect
    from rerail.tools.detectors.events import EventKind

    candidates: list[BadData] = []
    for series in _series(outcome):
        if series.loss is None:
            continue
        kinds = (EventKind.LOSS_SPIKE, EventKind.NAN)
        onsets = [event.step for event in detect(series).events if event.kind in kinds]
        if onsets:
            candidates.append(_between(series, min(onsets)))
    if not candidates and (named := _named_step(outcome)) is not None:
        with_loss = [one for one in _series(outcome) if one.loss is not None]
        candidates = [_between(one, named) for one in with_loss]
    if not candidates and outcome.diagnosis.failure_type in LOSS_FAULTS:
        candidates = [one for series in _series(outcome) if (one := _at_the_end(series))]
    return min(candidates, key=lambda one: (one.first, one.last), default=None)


def _at_the_end(series: StepSeries) -> BadData | None:
    """Return the batches in doubt where the job itself ended for its loss and named no step.

    A single high loss is no event for the detector, but where it made the job stop it is the one
    meant: the rows at the end that all stand out from those before them. Where none does, the bad
    step was not logged any more: it lies behind the last one that was.
    """
    if series.loss is None:
        return None
    known = np.flatnonzero(np.isfinite(series.loss))
    loss, step = series.loss[known], series.step[known]
    if len(loss) <= LEAST_BEFORE:
        return None
    high = 0
    for count in range(1, min(MOST_AT_END, len(loss) - LEAST_BEFORE) + 1):
        before = loss[max(0, len(loss) - count - 2 * LEAST_BEFORE) : len(loss) - count]
        centre = float(np.median(before))
        spread = 1.4826 * float(np.median(np.abs(before - centre)))
        if float(loss[-count:].min()) > centre + max(5.0 * spread, 0.1 * abs(centre)):
            high = count
    if high:
        return _between(series, int(step[-high]))
    every = max(1, int(np.median(np.diff(step[-2 * LEAST_BEFORE :]))))
    return BadData(int(step[-1]) + 1, int(step[-1]) + every)


def _between(series: StepSeries, bad: int) -> BadData:
    loss = series.loss if series.loss is not None else np.full(len(series), math.nan)
    good = series.step[(series.step < bad) & np.isfinite(loss)]
    return BadData(int(good.max()) + 1 if len(good) else bad, bad)


def _named_step(outcome: Outcome) -> int | None:
    fault = outcome.diagnosis.first_fault
    found = _STEP.findall(fault.text) if fault is not None else []
    return int(found[-1]) if found else None


def step_of_live_logs(paths: Iterable[Path], owner: int | None = None) -> int | None:
    """Return the highest step in the tails of logs that are still being written, or None.

    With `owner`, a file of another account is not read: the job chose the path.
    """
    from rerail.assistant.step_logs import read_step_log

    best: int | None = None
    with tempfile.TemporaryDirectory(prefix="rerail-tail-") as folder:
        for number, path in enumerate(paths):
            tail = Path(folder) / f"{number}-{path.name}"
            try:
                owners = () if owner is None else (owner,)
                handle = open_regular(path, owners=owners, follow=True)
                with os.fdopen(handle, "rb") as stream:
                    stream.seek(max(0, os.fstat(handle).st_size - TAIL_BYTES))
                    tail.write_bytes(stream.read(TAIL_BYTES))
                steps = [int(one.step.max()) for one in read_step_log(tail) if len(one)]
            except (OSError, RerailError):
                continue
            best = max([*steps, *([best] if best is not None else [])], default=best)
    return best
