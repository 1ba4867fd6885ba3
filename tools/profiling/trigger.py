"""When to look closer: iterations learned from calls, slow phases and stalls noticed.

The rules are those reported of EROICA (arXiv 2506.08528): the mean of 50 iterations more than 5 %
above the reference, or nothing for five iterations. There the reference is the shortest recent
iteration, an extreme value that plain jitter of 2.5 % exceeds; here it is the best mean of 50, and
single pauses (checkpoints) are clipped before they enter a mean.
"""

from __future__ import annotations

from collections import deque

LOADER, OPTIMIZER = "n", "s"
_REPEATS = 10
_MOST_CHUNKS = 8
_UNMATCHED = 200
_WINDOW = 50
_BLOCKS = 20
_SLOWER = 0.05
_STALLED = 5.0
_CLIP = 1.5


class IterationFinder:
    """Finds iterations in the calls of data loaders (n) and optimizers (s).

    An iteration begins with the first n after an s. Where several such parts alternate (gradient
    accumulation of changing depth, two optimizers), the smallest period that repeats ten times is it.
    After 200 calls that do not fit, it is learned anew.
    """

    def __init__(self) -> None:
        self.pattern: tuple[str, ...] = ()
        self._part = ""
        self._parts: deque[str] = deque(maxlen=_REPEATS * _MOST_CHUNKS)
        self._at = 0
        self._unmatched = 0

    def call(self, kind: str) -> bool:
        """Take one call, n or s; return whether a new iteration begins with it."""
        begins = kind == LOADER and self._part.endswith(OPTIMIZER)
        if not begins:
            self._part += kind
            self._unmatched += 1
            if self._unmatched >= _UNMATCHED:
                self._forget()
            return False
        done, self._part = self._part, kind
        self._parts.append(done)
        if not self.pattern:
            self._learn()
            return bool(self.pattern)
        if done != self.pattern[self._at]:
            self._unmatched += 1
            if self._unmatched >= _UNMATCHED:
                self._forget()
            self._at = 0
            return False
        self._unmatched = 0
        self._at = (self._at + 1) % len(self.pattern)
        return self._at == 0

    def _learn(self) -> None:
        parts = list(self._parts)
        for period in range(1, _MOST_CHUNKS + 1):
            tail = parts[-period * _REPEATS :]
            if len(tail) == period * _REPEATS and tail == tail[:period] * _REPEATS:
                self.pattern, self._at, self._unmatched = tuple(tail[:period]), 0, 0
                return

    def _forget(self) -> None:
        self.pattern, self._at, self._unmatched, self._part = (), 0, 0, self._part[-1:]
        self._parts.clear()


class SlowTrigger:
    """Says when the last 50 iterations are 5 % above the best 50, or when nothing comes any more."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=_WINDOW)
        self._blocks: deque[float] = deque(maxlen=_BLOCKS)
        self._block: list[float] = []

    @property
    def reference_s(self) -> float | None:
        """Return the best mean of 50 iterations, None before there were 50."""
        return min(self._blocks, default=None)

    def iteration(self, took_s: float) -> bool:
        """Take one iteration's duration; return whether the job is slow now."""
        reference = self.reference_s
        clipped = took_s if reference is None else min(took_s, _CLIP * reference)
        self._last.append(clipped)
        self._block.append(clipped)
        if len(self._block) == _WINDOW:
            self._blocks.append(sum(self._block) / _WINDOW)
            self._block.clear()
        if reference is None or len(self._last) < _WINDOW:
            return False
        return sum(self._last) / _WINDOW > reference * (1 + _SLOWER) * (1 + 1e-9)

    def stalled(self, since_s: float) -> bool:
        """Tell whether `since_s` seconds without a call are five average iterations or more."""
        if not self._last:
            return False
        return since_s >= _STALLED * sum(self._last) / len(self._last)
