"""Find the congested steps of a measured run: those in which communication stays slow for a while."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rerail.domain.series import FloatArray
from rerail.tools.forecast.spec import Regime

LEAST_STEPS = 64
_WINDOW = 9  # steps; a congestion that ends sooner is part of the ordinary spread
_LAGS = 4
_STANDARD_ERRORS = 4.0
_LEAST_SCALE = 1.1
_LEAST_SHARE = 0.02


@dataclass(frozen=True, eq=False)
class Congestion:
    """The regime, and which steps are congested [steps]."""

    regime: Regime
    steps: NDArray[np.bool_]


def congestion(took_s: FloatArray) -> Congestion | None:
    """Part calm from congested steps by the seconds of their collectives [collectives, steps].

    Neighbouring steps of independent noise are not alike: only where the autocorrelation over four
    steps lies four standard errors above zero (Bartlett 1946) is there anything that lasts. The
    steps are then parted where the variance between the two sides of a moving mean is largest (Otsu
    1979). None where nothing lasts, or where steps are fewer than 64.
    """
    if not len(took_s) or took_s.shape[1] < LEAST_STEPS:
        return None
    logs = np.log(np.maximum(took_s, 1e-9))
    level = (logs - np.median(logs, axis=1, keepdims=True)).mean(axis=0)
    if not _lasts(level):
        return None
    edge = _WINDOW // 2
    smooth = np.convolve(np.pad(level, edge, mode="edge"), np.full(_WINDOW, 1 / _WINDOW), "valid")
    congested = smooth > _threshold(smooth)
    share = float(congested.mean())
    if not _LEAST_SHARE <= share <= 0.5:
        return None
    scale = float(np.exp(level[congested].mean() - level[~congested].mean()))
    if scale < _LEAST_SCALE:
        return None
    runs = int(congested[0]) + int((np.diff(congested.astype(np.int8)) == 1).sum())
    lasting = float(congested.sum()) / runs
    return Congestion(Regime(share=share, scale=scale, steps=lasting), congested)


def _lasts(level: FloatArray) -> bool:
    """Tell whether neighbouring steps are more alike than independent ones would be."""
    centred = level - level.mean()
    power = float(centred @ centred)
    if power <= 1e-12 * len(level):
        return False
    alike = sum(float(centred[:-lag] @ centred[lag:]) / power for lag in range(1, _LAGS + 1))
    return alike > _STANDARD_ERRORS * float(np.sqrt(_LAGS / len(level)))


def _threshold(values: FloatArray) -> float:
    """Return the value above which the upper side begins, with the largest variance between sides."""
    ordered = np.sort(values)
    below = np.arange(1, len(ordered))
    sums = np.cumsum(ordered)
    low, high = sums[:-1] / below, (sums[-1] - sums[:-1]) / (len(ordered) - below)
    between = below * (len(ordered) - below) * (high - low) ** 2
    return float(ordered[int(np.argmax(between))])
