"""Slow steps of one series: a robust two-sided CUSUM that says onset, relief, creep and level.

The detector follows detectors.md 1.5 with three changes: level and noise are learned from chunks
of 64 quiet rows (so that a long series is judged in vector form with the same result), a change
too close to the gate waits for more rows, and a series may change before row 40, because logs
often hold ten lines only. It knows no workload: what is expected to be slow is masked before.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rerail.domain.series import FloatArray, IntArray
from rerail.tools.detectors.baseline import (
    ALLOWANCE,
    BOOT,
    CHUNK,
    CLIP,
    FULL_DELTA,
    GATE,
    LIKE_SIGMA,
    MOST_NOISE,
    QUANTUM,
    Level,
    early_onset,
    first_level,
    middle,
)
from rerail.tools.detectors.events import Event, EventKind, Stage
from rerail.tools.detectors.quiet_chunks import Ahead, quiet_sums

CONFIRM = 10  # rows of a phase that make it confirmed
WARM_UP = 300  # rows in which a fall is settling, not a relief
RING = 128  # rows remembered
RETURN = 6  # rows in a row at the healthy level that end a phase whatever its jitter
RAMP = 30  # rows after an event in which a further move the same way belongs to it


class StepPoint(NamedTuple):
    """One step: its number and its time in seconds (NaN or <= 0: not known, ignored)."""

    step: int
    step_time_s: float


class SlowStepDetector:
    """Judges one series, one step at a time (`update`) or many at once (`run`), equally.

    Every call returns the events that it raised or changed; `events` holds the current list.
    """

    def __init__(self) -> None:
        self.level = Level()
        self.tracking = False
        self.up = self.down = 0.0
        self.up_from = self.down_from = 0
        self.outlier_run = 0
        self.outlier_sign = 0
        self.returned = 0
        self.rows = 0
        self.age = 0
        self.chunk_from = 0
        self.last_event = -(10**9)
        self.last_jump = 0.0
        self.last_doubt = 0.0
        self.retry_at = 0
        self.prior: float | None = None
        self._pending: list[int] = []
        self._log: list[Event] = []
        self._values: list[float] = []
        self._steps: list[int] = []

    @property
    def events(self) -> tuple[Event, ...]:
        """All events so far in the order of their onset, each at its latest stage."""
        return tuple(sorted(self._log, key=lambda event: event.index))

    @property
    def slow(self) -> bool:
        """Whether a slow phase is open now."""
        return bool(self.level.open)

    @property
    def watchful(self) -> bool:
        """Whether the next row needs a closer look: warm-up, or a change not yet verified."""
        return not self.tracking or bool(self._pending) or self.outlier_run > 0

    def update(self, point: StepPoint) -> list[Event]:
        """Take one step and return the events it raised or changed."""
        if not (point.step_time_s > 0 and math.isfinite(point.step_time_s)):
            return []
        return self._one(point.step, float(np.log(point.step_time_s)))

    def run(self, steps: IntArray, step_time_s: FloatArray) -> list[Event]:
        """Take many steps [n] and return the events raised or changed; same as n updates."""
        good = np.isfinite(step_time_s) & (step_time_s > 0)
        logs = np.log(step_time_s[good])
        numbers = np.asarray(steps)[good]
        found: list[Event] = []
        ahead = Ahead(logs)
        at, n = 0, len(logs)
        while at < n:
            if self.rows == self.chunk_from and self.tracking and not self._pending:
                taken, raised = self._quiet_chunks(ahead, at, logs, numbers)
                found += raised
                at += taken
            # The row that needs a closer look is seldom alone: the rest of the chunk gets one.
            rows = slice(at, at + CHUNK)
            for step, value in zip(numbers[rows].tolist(), logs[rows].tolist(), strict=True):
                found += self._one(step, value)
                at += 1
                if self.rows == self.chunk_from:
                    break
        return found

    def restart(self) -> None:
        """Note that the job restarted: warm-up is due again, the healthy level is remembered."""
        if self.tracking:
            level = self.level
            self.prior = level.base if level.open else min(level.m, level.best)
        self.level = Level()
        self.tracking = False
        self.age = 0
        self._pending.clear()
        self._reset_sums()
        self._values.clear()
        self._steps.clear()

    # ---- one row

    def _one(self, step: int, value: float) -> list[Event]:
        self.rows += 1
        self.age += 1
        self._values.append(value)
        self._steps.append(step)
        if not self.tracking:
            return self._boot()
        rows = self.rows
        if len(self._values) > 2 * RING:
            del self._values[:-RING], self._steps[:-RING]
        level = self.level
        error = value - level.m
        # An ordinary row ends no run of outliers and begins none.
        if self.outlier_run or error > level.limit or error < -level.limit:
            self._count_outliers(error)
        score = error / level.delta
        if score > CLIP:
            score = CLIP
        elif score < -CLIP:
            score = -CLIP
        score = round(score * QUANTUM) / QUANTUM
        self.up += score - ALLOWANCE
        if self.up <= 0:
            self.up, self.up_from = 0.0, rows
        self.down -= score + ALLOWANCE
        if self.down <= 0:
            self.down, self.down_from = 0.0, rows
        self.returned = self.returned + 1 if value < level.return_limit else 0
        found: list[Event] = []
        if (self.up >= level.h or self.down >= level.h) and rows >= self.retry_at:
            rising = self.up >= level.h
            found += self._crossing(self.up_from if rising else self.down_from, 1 if rising else -1)
        elif self.returned >= RETURN:
            found += self._return()
        if self._pending:
            found += self._confirm()
        if rows - self.chunk_from >= CHUNK:
            found += self._chunk_end(np.array(self._values[-CHUNK:]))
        return found

    def _count_outliers(self, error: float) -> None:
        level = self.level
        sign = (error > level.limit) - (error < -level.limit)
        if sign and sign == self.outlier_sign:
            self.outlier_run += 1
            return
        if self.outlier_run > level.longest:
            level.longest, level.longest_age = min(self.outlier_run, 12), 0
            level.refresh()
        self.outlier_sign, self.outlier_run = sign, 1 if sign else 0

    def _boot(self) -> list[Event]:
        n = len(self._values)
        if n < 8:
            return []
        if n >= BOOT:
            values = np.array(self._values)
            level, noise = first_level(values)
            self._begin(level, noise, n)
            return self._against_prior()
        recent = sorted(self._values[-4:])
        # A cheap look first: the split is only worth its time when the last rows are slower.
        if (recent[1] + recent[2]) / 2 - sorted(self._values[:-4])[(n - 4) // 2] < 0.04:
            return []
        values = np.array(self._values)
        split = early_onset(values)
        if split is None:
            return []
        noise = min(split.noise, 0.10)
        self._begin(split.before, noise, split.at)
        self.level.best = split.before
        at = split.at + _leading(values[split.at :], split.before, split.after, noise)
        return self._raise_onset(at - n, split.before, split.after, n - split.at)

    def _begin(self, m: float, s: float, n: int) -> None:
        self.tracking = True
        self.level = Level(s=s, noise_n=n, best=m)
        self.level.settle(m, n)
        self._reset_sums()

    def _against_prior(self) -> list[Event]:
        if self.prior is None:
            return []
        prior, self.prior = self.prior, None
        level = self.level
        if level.m - prior < GATE * FULL_DELTA:
            level.best = min(level.best, prior)
            return []
        after = level.m
        level.m = prior
        return self._raise_onset(-len(self._values), prior, after, len(self._values))

    # ---- many quiet rows

    def _quiet_chunks(
        self, ahead: Ahead, at: int, logs: FloatArray, numbers: IntArray
    ) -> tuple[int, list[Event]]:
        """Take whole chunks up to the first with a row that needs a closer look."""
        level, start, begin = self.level, at, at
        found: list[Event] = []
        while not found and (chunk := ahead.chunk(at)) is not None:
            if level.open and np.minimum.reduce(chunk.rows) < level.return_limit:
                break
            error = chunk.rows - level.m
            sums = quiet_sums(error, level, self.up, self.down, self.outlier_run, self.outlier_sign)
            if sums is None:
                break
            self.up, self.down = sums.up, sums.down
            if sums.up_from is not None:
                self.up_from = self.rows + sums.up_from
            if sums.down_from is not None:
                self.down_from = self.rows + sums.down_from
            self.outlier_run, self.outlier_sign = sums.run, sums.run_sign
            self.returned = 0
            self.rows += CHUNK
            self.age += CHUNK
            self.chunk_from = self.rows
            at += CHUNK
            if max(self.up, self.down) >= level.h / 2:
                continue
            level.follow(chunk.median, chunk.spread, error, sums.far)
            if self._moved:
                self._keep(logs[begin:at], numbers[begin:at])
                begin = at
                found += self._drift()
        self._keep(logs[begin:at], numbers[begin:at])
        return at - start, found

    def _keep(self, logs: FloatArray, numbers: IntArray) -> None:
        self._values += logs[-RING:].tolist()
        self._steps += numbers[-RING:].tolist()
        if len(self._values) > 2 * RING:
            del self._values[:-RING], self._steps[:-RING]

    def _chunk_end(self, chunk: FloatArray) -> list[Event]:
        self.chunk_from = self.rows
        level = self.level
        if max(self.up, self.down) >= level.h / 2:
            return []
        level.learn(chunk)
        return self._drift() if self._moved else []

    @property
    def _moved(self) -> bool:
        """Whether the level that was just learned is back at the base, or has crept away."""
        level = self.level
        if level.open:
            return self._back_at_base(level.m)
        return level.m - level.best >= FULL_DELTA

    def _drift(self) -> list[Event]:
        level = self.level
        if level.open:
            # The phase faded out in moves too small to be events of their own.
            return self._raise_relief(-CHUNK, level.m, CHUNK)
        # A level that crept away without any jump: compare with the best level ever held.
        before, level.base, level.base_s = level.best, level.best, level.s
        level.open.append(level.m)
        level.refresh()
        event = self._event(EventKind.CREEP, -1, before, level.m, Stage.CONFIRMED)
        self._log.append(event)
        return [event]

    # ---- changes

    def _crossing(self, since: int, sign: int) -> list[Event]:
        level = self.level
        window = min(self.rows - since + 6, RING, len(self._values))
        values = np.array(self._values[-window:])
        at = _onset(values, level.m)
        new = middle(values[at:])
        n = window - at
        jump = (new - level.m) * sign
        if jump < level.delta / 2:
            self.up, self.down = self.up / 2, self.down / 2
            self.returned = 0
            return []
        reference = level.m
        if sign > 0 and not level.open and new - level.best > jump:
            reference = level.best  # creep in small jumps counts against the best level held
        distance = abs(new - reference)
        doubt = 1.5 * level.standard_error(n)
        if distance < level.gate < distance + doubt and n < CHUNK:
            self.retry_at = self.rows + 4
            return []
        if distance < level.gate:
            if self._back_at_base(new):
                return self._raise_relief(at - window, new, n)
            self._reset_sums()
            level.settle(new, n)
            return []
        if self._refines(new, sign) and not self._back_at_base(new):
            self._reset_sums()
            self._move_open(new)
            level.settle(new, n)
            return []
        if self._same_ramp(self.rows - window + at, sign):
            return self._extend(new, n)
        at += _leading(values[at:], level.m, new, level.s)
        if sign > 0:
            return self._raise_onset(at - window, reference, new, n)
        return self._raise_relief(at - window, new, n)

    def _return(self) -> list[Event]:
        """End the phase: RETURN rows in a row were at the healthy level."""
        level = self.level
        n = self.returned
        new = middle(np.array(self._values[-n:]))
        # Rows picked for being low measure a level too low; the known one is better.
        return self._raise_relief(-n, level.base if new < level.base + level.gate else new, n)

    def _back_at_base(self, new: float) -> bool:
        level = self.level
        return bool(level.open) and new - level.base < level.gate / 2

    def _refines(self, new: float, sign: int) -> bool:
        """Whether this move only corrects the level that was guessed from few rows just now."""
        if self.rows - self.last_event > 25:
            return False
        move = abs(new - self.level.m)
        return move < (0.4 * abs(self.last_jump) if sign * self.last_jump < 0 else 0.0) or (
            move < self.last_doubt
        )

    def _same_ramp(self, row: int, sign: int) -> bool:
        """Whether this move goes on where the last change was still under way."""
        return bool(self._log) and sign * self.last_jump > 0 and row - self.last_event < RAMP

    def _extend(self, new: float, n: int) -> list[Event]:
        """Let the last event reach a further level: a ramp is one change."""
        event = self._log[-1]
        change = new - float(np.log(event.before))
        event = replace(event, after=math.exp(new), change=math.exp(change) - 1)
        level = self.level
        if event.kind is EventKind.SLOW_RELIEF:
            while level.open and level.open[-1] > new + level.gate / 2:
                level.open.pop()
        self._log[-1] = event
        self._move_open(new)
        self._arrive(new, self.last_jump, n)
        return [event]

    def _move_open(self, new: float) -> None:
        if self.level.open:
            self.level.open[-1] = new

    def _raise_onset(self, offset: int, before: float, after: float, n: int) -> list[Event]:
        level = self.level
        found = self._undo(-1, offset)
        if not level.open:
            level.base, level.base_s = before, level.s
        event = self._event(EventKind.SLOW_ONSET, offset, before, after, Stage.SUSPECT)
        if found and level.open:
            # A short relief was withdrawn: the old phase goes on, so this onset is none.
            found.append(replace(event, stage=Stage.BRIEF))
            level.open[-1] = max(level.open[-1], after)
        else:
            level.open.append(after)
            self._log.append(event)
            self._pending.append(len(self._log) - 1)
            found.append(event)
        self._arrive(after, after - before, n)
        return found

    def _raise_relief(self, offset: int, after: float, n: int) -> list[Event]:
        level = self.level
        before = level.m
        if not level.open:
            kind = EventKind.SPEED_UP
            level.best = after
            self._arrive(after, after - before, n)
            if self.age <= WARM_UP:
                return []
            event = self._event(kind, offset, before, after, Stage.CONFIRMED)
            self._log.append(event)
            return [event]
        newest = self._log[-1].kind if self._log else None
        if newest is EventKind.SLOW_RELIEF and before - after < level.gate:
            # The last relief had left a rest that fades now; it was one relief.
            level.open.clear()
            return self._extend(after, n)
        found = self._brief(offset)
        while level.open and level.open[-1] > after + level.gate / 2:
            level.open.pop()
        if level.open or after - level.base >= level.gate:
            if not level.open or after - level.open[-1] >= level.gate / 2:
                level.open.append(after)
        stage = Stage.BRIEF if found else Stage.SUSPECT
        event = self._event(EventKind.SLOW_RELIEF, offset, before, after, stage)
        self._log.append(event)
        if not found:
            self._pending.append(len(self._log) - 1)
        self._arrive(after, after - before, n)
        return [*found, event]

    def _arrive(self, level: float, jump: float, n: int) -> None:
        self.last_event, self.last_jump = self.rows, jump
        self.last_doubt = 2.5 * self.level.standard_error(n)
        self._reset_sums()
        self.level.settle(level, n)

    def _reset_sums(self) -> None:
        self.up = self.down = 0.0
        self.up_from = self.down_from = self.chunk_from = self.rows
        self.outlier_run = self.outlier_sign = self.returned = 0
        self.retry_at = 0

    def _brief(self, offset: int) -> list[Event]:
        """Mark an onset that this relief follows within CONFIRM rows as brief."""
        if not self._pending:
            return []
        number = self._pending[-1]
        event = self._log[number]
        start = self.rows + offset
        if event.kind is not EventKind.SLOW_ONSET or start - event.index >= CONFIRM:
            return []
        self._pending.pop()
        self._log[number] = replace(event, stage=Stage.BRIEF)
        # Such blocks may come back (an evaluation of a few steps): the next must be longer.
        level = self.level
        level.longest, level.longest_age = max(level.longest, start - event.index), 0
        return [self._log[number]]

    def _undo(self, _sign: int, offset: int) -> list[Event]:
        """Withdraw a relief that a new onset follows within CONFIRM rows."""
        if not self._pending:
            return []
        number = self._pending[-1]
        event = self._log[number]
        if event.kind is not EventKind.SLOW_RELIEF:
            return []
        if self.rows + offset - event.index >= CONFIRM or number != len(self._log) - 1:
            return []
        self._pending.pop()
        self._log.pop()
        level = self.level
        if not level.open:
            level.base_s = level.s
            level.base = float(np.log(event.after))
            level.open.append(float(np.log(event.before)))
        return [replace(event, stage=Stage.BRIEF)]

    def _confirm(self) -> list[Event]:
        found: list[Event] = []
        for number in list(self._pending):
            seen = self.rows - self._log[number].index
            if seen < CONFIRM:
                continue
            if number == len(self._log) - 1 and seen <= RING:
                found += self._verify(number, seen)
                continue
            self._pending.remove(number)
            self._log[number] = replace(self._log[number], stage=Stage.CONFIRMED)
            found.append(self._log[number])
        return found

    def _verify(self, number: int, seen: int) -> list[Event]:
        """Confirm the newest change by all its rows, take it back, or wait for more of them."""
        event = self._log[number]
        level = self.level
        rows = np.array(self._values[-seen:])
        before = float(np.log(event.before))
        sign = 1 if event.change > 0 else -1
        new = middle(rows)
        change = (new - before) * sign
        half = before + sign * change / 2
        if np.count_nonzero((rows - half) * sign > 0) < 0.8 * seen and seen < 2 * CONFIRM:
            return []
        if sign < 0 and new - level.base < level.gate:
            level.open.clear()
        closed = sign < 0 and not level.open and new - level.base < level.gate
        if not closed and abs(change - level.gate) < level.standard_error(seen) and seen < CHUNK:
            return []
        self._pending.remove(number)
        spread = LIKE_SIGMA * middle(np.abs(rows - new))
        level.s = max(level.s, min(spread, 1.5 * level.s, MOST_NOISE))
        if not closed and change < level.gate:
            return self._withdraw(number, new, seen)
        if sign > 0:
            self._move_open(new)
        if seen < 2 * CONFIRM:
            self.up = self.down = 0.0
            self.up_from = self.down_from = self.chunk_from = self.rows
            level.settle(new, seen)
        event = replace(
            event, after=math.exp(new), change=math.exp(new - before) - 1, stage=Stage.CONFIRMED
        )
        self._log[number] = event
        return [event]

    def _withdraw(self, number: int, new: float, n: int) -> list[Event]:
        """Take back a change that more rows do not bear out; the level they show is kept."""
        event = replace(self._log.pop(number), stage=Stage.BRIEF)
        level = self.level
        if event.kind is EventKind.SLOW_ONSET:
            if level.open:
                level.open.pop()
        elif not level.open and new - level.base >= level.gate / 2:
            level.open.append(new)
        self._reset_sums()
        level.settle(new, n)
        return [event]

    def _event(
        self, kind: EventKind, offset: int, before: float, after: float, stage: Stage
    ) -> Event:
        return Event(
            kind=kind,
            step=self._steps[offset],
            detected_at_step=self._steps[-1],
            before=math.exp(before),
            after=math.exp(after),
            change=math.exp(after - before) - 1,
            stage=stage,
            index=self.rows + offset,
        )


def _onset(values: FloatArray, level: float) -> int:
    """Return the row where a stretch [n] leaves a known level, at least three rows before its end.

    The split with the least sum of absolute errors against the old level and a new median.
    """
    n = len(values)
    old = np.concatenate([[0.0], np.cumsum(np.abs(values - level))])
    best, best_cost = n - 3, math.inf
    for at in range(max(0, n - 3), -1, -1):
        tail = values[at:]
        cost = float(old[at]) + float(np.abs(tail - middle(tail)).sum())
        if cost < best_cost - 1e-12:
            best, best_cost = at, cost
    return max(0, best)


def _leading(tail: FloatArray, old: float, new: float, noise: float) -> int:
    """Return how many of the first rows of a new stretch still stand at the old level.

    A change that is seen after two rows was given a third so that its level could be judged.
    """
    left = np.abs(tail - old) > min(abs(new - old) / 2, max(3 * noise, 0.005))
    return int(np.argmax(left)) if left.any() else 0
