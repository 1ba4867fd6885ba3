"""Loss and gradient-norm faults: spike, divergence, NaN and Inf, and a value that stands still.

The level follows the loss downwards faster than upwards, so that a slow divergence cannot drag
the reference along (detectors.md 7).
"""

from __future__ import annotations

import math

import numpy as np

from rerail.domain.series import FloatArray, IntArray
from rerail.tools.detectors.borne_out import noise_of, rises
from rerail.tools.detectors.events import Event, EventKind, Stage

FALL, RISE = 0.02, 0.005  # gain of the level towards lower and higher values
LEAST_LIMIT = 0.05  # log units above the level that may be a spike
SIGMAS = 4.0
ALARM = 2.5
RECOVERED = 10  # rows under half the limit that end a spike
KEPT = 500  # rows remembered while nothing happens
LASTING = 200  # rows after which an unrecovered spike is a divergence
LEAST_ZEROS = 20  # rows of exactly zero at the end that are no rounding of a loss that went down
LEAST_BEFORE = 0.05  # a loss that fell from less may have been on its way to zero


def find_loss_faults(
    step: IntArray, loss: FloatArray, *, restarts: tuple[int, ...] = ()
) -> list[Event]:
    """Return spikes, recoveries and divergence of a loss [n]; rows that are not finite are skipped.

    After a restart (its row given) the level is learned anew.
    """
    usable = np.flatnonzero(np.isfinite(loss))
    if not len(usable):
        return []
    # Losses may be negative (reinforcement, likelihood bounds): then a linear scale serves.
    positive = bool((loss[usable] > 0).all())
    scale = 1.0 if positive else float(np.median(np.abs(loss[usable]))) or 1.0
    heights = np.full(len(loss), math.nan)
    heights[usable] = np.log(loss[usable]) if positive else loss[usable] / scale
    return [
        event
        for rows in np.split(usable, np.searchsorted(usable, sorted(set(restarts))))
        for event in _faults_of(rows, step, loss, heights)
    ]


def _faults_of(
    rows: IntArray, step: IntArray, loss: FloatArray, heights: FloatArray
) -> list[Event]:
    """Return the faults of the rows of one start of a job.

    Where the loss rose by no more than its own noise, it is looked at anew with the noise of all its rows.
    """
    least = 0.0
    read = [one.tolist() for one in (rows, step[rows], loss[rows], heights[rows])]
    for _ in range(2):
        watch = LossWatch(kind=EventKind.LOSS_SPIKE, least_noise=least)
        for row in zip(*read, strict=True):
            watch.take(*row)
        watch.finish()
        borne = [
            event
            for event in watch.events
            if event.kind is not EventKind.LOSS_DIVERGENCE
            or rises(heights[rows], int(np.searchsorted(rows, event.index)))
        ]
        if len(borne) == len(watch.events):
            break
        least = noise_of(heights[rows])
    return borne


class LossWatch:
    """Streams one loss: `take` per row, `finish` at the end, `events` in between.

    The last rows are kept to find where a rise began.
    """

    def __init__(self, kind: EventKind = EventKind.LOSS_SPIKE, *, least_noise: float = 0.0) -> None:
        self.kind = kind
        self.least_noise = least_noise
        self.events: list[Event] = []
        self.open: tuple[int, int, float, int, float] | None = None
        self.restart()

    def restart(self) -> None:
        """Judge what is open and learn the level anew: the job restarted."""
        self.finish()
        self.rows: list[tuple[int, int, float]] = []
        self.seen = 0
        self.level = math.nan
        self.noise = 0.01
        self.limit = self._limit()
        self.previous = math.nan
        self.score = 0.0
        self.since = -1
        self.open = None
        self.calm = 0
        self.peak = -math.inf

    def _limit(self) -> float:
        """Return the log units above the level that are out of the ordinary."""
        noise = self.noise if self.noise > self.least_noise else self.least_noise
        return max(LEAST_LIMIT, SIGMAS * noise)

    def take(self, row: int, step: int, value: float, height: float) -> None:
        """Take one row: its number, step, loss, and loss on the scale that is watched (log)."""
        self.rows.append((row, step, value))
        self.seen += 1
        seen = self.seen
        if len(self.rows) > 2 * KEPT and self.open is None:
            cut = len(self.rows) - KEPT
            del self.rows[:cut]
            self.since -= cut
        if seen == 1:
            self.level = self.previous = height
            return
        excess = height - self.level
        self._learn(height, excess, seen)
        if self.open is not None:
            self._follow(row, step, value, excess)
            return
        wide = self.limit if seen > 10 else max(self.limit, 0.25)
        ratio = excess / wide
        if self.score == 0.0:
            self.since = len(self.rows) - 1
        score = self.score + (ratio - 0.5 if ratio < 2.5 else 2.0)
        self.score = score if score > 0.0 else 0.0
        if self.score >= ALARM:
            first = self._first_high()
            self.begun = first
            begun_row, begun_step, _ = self.rows[first]
            before = self._median_before(first)
            self.open = (begun_row, begun_step, before, step, value)
            self.peak, self.calm = value, 0
            self.open_rows = 0

    def _first_high(self) -> int:
        """Return the position of the first row of the rise that the score saw."""
        return max(0, min(self.since, len(self.rows) - 1))

    def _median_before(self, first: int) -> float:
        values = [value for _, _, value in self.rows[max(0, first - 9) : first]]
        return float(np.median(values)) if values else self.rows[0][2]

    def _learn(self, height: float, excess: float, seen: int) -> None:
        quiet = self.score == 0.0 and self.open is None
        if quiet:
            change = abs(height - self.previous) / math.sqrt(2) * 1.4826
            gain = 1.0 / seen if seen < 100 else 0.01
            # The difference of neighbours measures noise without the trend; its median is tracked.
            noise = self.noise
            step = gain * (noise if noise > 0.002 else 0.002)
            noise += step if change > noise else -step
            self.noise = noise if 0.0005 < noise < 0.5 else min(0.5, max(0.0005, noise))
            self.limit = self._limit()
        self.previous = height
        start = 1.0 / seen - 0.02 if seen < 50 else 0.0
        if excess < 0:
            self.level += min(1.0, FALL + start) * excess
        elif quiet:
            self.level += (RISE + start) * min(excess, 2 * self.limit)

    def _follow(self, row: int, step: int, value: float, excess: float) -> None:
        assert self.open is not None
        self.open_rows += 1
        self.peak = max(self.peak, value)
        self.calm = self.calm + 1 if excess < self.limit / 2 else 0
        if self.calm >= RECOVERED:
            self._close(row, step, value)

    def _close(self, row: int, step: int, value: float) -> None:
        assert self.open is not None
        begun_row, begun_step, before, detected, _ = self.open
        self.events.append(
            _event(self.kind, begun_step, detected, before, self.peak, begun_row, "recovered")
        )
        back = self.rows[max(0, len(self.rows) - RECOVERED)]
        self.events.append(
            _event(EventKind.LOSS_RECOVERY, back[1], step, self.peak, value, back[0], "")
        )
        self.open, self.score = None, 0.0

    def finish(self) -> None:
        """Judge a spike that is still open at the end: divergence if it lasted or stays high."""
        if self.open is None:
            return
        begun_row, begun_step, before, detected, _ = self.open
        tail = [value for _, _, value in self.rows[-max(2, min(10, self.open_rows // 2 + 1)) :]]
        last = float(np.median(tail))
        rise = math.log(last / before) if last > 0 and before > 0 else abs(last - before)
        lasting = self.open_rows >= LASTING and rise > self.limit
        seen = len(self.rows) - self.begun
        severe = seen >= 4 and rise > self.limit and (rise > 0.25 or self.peak > 1.5 * before)
        if self.calm >= 3:
            kind, note = self.kind, "recovering"
        elif lasting or severe:
            kind, note = EventKind.LOSS_DIVERGENCE, "not recovered"
        else:
            kind, note = self.kind, "open at the end"
        self.events.append(_event(kind, begun_step, detected, before, self.peak, begun_row, note))
        self.open = None


def _event(
    kind: EventKind, step: int, seen: int, before: float, after: float, row: int, note: str
) -> Event:
    change = after / before - 1 if before else math.nan
    return Event(kind, step, seen, before, after, change, Stage.CONFIRMED, row, note)


def find_non_finite(step: IntArray, values: FloatArray, reported: FloatArray) -> list[Event]:
    """Return one event per stretch of NaN or Inf in values [n], where `reported` is true [n].

    NaN is also how a series says "not reported", so the caller tells the two apart.
    """
    bad = ~np.isfinite(values) & reported.astype(bool)
    events = []
    edges = np.flatnonzero(np.diff(np.concatenate([[0], bad.view(np.int8), [0]])))
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        known = values[:first][np.isfinite(values[:first])]
        before = float(known[-1]) if len(known) else math.nan
        rows, at = int(last - first), int(first)
        ended = "to the end" if last == len(values) else "recovered"
        events.append(
            Event(
                EventKind.NAN,
                int(step[at]),
                int(step[at]),
                before,
                float(values[at]),
                math.nan,
                Stage.CONFIRMED,
                at,
                f"{rows} rows, {ended}",
            )
        )
    return events


def find_fall_to_zero(step: IntArray, loss: FloatArray) -> list[Event]:
    """Return the divergence of a loss [n] that fell to exactly zero from one row to the next and stays there to the end.

    A trainer that leaves values that are no numbers out of its mean prints so (Hugging Face,
    `logging_nan_inf_filter`). A loss that went down to zero, or was zero now and then, is none.
    """
    rows = np.flatnonzero(np.isfinite(loss))
    values = loss[rows]
    above = np.flatnonzero(values != 0.0)
    if not len(above) or len(values) - above[-1] - 1 < LEAST_ZEROS or len(above) < LEAST_ZEROS:
        return []
    first = int(above[-1]) + 1
    before = values[max(0, first - LEAST_ZEROS) : first]
    if len(above) != first or float(before.min()) < max(
        LEAST_BEFORE, 0.1 * float(np.median(values[:first]))
    ):
        return []
    row = int(rows[first])
    seen = int(step[rows[first + LEAST_ZEROS - 1]])
    return [
        _event(
            EventKind.LOSS_DIVERGENCE, int(step[row]), seen, float(np.median(before)), 0.0, row,
            "exactly zero to the end",
        )
    ]  # fmt: skip


def find_frozen(step: IntArray, values: FloatArray, least: int = 10) -> list[Event]:
    """Return stretches of at least `least` equal finite values [n]: the metric stands still.

    Use 10 for a loss and 3 for an evaluation score. Values of fewer than four digits (0, 1, 0.5)
    do not count, they repeat by rounding.
    """
    events = []
    first = 0
    for row in range(1, len(values) + 1):
        if row < len(values) and values[row] == values[first]:
            continue
        value = float(values[first])
        if row - first >= least and math.isfinite(value) and _digits(value) >= 4:
            events.append(
                Event(
                    EventKind.LOSS_FROZEN,
                    int(step[first]),
                    int(step[first + least - 1]),
                    value,
                    value,
                    0.0,
                    Stage.CONFIRMED,
                    first,
                    f"{row - first} equal values",
                )
            )
        first = row
    return events


def _digits(value: float) -> int:
    return len(f"{abs(value):.12g}".replace(".", "").strip("0").split("e")[0])


def find_grad_norm_spikes(step: IntArray, grad_norm: FloatArray) -> list[Event]:
    """Return rows of a gradient norm [n] far above its past: 10 times and 8 sigmas of its log."""
    events = []
    known = np.isfinite(grad_norm) & (grad_norm > 0)
    rows = np.flatnonzero(known)
    logs = np.log(grad_norm[known])
    last = -(10**9)
    for at in range(20, len(rows)):
        past = logs[max(0, at - 100) : at]
        if logs[at] - past.max() < 0.3 or at - last < 20:
            continue
        centre = float(np.median(past))
        sigma = max(0.02, 1.4826 * float(np.median(np.abs(past - centre))))
        if logs[at] - centre > max(math.log(10.0), 8 * sigma):
            number = int(step[rows[at]])
            events.append(
                _event(
                    EventKind.GRAD_NORM_SPIKE,
                    number,
                    number,
                    math.exp(centre),
                    float(grad_norm[rows[at]]),
                    int(rows[at]),
                    "",
                )
            )
            last = at
    return events
