"""Who owns each moment of a window: the running function of the highest priority.

EROICA (arXiv 2506.08528): GPU compute before memory operations, before collectives, before the
host. So a collective under compute owns only its exposed part, and the host only what nothing on
the device covers.
"""

from __future__ import annotations

import numpy as np

from rerail.domain.series import FloatArray, IntArray


class Cover:
    """The union of spans, and how much of it lies before a time."""

    def __init__(self, start: FloatArray, end: FloatArray) -> None:
        if not len(start):
            self.begin = self.stop = np.zeros(0)
        else:
            order = np.argsort(start, kind="stable")
            start, reach = start[order], np.maximum.accumulate(end[order])
            first = np.concatenate([[True], start[1:] > reach[:-1]])
            self.begin = start[first]
            self.stop = reach[np.concatenate([np.flatnonzero(first)[1:] - 1, [len(reach) - 1]])]
        self._before = np.concatenate([[0.0], np.cumsum(self.stop - self.begin)])

    def before(self, at: FloatArray) -> FloatArray:
        """Return the covered time before each of `at`."""
        if not len(self.begin):
            return np.zeros(np.shape(at))
        i = np.searchsorted(self.begin, at, side="right")
        part = np.minimum(at, self.stop[np.maximum(i - 1, 0)]) - self.begin[np.maximum(i - 1, 0)]
        return np.where(i > 0, self._before[np.maximum(i - 1, 0)] + part, 0.0)

    def inside(self, start: FloatArray, end: FloatArray) -> FloatArray:
        """Return how much of each span is covered."""
        return self.before(end) - self.before(start)

    def joined(self, start: FloatArray, end: FloatArray) -> Cover:
        """Return the union with further spans."""
        return Cover(np.concatenate([self.begin, start]), np.concatenate([self.stop, end]))


def first_come(start: FloatArray, end: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the part of each span that no earlier span of the same class covers.

    Spans must be sorted by start. Empty parts have start equal to end.
    """
    if not len(start):
        return start, end
    reach = np.concatenate([[-np.inf], np.maximum.accumulate(end)[:-1]])
    own = np.minimum(np.maximum(start, reach), end)
    return own, end


def innermost(
    start: FloatArray, end: FloatArray, lane: IntArray, exposed: FloatArray
) -> FloatArray:
    """Return the exposed time of each nested span less that of its direct children.

    `exposed` is the exposed time of the whole span. Spans of one lane nest as calls do.
    """
    own = exposed.copy()
    order = np.lexsort((-end, start, lane))
    stack: list[int] = []
    starts, ends, lanes = start.tolist(), end.tolist(), lane.tolist()
    for i in order.tolist():
        while stack and (lanes[stack[-1]] != lanes[i] or ends[stack[-1]] <= starts[i]):
            stack.pop()
        if stack:
            own[stack[-1]] -= exposed[i]
        stack.append(i)
    return np.maximum(own, 0.0)
