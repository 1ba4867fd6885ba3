"""Step series out of a table, a file of numbers or a log, whichever it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from rerail.domain.series import StepSeries
from rerail.errors import EvidenceError

_TABLES = {".csv", ".tsv", ".parquet", ".pq"}
LogReader = Callable[[Path], list[StepSeries]]
"""Reads the step series of one log."""


def read_steps(path: Path, read_log: LogReader | None) -> list[StepSeries]:
    """Return the series of a table, a file of numbers or a log.

    Raises:
        EvidenceError: It cannot be read or holds no steps.
    """
    from rerail.log_parsers.series_files.recognise import is_metrics_csv
    from rerail.tools.detectors.read_series import UnknownColumnsError, read_series

    if path.suffix.lower() in _TABLES or read_log is None:
        try:
            found = read_series(path)
            if read_log is None or not is_metrics_csv(path):
                return found
            return _with_times(found, path, read_log)
        except UnknownColumnsError:
            # A logger's CSV has columns of its own; where that is none either, the first error says more.
            if read_log is None or not is_metrics_csv(path):
                raise
    if not path.exists():
        raise EvidenceError(f"{path} does not exist", subject=str(path))
    found = read_log(path)
    if not found:
        raise EvidenceError(
            f"{path} has no step lines that rerail can read",
            subject=str(path),
            hint="give a CSV file with the columns step,step_time_s",
        )
    return found


def _with_times(table: list[StepSeries], path: Path, read_log: LogReader) -> list[StepSeries]:
    """Return the series of a logger's table; where no column is known to tell the time of its steps, as a log is read.

    Loggers call that by many more names (`series_files/names.yaml`), and some write the rate instead.
    """
    if any(one.rank is not None or np.isfinite(one.step_time_s).any() for one in table):
        return table
    read = read_log(path)
    return read if any(np.isfinite(one.step_time_s).any() for one in read) else table
