"""One verdict per series: runs every detector that the reported columns allow.

`detect` is what the diagnosis pipeline calls. It knows no files, rules or topology.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np

from rerail.domain.series import FloatArray, StepSeries
from rerail.tools.detectors.borne_out import borne_out
from rerail.tools.detectors.events import (
    Episode,
    Event,
    EventKind,
    SeriesOutcome,
    SeriesReport,
    Stage,
)
from rerail.tools.detectors.hang import Phase, find_hang, find_stalls
from rerail.tools.detectors.loss import (
    find_fall_to_zero,
    find_frozen,
    find_grad_norm_spikes,
    find_loss_faults,
    find_non_finite,
)
from rerail.tools.detectors.loss_scale import find_scale_collapse
from rerail.tools.detectors.slow_steps import SlowStepDetector
from rerail.tools.detectors.workload import (
    epoch_begins,
    normalised,
    periodic_pauses,
    restarts,
    stride,
)

LEAST_ROWS = 6  # fewer rows of step time say nothing about slowness
LONG_ROWS = 30  # rows of a confirmed phase that are a fault however little they cost
MATERIAL_SHARE = 0.01  # share of the run's time that a shorter confirmed phase must cost
LEAST_OPEN = 5  # slow rows at the end of a series that count although ten were not seen
LEAST_MEANS, MEANS_OF = 3, 10  # the same of rows that are each a mean of so many steps


def detect(
    series: StepSeries, *, seen_until: float | None = None, phase: Phase = Phase.TRAIN
) -> SeriesReport:
    """Return everything found in one series.

    `seen_until` (seconds since the epoch) is when the job was last known to be alive and `phase`
    what it was doing then; without it no hang is reported. Any finite or non-finite input is
    taken; rows without a positive step time are left out of the judgement of slowness.
    """
    begins = restarts(series)
    events = [*_loss_events(series, begins)]
    hang = find_hang(series, seen_until, phase)
    events += find_stalls(series) + ([hang] if hang else [])
    slow, episodes, facts = _slow_events(series, begins)
    events += slow
    events.sort(key=lambda event: (event.index, event.detected_at_step))
    outcome, reason = _outcome(series, events, episodes)
    if not series.is_training:
        said = f"; {reason}" if reason and outcome is not SeriesOutcome.INSUFFICIENT else ""
        outcome, reason = SeriesOutcome.INSUFFICIENT, f"{_NOT_TRAINING}{said}"
    lost = float(sum(item.lost_s for item in episodes))
    total = _total_s(series)
    report = SeriesReport(
        name=series.name,
        rank=series.rank,
        outcome=outcome,
        events=tuple(events),
        episodes=tuple(episodes),
        lost_s=lost,
        lost_share=lost / total if total > 0 else 0.0,
        n_steps=len(series),
        baseline_s=facts[0],
        noise=facts[1],
        reason=reason,
        notes=(*series.remarks, *_notes(series, begins), *_not_judged(series, outcome)),
    )
    if outcome is SeriesOutcome.FAIL_SLOW and series.may_explain is not None:
        sized = replace(series, tokens=series.may_explain, may_explain=None)
        return detect(sized, seen_until=seen_until, phase=phase)
    return report if series.unit_s == 1.0 else _in_seconds(report, series.unit_s)


_NOT_TRAINING = (
    "not known to be training: no word calls its counter a step, or a number beside it the loss"
)


def _in_seconds(report: SeriesReport, unit_s: float) -> SeriesReport:
    """Return a report on the inverse of a rate with its times in seconds, or without any where that is not known."""
    if not math.isfinite(unit_s):
        lost = f", {report.lost_share:.1%} of the time was lost" if report.lost_s else ""
        note = f"the lines tell a rate and no time: levels are its inverse{lost}"
        return replace(
            report,
            baseline_s=math.nan,
            lost_s=0.0,
            episodes=tuple(replace(item, lost_s=0.0) for item in report.episodes),
            notes=(*report.notes, note),
        )
    slow = (EventKind.SLOW_ONSET, EventKind.CREEP, EventKind.SLOW_RELIEF)
    return replace(
        report,
        baseline_s=report.baseline_s * unit_s,
        lost_s=report.lost_s * unit_s,
        events=tuple(
            replace(e, before=e.before * unit_s, after=e.after * unit_s) if e.kind in slow else e
            for e in report.events
        ),
        episodes=tuple(
            replace(
                item,
                before_s=item.before_s * unit_s,
                worst_s=item.worst_s * unit_s,
                lost_s=item.lost_s * unit_s,
            )
            for item in report.episodes
        ),
        notes=(*report.notes, "the lines tell a rate; seconds are those of their stamps"),
    )


def _not_judged(series: StepSeries, outcome: SeriesOutcome) -> list[str]:
    """Say of which numbers of a healthy series nothing, or not all, could be judged."""
    if outcome is not SeriesOutcome.HEALTHY:
        return []
    said = []
    if series.loss is None and series.value is not None:
        said.append(
            "no word tells which number is the loss: only values that are not finite were looked for"
        )
    if np.count_nonzero(series.step_time_s > 0) < LEAST_ROWS:
        said.append("no time of the steps is told: whether they became slower was not judged")
    return said


def _notes(series: StepSeries, begins: list[int]) -> tuple[str, ...]:
    """Say what the reader may not expect of the series: restarts or further runs, unknown times."""
    said = []
    if epochs := epoch_begins(series):
        row = epochs[0]
        said.append(
            f"the counter begins anew with each epoch, {len(epochs)} times, first from "
            f"{series.step[row - 1]} to {series.step[row]}"
        )
    if begins:
        went = [f"{series.step[row - 1]} to {series.step[row]}" for row in begins]
        more = f" and {len(went) - 3} more" if len(went) > 3 else ""
        said.append(
            f"steps go back from {', '.join(went[:3])}{more}: restarts, or several runs in one "
            "file; each is compared with the ones before"
        )
    known = np.isfinite(series.step_time_s) & (series.step_time_s > 0)
    known[[0, *begins][: len(series)]] = True  # a clock cannot tell of the first step of a run
    unknown = len(series) - int(np.count_nonzero(known))
    # Of rows that are measured several at a time, the others are not missing.
    at = np.flatnonzero(known)
    if 0 < unknown <= len(series) // 2 and (len(at) < 2 or np.median(np.diff(at)) < 2):
        said.append(f"{unknown} of {len(series)} rows without a usable step time were left out")
    return tuple(said)


_FEWEST_UNNAMED = 3
"""Values without a name at the end that are no numbers, from which on they count."""


def _loss_events(series: StepSeries, begins: list[int]) -> list[Event]:
    events: list[Event] = []
    if series.loss is not None:
        events += find_loss_faults(series.step, series.loss, restarts=tuple(begins))
        events += find_fall_to_zero(series.step, series.loss)
        events += find_frozen(series.step, series.loss)
        events += find_non_finite(series.step, series.loss, _reported(series, "loss", series.loss))
    if series.grad_norm is not None:
        events += find_grad_norm_spikes(series.step, series.grad_norm)
        told = _reported(series, "grad_norm", series.grad_norm)
        # Gradients that are numbers again were skipped, as loss scaling does at its start: the weights are as they were.
        bad = find_non_finite(series.step, series.grad_norm, told)
        events += [
            replace(event, note=f"gradient norm, {event.note}")
            for event in bad
            if event.note.endswith("to the end")
        ]
    if series.value is not None:
        # What nobody names may be undefined now and then; what measured at first, and never again, broke.
        told = _reported(series, "value", series.value)
        bad = find_non_finite(series.step, series.value, told)
        name = f'"{series.value_name}"' if series.value_name else "a number"
        events += [
            replace(event, note=f"{name}, {event.note}")
            for event in bad
            if event.note.endswith("to the end")
            and math.isfinite(event.before)
            and len(series) - event.index >= _FEWEST_UNNAMED
        ]
    if series.loss_scale is not None:
        events += find_scale_collapse(series.step, series.loss_scale)
    return events


def _reported(series: StepSeries, name: str, values: FloatArray) -> FloatArray:
    """Return which values were reported at all; where the source does not know it, guess.

    Inf always was, NaN unless most of the column is NaN.

    A loss printed every tenth row leaves nine NaN between two values; a loss that became NaN
    leaves none after it.
    """
    if series.reported is not None and name in series.reported:
        return np.asarray(series.reported[name], dtype=np.float64)
    infinite = np.isinf(values)
    nan = np.isnan(values)
    known = np.flatnonzero(~nan)
    if len(known) == 0:
        return np.asarray(infinite, dtype=np.float64)
    gaps = np.diff(known) - 1
    usual = int(np.median(gaps)) if len(gaps) else 0
    reported = infinite.copy()
    if usual == 0:
        reported |= nan
        reported[: known[0]] = infinite[: known[0]]
    else:
        reported[known[-1] + 3 * (usual + 1) :] |= nan[known[-1] + 3 * (usual + 1) :]
    if series.left_out is not None and name in series.left_out:
        reported &= ~series.left_out[name]
    return np.asarray(reported, dtype=np.float64)


def _slow_events(
    series: StepSeries, begins: list[int]
) -> tuple[list[Event], list[Episode], tuple[float, float]]:
    """Return slow-step events, the episodes they bound, and (healthy level in s, noise)."""
    work = normalised(series)
    time = work.step_time_s
    usable = np.isfinite(time) & (time > 0)
    usable &= ~periodic_pauses(series.step, time)
    rows = np.flatnonzero(usable)
    if len(rows) < LEAST_ROWS:
        return [], [], (math.nan, math.nan)
    detector = SlowStepDetector()
    marks = [0, *(int(np.searchsorted(rows, row)) for row in begins), len(rows)]
    for first, last in pairwise(marks):
        if first:
            detector.restart()
        detector.run(series.step[rows[first:last]], time[rows[first:last]])
    events = [replace(event, index=int(rows[event.index])) for event in detector.events]
    level = detector.level
    episodes = _episodes(events, series, time, rows)
    kept = borne_out(episodes, time, rows)
    for one, stands in zip(episodes, kept, strict=True):
        if not stands:
            # A relief at the end of a phase goes with it.
            events = [e for e in events if not one.first <= e.index <= one.last]
    episodes = [one for one, stands in zip(episodes, kept, strict=True) if stands]
    if detector.tracking and (episodes or not detector.level.open):
        facts = (math.exp(level.base if level.open else level.m), level.s)
    else:
        facts = (float(np.median(time[rows])), math.nan)
    return events, episodes, facts


def _episodes(
    events: list[Event], series: StepSeries, time: FloatArray, rows: np.ndarray
) -> list[Episode]:
    """Join onsets and reliefs to slow phases and price each against its healthy level."""
    found: list[Episode] = []
    begun: list[Event] = []
    weight = stride(series)

    def close(last: int, ongoing: bool) -> None:
        first = begun[0]
        inside = rows[(rows >= first.index) & (rows < last)]
        healthy = first.before
        lost = float(np.maximum(0.0, (time[inside] - healthy) * weight[inside]).sum())
        stages = {event.stage for event in begun}
        stage = next(
            stage for stage in (Stage.CONFIRMED, Stage.SUSPECT, Stage.BRIEF) if stage in stages
        )
        found.append(
            Episode(
                first.index,
                last,
                first.step,
                int(series.step[last - 1]),
                healthy,
                max(event.after for event in begun),
                lost,
                stage,
                ongoing,
            )
        )
        begun.clear()

    for event in events:
        if event.kind in (EventKind.SLOW_ONSET, EventKind.CREEP):
            begun.append(event)
        elif event.kind is EventKind.SLOW_RELIEF and begun:
            # A relief to within half of the first rise of the healthy level ends the phase.
            if event.after < math.sqrt(begun[0].before * min(begun[0].after, event.before)):
                close(event.index, ongoing=False)
    if begun:
        close(len(series), ongoing=True)
    return found


def _total_s(series: StepSeries) -> float:
    times = np.where(series.step_time_s > 0, series.step_time_s, 0.0)
    return float(np.sum(times[np.isfinite(times)] * stride(series)[np.isfinite(times)]))


def _matters(item: Episode, series: StepSeries) -> bool:
    """Whether a slow phase is a fault of the run and not a hiccup.

    It still lasts at the end, or it was confirmed and was long or cost a hundredth of the run.
    """
    rows = item.last - item.first
    if item.ongoing:
        of_means = rows >= LEAST_MEANS and float(np.min(stride(series)[item.first :])) >= MEANS_OF
        return of_means or rows >= LEAST_OPEN
    if item.stage is not Stage.CONFIRMED:
        return False
    return rows >= LONG_ROWS or item.lost_s >= MATERIAL_SHARE * _total_s(series)


def _outcome(
    series: StepSeries, events: list[Event], episodes: list[Episode]
) -> tuple[SeriesOutcome, str]:
    for event in events:
        rows = (
            int(event.note.rpartition(" rows")[0].split()[-1]) if event.kind is EventKind.NAN else 0
        )
        if rows >= 3 or (rows and "to the end" in event.note):
            return SeriesOutcome.NAN, f"not finite from step {event.step}"
    for event in events:
        if event.kind is EventKind.HANG:
            return SeriesOutcome.HANG, event.note
    for event in events:
        if event.kind is EventKind.LOSS_DIVERGENCE:
            return SeriesOutcome.LOSS_DIVERGENCE, f"loss left its level at step {event.step}"
        if event.kind is EventKind.SCALE_COLLAPSE:
            return SeriesOutcome.LOSS_DIVERGENCE, f"loss scale collapsed at step {event.step}"
    for item in episodes:
        if _matters(item, series):
            ratio = item.worst_s / item.before_s
            return SeriesOutcome.FAIL_SLOW, f"{ratio:.2f}x slower from step {item.first_step}"
    known = int(np.count_nonzero(series.step_time_s > 0))
    measured = series.loss if series.loss is not None else series.value
    losses = 0 if measured is None else int(np.isfinite(measured).sum())
    if max(known, losses) < LEAST_ROWS:
        return SeriesOutcome.INSUFFICIENT, f"{max(known, losses)} rows"
    if episodes:
        return SeriesOutcome.HEALTHY, "brief slow phases only"
    return SeriesOutcome.HEALTHY, ""
