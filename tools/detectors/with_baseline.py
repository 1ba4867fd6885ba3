"""What good runs of the same job add to the verdict on a series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rerail.domain.series import StepSeries
from rerail.errors import EvidenceError
from rerail.tools.detectors.against_runs import against_runs
from rerail.tools.detectors.detect import detect
from rerail.tools.detectors.events import SeriesOutcome, SeriesReport

_NO_GOOD = frozenset(
    {
        SeriesOutcome.NAN,
        SeriesOutcome.HANG,
        SeriesOutcome.LOSS_DIVERGENCE,
        SeriesOutcome.INSUFFICIENT,
    }
)
_QUIET = frozenset({SeriesOutcome.HEALTHY, SeriesOutcome.INSUFFICIENT})
_SLOW = frozenset({"step time", "throughput"})


def good_runs(paths: Sequence[tuple[str, Sequence[StepSeries]]]) -> list[Sequence[StepSeries]]:
    """Return the series of each good run, given as (path, series).

    Raises:
        EvidenceError: a run that is called good is none: its loss is NaN or diverges, or it has too few steps.
    """
    kept: list[Sequence[StepSeries]] = []
    for path, found in paths:
        judged = [(one, detect(one)) for one in found]
        good = [one for one, report in judged if report.outcome not in _NO_GOOD]
        if not good:
            report = judged[0][1]
            raise EvidenceError(
                f"{path} cannot serve as a good run: {report.outcome}, {report.reason or 'no steps'}",
                subject=path,
                hint=f"rerail detect {path}",
            )
        kept.append(good)
    return kept


def with_baseline(
    series: StepSeries, report: SeriesReport, runs: Sequence[Sequence[StepSeries]]
) -> SeriesReport:
    """Return the report with what differs from good runs, each given as its series.

    Of a good run with several series that of the same rank counts, else the one that reports most.
    """
    checks = against_runs(series, [like(series, run) for run in runs])
    worse = [c for c in checks if c.worse and c.status in ("established", "supported")]
    if not worse or report.outcome not in _QUIET:
        return replace(report, baseline=checks)
    slow = all(check.what in _SLOW for check in worse)
    return replace(
        report,
        outcome=SeriesOutcome.FAIL_SLOW if slow else SeriesOutcome.WORSE_THAN_BASELINE,
        # A wrong setting says why; what it did to the loss follows from it.
        reason=min(worse, key=lambda c: (c.status != "established", c.what in _SLOW)).says,
        baseline=checks,
    )


def like(series: StepSeries, run: Sequence[StepSeries]) -> StepSeries:
    """Return the series of a run that a series is held against: of the same rank, else that with most columns."""

    def reports(one: StepSeries) -> tuple[bool, int, int]:
        columns = (one.loss, one.learning_rate, one.throughput, one.grad_norm)
        return (
            series.rank is not None and one.rank == series.rank,
            sum(column is not None for column in columns),
            len(one),
        )

    return max(run, key=reports)
