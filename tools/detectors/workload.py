"""What makes steps slow without a fault: work per step, known pauses, restarts, warm-up.

These functions only describe the series; the detectors decide what to leave out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rerail.domain.series import BoolArray, FloatArray, IntArray, StepSeries

_LEAST_EPOCHS = 2  # times that a counter begins anew before it is known to count within epochs
_ROUND = (2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 5000, 10000)


def expected_time(series: StepSeries) -> FloatArray | None:
    """Return the step time in seconds [n] that the work of each step explains, or None.

    A robust fit of a + b * tokens + c * sum of squared lengths (ResiHP's predictor as told in
    papers-failslow.md A9.1). None when work is unknown, constant, or explains nothing.
    """
    columns = [
        values
        for values in (series.tokens, series.seq_len_sq)
        if values is not None and _varies(values)
    ]
    if not columns:
        return None
    time = series.step_time_s
    usable = np.isfinite(time) & (time > 0)
    for values in columns:
        usable &= np.isfinite(values) & (values > 0)
    if usable.sum() < 8:
        return None
    design = np.column_stack(
        [np.ones(len(time)), *(values / np.median(values[usable]) for values in columns)]
    )
    fit = _least_absolute(design[usable], time[usable])
    expected = design @ fit
    if not (expected[usable] > 0).all():
        return None
    before = _spread(np.log(time[usable]))
    after = _spread(np.log(time[usable] / expected[usable]))
    if after > 0.9 * before:
        return None
    return np.asarray(np.where(usable, expected, np.nan))


def normalised(series: StepSeries) -> StepSeries:
    """Return the series with its step times divided by what the work explains, in seconds still.

    The result is scaled to the median step, so levels stay readable; unchanged if work is unknown.
    """
    expected = expected_time(series)
    if expected is None:
        return series
    centre = float(np.nanmedian(expected))
    return replace(series, step_time_s=series.step_time_s / expected * centre)


def _varies(values: FloatArray) -> bool:
    known = values[np.isfinite(values)]
    return len(known) > 1 and float(known.max()) > 1.02 * float(known.min())


def _spread(values: FloatArray) -> float:
    return float(np.median(np.abs(values - np.median(values)))) + float(
        np.subtract(*np.quantile(values, [0.95, 0.05]))
    )


def _least_absolute(design: FloatArray, target: FloatArray) -> FloatArray:
    """Fit by least absolute errors (reweighted least squares); negative slopes are set to zero."""
    weight = np.ones(len(target))
    active = np.ones(design.shape[1], dtype=bool)
    fit = np.zeros(design.shape[1])
    for _ in range(30):
        root = np.sqrt(weight)[:, None]
        part, *_ = np.linalg.lstsq(design[:, active] * root, target * root[:, 0], rcond=None)
        fit[:] = 0.0
        fit[active] = part
        if (fit[1:] < 0).any():
            active[1:] &= fit[1:] >= 0
            continue
        error = np.abs(target - design @ fit)
        weight = 1.0 / np.maximum(error, 1e-3 * float(np.median(target)))
    return fit


def periodic_pauses(step: IntArray, step_time_s: FloatArray) -> BoolArray:
    """Mark the rows [n] of pauses that come back at a fixed step distance (checkpoint, evaluation).

    A pause is one to three slow rows more than 10 % above the running median of its
    surroundings; it is periodic when at least three lie on one residue of a round period, are
    most of the pauses, and most places of that residue have one.
    """
    marked = np.zeros(len(step), dtype=bool)
    if np.count_nonzero(np.isfinite(step_time_s)) < 8:
        return marked
    values = np.where(np.isfinite(step_time_s), step_time_s, np.nan)
    around = running_median(np.nan_to_num(values, nan=float(np.nanmedian(values))), 9)
    slow = values > 1.10 * around
    starts = np.flatnonzero(slow & ~np.concatenate([[False], slow[:-1]]))
    if len(starts) < 3:
        return marked
    lengths = np.array([_run_length(slow, int(at)) for at in starts])
    starts = starts[lengths <= 3]
    if len(starts) < 3:
        return marked
    stride = max(1, int(np.median(np.diff(step))))
    for period in sorted({*_ROUND, *np.diff(step[starts]).tolist()}):
        if period < 4 * stride:
            continue
        residue = int(np.bincount(step[starts] % period).argmax()) if period < 10**6 else 0
        hits = starts[step[starts] % period == residue]
        places = int(np.count_nonzero(step % period == residue))
        if len(hits) >= max(3, 0.6 * len(starts)) and len(hits) >= 0.7 * places:
            for at in hits:
                marked[at : at + _run_length(slow, int(at))] = True
            break
    return marked


def _run_length(mask: BoolArray, at: int) -> int:
    length = 0
    while at + length < len(mask) and mask[at + length]:
        length += 1
    return length


def running_median(values: FloatArray, width: int) -> FloatArray:
    """Return the centred running median [n] over an odd number of rows, edges held."""
    half = width // 2
    padded = np.pad(values, half, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, width)
    return np.asarray(np.median(windows, axis=1))


def restarts(series: StepSeries) -> list[int]:
    """Return the rows where the job started again: the step number falls, and no epoch begins."""
    known = set(epoch_begins(series))
    return [row for row in _falls(series) if row not in known]


def _falls(series: StepSeries) -> list[int]:
    return [int(row) + 1 for row in np.flatnonzero(np.diff(series.step) < 0)]


def epoch_begins(series: StepSeries) -> list[int]:
    """Return the rows where a counter of steps within an epoch begins anew.

    The epoch rises there by one, or the counter falls from about the same number to the same, every time.
    """
    falls = _falls(series)
    epoch = series.epoch
    if epoch is not None:
        rises = [row for row in falls if 0 < epoch[row] - epoch[row - 1] <= 1]
        return rises if len(rises) == len(falls) else []
    ends = {int(series.step[row - 1]) for row in falls}
    begins = {int(series.step[row]) for row in falls}
    begins.add(int(series.step[0]) if len(series) else 0)
    return falls if len(falls) >= _LEAST_EPOCHS and len(ends) == len(begins) == 1 else []


def stride(series: StepSeries) -> FloatArray:
    """Return how many steps each row stands for [n]; logs often print every tenth step only."""
    if len(series) < 2:
        return np.ones(len(series))
    gap = np.diff(series.step).astype(np.float64)
    usual = float(np.median(gap[gap > 0])) if (gap > 0).any() else 1.0
    gap = np.where((gap > 0) & (gap <= 5 * usual), gap, usual)
    return np.asarray(np.concatenate([[usual], gap]))
