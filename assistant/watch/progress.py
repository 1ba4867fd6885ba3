"""How far a job came and which batches were bad, read from its own step lines."""

from __future__ import annotations

import math
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
    return min(candidates, key=lambda one: (one.first, one.last), default=None)


def _between(series: StepSeries, bad: int) -> BadData:
    loss = series.loss if series.loss is not None else np.full(len(series), math.nan)
    good = series.step[(series.step < bad) & np.isfinite(loss)]
    return BadData(int(good.max()) + 1 if len(good) else bad, bad)


def _named_step(outcome: Outcome) -> int | None:
    fault = outcome.diagnosis.first_fault
    found = _STEP.findall(fault.text) if fault is not None else []
    return int(found[-1]) if found else None


def step_of_live_logs(paths: Iterable[Path]) -> int | None:
    """Return the highest step in the tails of logs that are still being written, or None."""
    from rerail.assistant.step_logs import read_step_log

    best: int | None = None
    with tempfile.TemporaryDirectory(prefix="rerail-tail-") as folder:
        for number, path in enumerate(paths):
            tail = Path(folder) / f"{number}-{path.name}"
            try:
                with path.open("rb") as stream:
                    stream.seek(max(0, path.stat().st_size - TAIL_BYTES))
                    tail.write_bytes(stream.read())
                steps = [int(one.step.max()) for one in read_step_log(tail) if len(one)]
            except (OSError, RerailError):
                continue
            best = max([*steps, *([best] if best is not None else [])], default=best)
    return best
