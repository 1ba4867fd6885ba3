"""Iterations of a training job from the collectives that a rank calls, without the framework's help.

FALCON takes the first lag at which the autocorrelation of the op codes reaches 0.95. That needs 20
whole iterations, locks on to layers and micro-batches that repeat almost as well, and drifts at
each inserted call. Here the boundary is an anchor: among the calls of the data-parallel and world
groups, runs folded, the symbol that cuts the sequence most often into like pieces. Where the kinds
of groups are unknown, the lag is taken at which all symbols repeat, rare ones counting as much as
frequent ones (detectors.md 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rerail.domain.series import FloatArray, IntArray

OUTER_KINDS = ("dp", "world")
_LEAST = 3
_ALIKE = 0.7
_BALANCED = 0.8
_MOST_SYMBOLS = 64
_PRIME = 1_000_003


@dataclass(frozen=True, eq=False)
class Iterations:
    """Where iterations begin: `starts` are indices of calls; `period` is the usual calls between.

    `anchor` is the symbol that marks a start, `alike` the share of iterations with exactly the
    usual calls, `method` is anchor or repetition. `ladder` holds other regular lags, in calls.
    """

    starts: IntArray
    period: int
    anchor: int
    alike: float
    method: str
    ladder: tuple[int, ...] = ()

    def step_times_s(self, times_s: FloatArray) -> FloatArray:
        """Return the time between starts; `times_s` (calls,) in seconds."""
        return np.diff(times_s[self.starts])


def find_iterations(symbols: IntArray, kinds: list[str] | None = None) -> Iterations | None:
    """Return the iterations of a call sequence, or None where fewer than three can be seen.

    `symbols` (calls,) numbers what was called: operation, communicator and size. `kinds[s]` is the
    kind of communicator of symbol s (tp, pp, dp, ep, cp, world), or None if unknown.
    """
    symbols = np.asarray(symbols, dtype=np.int64)
    if len(symbols) < 2 * _LEAST:
        return None
    if kinds is not None:
        outer = np.array([kind in OUTER_KINDS for kind in kinds])[symbols]
        if outer.any():
            found = _anchored(symbols, np.flatnonzero(outer))
            if found is not None:
                return found
    return _repeating(symbols)


def _anchored(symbols: IntArray, places: IntArray) -> Iterations | None:
    """Cut at the most frequent outer symbol whose usual piece covers most of the calls.

    Pieces are alike if their outer calls are; they weigh by all calls in them, so that gradient
    buckets, which repeat within one backward pass, do not pass for iterations. First only calls
    next to each other are folded into one, then all runs of a symbol.
    """
    for adjacent in (True, False):
        calls = symbols[places]
        begins = np.diff(calls, prepend=calls[0] - 1) != 0
        if adjacent:
            begins |= np.diff(places, prepend=places[0]) > 1
        folded, at = calls[begins], places[begins]
        counts = np.bincount(folded)
        for symbol in np.argsort(-counts, kind="stable")[:_MOST_SYMBOLS]:
            if counts[symbol] < _LEAST:
                break
            cuts = np.flatnonzero(folded == symbol)
            starts = at[cuts]
            if _coverage(_piece_keys(folded, cuts), np.diff(starts)) >= _ALIKE:
                period, alike = _mode(np.diff(starts))
                return Iterations(starts, period, int(symbol), alike, "anchor")
    return None


def _piece_keys(values: IntArray, cuts: IntArray) -> IntArray:
    """Return a number for each piece between cuts that depends on its symbols and their order."""
    place = np.arange(len(values)) - np.repeat(
        np.concatenate([[0], cuts]), np.diff(np.concatenate([[0], cuts, [len(values)]]))
    )
    mixed = (values + 1) * _PRIME ^ ((values + 7) * (place + 1) * 2_654_435_761)
    return np.add.reduceat(mixed, cuts)[:-1]


def _coverage(keys: IntArray, lengths: IntArray) -> float:
    """Return the share of the calls that lie in pieces of the kind that covers most."""
    _, which = np.unique(keys, return_inverse=True)
    return float(np.bincount(which, weights=lengths).max() / max(int(lengths.sum()), 1))


def _mode(values: IntArray) -> tuple[int, float]:
    unique, counts = np.unique(values, return_counts=True)
    top = int(np.argmax(counts))
    return int(unique[top]), float(counts[top] / len(values))


def _repeating(symbols: IntArray) -> Iterations | None:
    """Take the shortest lag at which each symbol repeats, rare symbols weighing as much."""
    unique, index, counts = np.unique(symbols, return_inverse=True, return_counts=True)
    lags = _candidate_lags(index, counts)
    if not len(lags):
        return None
    scores = np.array([balanced_match(index, len(unique), int(lag)) for lag in lags])
    good = np.flatnonzero(scores >= _BALANCED * scores.max())
    if scores.max() < 0.5:
        return None
    period = int(lags[good[0]])
    rare = int(np.argmin(np.where(counts >= len(symbols) // (2 * period), counts, len(symbols))))
    starts = np.flatnonzero(index == rare)
    starts = starts[np.diff(starts, prepend=-period) >= period // 2]
    if len(starts) < _LEAST:
        return None
    _, alike = _mode(np.diff(starts))
    ladder = tuple(int(lags[i]) for i in good[1:4])
    return Iterations(starts, period, int(unique[rare]), alike, "repetition", ladder)


def _candidate_lags(index: IntArray, counts: NDArray[np.int64]) -> IntArray:
    """Return the usual distances between occurrences of each symbol, shortest first."""
    lags: set[int] = set()
    for symbol in np.argsort(counts)[:_MOST_SYMBOLS]:
        if counts[symbol] < _LEAST:
            continue
        places = np.flatnonzero(index == symbol)
        most = min(len(places) - 1, 64)
        for hop in {1, 2, *(int(h) for h in np.geomspace(1, max(most, 1), 12))}:
            if hop < len(places):
                lag, share = _mode(places[hop:] - places[:-hop])
                if share >= 0.3 and lag <= len(index) // _LEAST:
                    lags.add(lag)
    return np.array(sorted(lags), dtype=np.int64)


def balanced_match(index: IntArray, count: int, lag: int) -> float:
    """Return the mean over symbols of the share of occurrences that recur `lag` calls later."""
    same = index[lag:] == index[:-lag]
    seen = np.bincount(index[:-lag], minlength=count)
    hit = np.bincount(index[:-lag], weights=same, minlength=count)
    known = seen > 0
    return float((hit[known] / seen[known]).mean())
