"""Step series out of any log that the readers understand, for `rerail detect`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rerail.assistant.call_series import read_call_series
from rerail.domain.series import StepSeries
from rerail.errors import EvidenceError
from rerail.knowledge_base.causality.work_of_steps import with_work
from rerail.log_parsers.collect import ScanPlan, collect
from rerail.log_parsers.step_series import LogSeries, series_of
from rerail.log_parsers.view import LogView


def read_step_log(path: Path) -> list[StepSeries]:
    """Return the step series of one log file, from step lines or else from collective calls.

    Raises:
        EvidenceError: when the file cannot be read or holds no step lines.
    """
    collection = collect([path], ScanPlan(()))
    found = [_explained(view, one) for view in collection.views for one in series_of(view, least=2)]
    wrong = tuple(f"{one.subject}: {one.why}" for one in collection.problems)
    if wrong and found:
        found[0] = replace(found[0], remarks=wrong)
    if not found and path.is_file():
        found = read_call_series(path)
    if not found:
        raise EvidenceError(
            "; ".join((f"{path}: no step lines were found", *wrong)),
            subject=str(path),
            hint="a CSV with columns step,step_time_s works always",
        )
    return found


def _explained(view: LogView, one: LogSeries) -> StepSeries:
    """Return a series with what its lines say of the work of its steps."""
    sized = with_work(view, one, view.survey.kept.keys())
    return one.series if sized is None else replace(one.series, may_explain=sized.tokens)


def read_good_runs(paths: Sequence[Path]) -> list[Sequence[StepSeries]]:
    """Return the series of good runs of a job: a log, a file of numbers, a table, or a folder of one of them.

    Raises:
        EvidenceError: One cannot be read, holds no steps, or is no good run.
    """
    from rerail.assistant.read_steps import read_steps
    from rerail.tools.detectors.with_baseline import good_runs

    return good_runs([(str(path), read_steps(path, read_step_log)) for path in paths])
