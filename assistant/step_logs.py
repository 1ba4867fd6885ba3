"""Step series out of any log that the readers understand, for `rerail detect`."""

from __future__ import annotations

from pathlib import Path

from rerail.assistant.call_series import read_call_series
from rerail.domain.series import StepSeries
from rerail.errors import EvidenceError
from rerail.log_parsers.collect import ScanPlan, collect
from rerail.log_parsers.step_series import series_of


def read_step_log(path: Path) -> list[StepSeries]:
    """Return the step series of one log file, from step lines or else from collective calls.

    Raises:
        EvidenceError: when the file cannot be read or holds no step lines.
    """
    collection = collect([path], ScanPlan(()))
    found = [one.series for view in collection.views for one in series_of(view, least=2)]
    if not found:
        found = read_call_series(path)
    if not found:
        raise EvidenceError(
            f"{path}: no step lines were found",
            subject=str(path),
            hint="a CSV with columns step,step_time_s works always",
        )
    return found
