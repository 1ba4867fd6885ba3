"""Failures that print no error: slow phases, loss spikes, NaN and stalls, found in step lines.

The detectors of `rerail.tools.detectors` judge; here their events are tied back to the log lines
of those steps and to leaves of the taxonomy.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.causality.case import Case
from rerail.knowledge_base.causality.progress import WEAK_FORMS
from rerail.log_parsers.metrics import StepRow
from rerail.log_parsers.view import LogView

if TYPE_CHECKING:
    from rerail.domain.series import FloatArray
    from rerail.tools.detectors.events import SeriesReport

MIN_ROWS = 5
_EVAL = re.compile(
    r'"key": "eval_(?:accuracy|loss|error)", "value": (?P<value>[-\d.eE+]+)(?:.*?"metric": "(?P<metric>\w+)")?'
)
MATERIAL_RATE = 0.05
"""Least share of the run's time that a slow phase in a throughput series must cost: a rate that is
averaged over a block of steps counts the pauses between them (evaluation, checkpoints) as slowness."""
SAME_EVALS = 3
"""Identical evaluation results in a row that no learning model gives."""


@dataclass(frozen=True, slots=True)
class NumericFinding:
    """One conclusion from numbers, at the log line where it shows first."""

    leaf: str
    line: LogLine
    what: str
    lost_s: float = 0.0
    rank: int | None = None
    lines: tuple[LogLine, ...] = ()


def analyse(case: Case) -> list[NumericFinding]:
    """Return what the step series of the case show, most serious first."""
    findings: list[NumericFinding] = []
    for view in case.views:
        groups: dict[tuple[str, int | None], list[StepRow]] = defaultdict(list)
        for row in view.survey.steps:
            groups[(row.form, row.rank)].append(row)
        for (form, rank), rows in groups.items():
            if form in WEAK_FORMS and len(groups) > 1:
                continue
            if len(rows) >= MIN_ROWS:
                findings += _series(view, form, rank, rows)
        findings += _frozen_evaluations(view)
    order = ["loss_nan", "loss_divergence", "target_not_reached", "fp16_loss_scale_exhausted", "fail_slow_unexplained"]
    return sorted(findings, key=lambda f: (order.index(f.leaf) if f.leaf in order else 9, -f.lost_s))


def _series(view: LogView, form: str, rank: int | None, rows: list[StepRow]) -> list[NumericFinding]:
    import numpy as np

    from rerail.domain.series import StepSeries
    from rerail.tools.detectors.detect import detect
    from rerail.tools.detectors.events import EventKind, SeriesOutcome, Stage

    rows = _one_per_step(rows)
    if len(rows) < MIN_ROWS:
        return []

    def column(name: str) -> FloatArray | None:
        values = [getattr(row, name) for row in rows]
        if all(v is None for v in values):
            return None
        return np.array([np.nan if v is None else v for v in values], dtype=float)

    times = column("step_time")
    if times is None and (rates := column("throughput")) is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            times = np.where(rates > 0, 1.0 / rates, np.nan)
    stamps = _stamps(view, rows)
    series = StepSeries(
        name=view.name,
        step=np.array([i if row.step is None else row.step for i, row in enumerate(rows)]),
        step_time_s=times if times is not None else np.full(len(rows), np.nan),
        rank=rank,
        loss=None if form == "hf_eval" else column("loss"),
        grad_norm=column("grad_norm"),
        loss_scale=column("loss_scale"),
        time=stamps,
    )
    report = detect(series)
    found: list[NumericFinding] = []
    for event in report.events:
        if not 0 <= event.index < len(rows):
            continue
        line = view.line(rows[event.index].line)
        if line is None:
            continue
        if event.kind is EventKind.NAN and report.outcome is SeriesOutcome.NAN:
            found.append(NumericFinding("loss_nan", line, f"the {event.note or 'loss'} is not finite from step {event.step}", rank=rank))
            break
        if event.kind is EventKind.LOSS_DIVERGENCE:
            found.append(
                NumericFinding(
                    "loss_divergence",
                    line,
                    f"the loss jumps from {event.before:.4g} to {event.after:.4g} at step {event.step} and does not come back",
                )
            )
    slow = report.outcome is SeriesOutcome.FAIL_SLOW
    if slow and column("step_time") is None and _lost_share(report, times) < MATERIAL_RATE:
        slow = False
    if slow:
        onset = next(
            (
                e
                for e in report.events
                if e.kind in (EventKind.SLOW_ONSET, EventKind.CREEP) and e.stage is not Stage.BRIEF and 0 <= e.index < len(rows)
            ),
            None,
        )
        line = view.line(rows[onset.index].line) if onset else None
        if onset is not None and line is not None:
            unit = "s" if column("step_time") is not None else " (relative)"
            found.append(
                NumericFinding(
                    "fail_slow_unexplained",
                    line,
                    f"step time rises from {onset.before:.4g}{unit} to {onset.after:.4g}{unit} ({onset.change:+.1%}) at step {onset.step}",
                    lost_s=report.lost_s if column("step_time") is not None else 0.0,
                )
            )
    return found


def _lost_share(report: SeriesReport, times: FloatArray | None) -> float:
    if times is None:
        return 0.0
    lost = 0.0
    for episode in report.episodes:
        lost += sum(max(0.0, t - episode.before_s) for t in times[episode.first : episode.last] if t == t)
    return lost / (sum(t for t in times if t == t) or 1.0)


def _one_per_step(rows: list[StepRow]) -> list[StepRow]:
    """Several ranks or lines may print one step; the first of each run of equal steps stands."""
    kept: list[StepRow] = []
    for row in rows:
        if kept and row.step is not None and kept[-1].step == row.step:
            continue
        kept.append(row)
    return kept


def _stamps(view: LogView, rows: list[StepRow]) -> FloatArray | None:
    import numpy as np

    if len(rows) > 20_000:
        return None
    times = []
    for row in rows:
        line = view.line(row.line)
        times.append(line.time if line is not None and line.time is not None and line.clock == "wall" else np.nan)
    return None if all(t != t for t in times) else np.array(times, dtype=float)


def _frozen_evaluations(view: LogView) -> list[NumericFinding]:
    """A model that collapsed gives the same evaluation result to the last digit, every time."""
    seen: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for number in view.numbers:
        raw = view.survey.kept[number]
        if b'"eval_' not in raw:
            continue
        match = _EVAL.search(view.text(number) or "")
        if match:
            seen[match["metric"] or ""].append((match["value"], number))
    frozen = [
        values for values in seen.values()
        if len(values) >= SAME_EVALS and len({v for v, _ in values[-SAME_EVALS:]}) == 1
    ]  # fmt: skip
    if not frozen:
        return []
    values = min(frozen, key=lambda v: v[0][1])
    same = values[-1][0]
    run = [number for value, number in values if value == same]
    # The first repetition is what proves it; the first value alone could have been luck.
    line = view.line(run[1])
    if line is None:
        return []
    return [
        NumericFinding(
            "target_not_reached",
            line,
            f"{len(run)} evaluations in a row gave exactly {same}: the model no longer learns",
        )
    ]
