"""The job's step series beside good runs of the same job: what a log alone cannot show.

Wrong labels, a learning rate of zero and a run that is slow from its first step print no error and have no
healthy part to compare with. The comparison is `rerail.tools.detectors.against_runs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rerail.knowledge_base.case import Case

if TYPE_CHECKING:
    from rerail.log_parsers.step_series import LogSeries
    from rerail.tools.detectors.against_runs import Check

MIN_ROWS = 5
_CERTAIN = ("established", "supported")
_LEAVES = {"learning rate": "config_error", "loss": "target_not_reached"}
_FROM_START = "fix_code_or_config_do_not_restart"


def checks_of(case: Case, one: LogSeries) -> tuple[Check, ...]:
    """Return what differs between a series and the good runs; nothing where none were given."""
    if not case.good_runs:
        return ()
    from rerail.tools.detectors.against_runs import against_runs
    from rerail.tools.detectors.with_baseline import like

    return against_runs(one.series, [like(one.series, run) for run in case.good_runs])


def worst(checks: tuple[Check, ...]) -> Check | None:
    """Return the difference that says most, if one is certain enough for a verdict.

    A wrong setting says why; what it did to the loss follows from it.
    """
    bad = [check for check in checks if check.worse and check.status in _CERTAIN]
    order = list(_LEAVES)
    return min(bad, key=lambda c: order.index(c.what) if c.what in order else 9, default=None)


def leaf_of(check: Check) -> str:
    """Return the failure type that a difference is."""
    return _LEAVES.get(check.what, "fail_slow_unexplained")


def action_of(check: Check) -> str | None:
    """Return the action where it is not that of the failure type: nothing to roll back to is good."""
    return _FROM_START if check.what == "loss" and check.from_start else None


def beside_good(case: Case) -> tuple[str, tuple[Check, ...]] | None:
    """Return the name of the series that reports most and what differs; None without good runs."""
    if not case.good_runs:
        return None
    from rerail.log_parsers.step_series import series_of

    found = [
        one
        for view in case.views
        if len(view.survey.steps) >= MIN_ROWS
        for one in series_of(view, least=MIN_ROWS)
    ]
    if not found:
        return "", ()
    chosen = max(found, key=_reports)
    return chosen.series.name, checks_of(case, chosen)


def _reports(one: LogSeries) -> tuple[int, int]:
    series = one.series
    columns = (series.loss, series.learning_rate, series.throughput)
    return sum(column is not None for column in columns), len(series)
