"""Observed steps against expected ones: is the run slower than it should be, from its first step?

Needs numpy only, so that a diagnosis can use a forecast that was made elsewhere.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rerail.domain.series import FloatArray
from rerail.errors import ConfigError

SLOWER = 1.03  # a forecast is seldom better than three percent
LEAST_STEPS = 8
_WARM_UP = 3
_OPENING = 50


@dataclass(frozen=True, eq=False)
class Expected:
    """What a forecast says of the step time: name and quantiles at 0, 1, ... 100 percent, in seconds."""

    name: str
    quantiles_s: FloatArray

    def percentile(self, percent: float) -> float:
        """Return a percentile, in seconds."""
        return float(np.interp(percent, np.arange(101), self.quantiles_s))

    @property
    def mean_s(self) -> float:
        """Return the mean, in seconds."""
        return float(self.quantiles_s.mean())


@dataclass(frozen=True)
class Comparison:
    """Observed against expected; times in seconds, `ratio` of the medians.

    `opening_ratio` is that of the first steps after warm-up. `slower` says that the run's median lies
    above what the forecast calls a slow step (p95) and by more than a forecast's own error.
    """

    name: str
    steps: int
    observed_p50_s: float
    observed_p95_s: float
    expected_p5_s: float
    expected_p50_s: float
    expected_p95_s: float
    ratio: float
    opening_ratio: float
    ks: float
    lost_s: float
    slower: bool
    slower_from_start: bool

    def sentence(self) -> str:
        """Return the comparison as one sentence for people."""
        text = (
            f"a step takes {self.observed_p50_s:.4g} s, {self.ratio:.2f} times the "
            f"{self.expected_p50_s:.4g} s that the forecast {self.name!r} expects"
        )
        if self.observed_p50_s < min(self.expected_p5_s, self.expected_p50_s / SLOWER):
            return f"{text}: faster than its p5 of {self.expected_p5_s:.4g} s, so it is not a forecast of this run"
        if not self.slower:
            return f"{text} (within its range up to {self.expected_p95_s:.4g} s)"
        since = ", from the first step on" if self.slower_from_start else ""
        return f"{text}{since}; {self.lost_s:.4g} s lost over {self.steps} steps"


def compare(step_time_s: FloatArray, expected: Expected) -> Comparison | None:
    """Compare step times in seconds with a forecast; None for fewer than eight usable steps."""
    times = np.asarray(step_time_s, dtype=np.float64)
    times = times[np.isfinite(times) & (times > 0)]
    if len(times) < LEAST_STEPS + _WARM_UP:
        return None
    times = times[_WARM_UP:]
    median, p50 = float(np.median(times)), expected.percentile(50)
    limit = max(expected.percentile(95), SLOWER * p50)
    opening = float(np.median(times[:_OPENING]))
    ordered = np.sort(times)
    at = np.interp(ordered, expected.quantiles_s, np.arange(101) / 100, left=0.0, right=1.0)
    count = len(ordered)
    upper = np.abs(np.arange(1, count + 1) / count - at).max()
    lower = np.abs(at - np.arange(count) / count).max()
    slower = median > limit
    return Comparison(
        expected.name,
        count,
        median,
        float(np.percentile(times, 95)),
        expected.percentile(5),
        p50,
        expected.percentile(95),
        median / p50,
        opening / p50,
        float(max(upper, lower)),
        float(np.maximum(times - expected.mean_s, 0.0).sum()) if slower else 0.0,
        slower,
        slower and opening > limit,
    )


def expected_from_json(content: Any, source: str) -> Expected:
    """Return the expectation in the output of `rerail forecast --json`.

    Raises:
        ConfigError: a key is missing or wrong.
    """
    quantiles = content.get("quantiles_s") if isinstance(content, dict) else None
    if not isinstance(quantiles, list) or len(quantiles) != 101:
        raise ConfigError(
            f"{source}: quantiles_s: 101 step times are expected, as `rerail forecast --json` writes",
            subject=source,
            hint="rerail forecast --json spec.yaml > expected.json",
        )
    try:
        values = np.array(quantiles, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array([np.nan])
    if not np.isfinite(values).all() or (values <= 0).any() or (np.diff(values) < 0).any():
        raise ConfigError(
            f"{source}: quantiles_s: must be positive seconds that rise",
            subject=source,
            hint="rerail forecast --json spec.yaml > expected.json",
        )
    return Expected(str(content.get("name") or source), values)


def read_expected(path: Path) -> Expected:
    """Read what is expected: the JSON of a forecast, or a spec, which is forecast at once.

    Raises:
        ConfigError: the file is missing or a key is wrong.
    """
    if path.suffix.lower() == ".json":
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(
                f"{path}: {error.strerror}", subject=str(path),
                hint="rerail forecast --json spec.yaml > expected.json",
            ) from None  # fmt: skip
        except ValueError as error:
            raise ConfigError(
                f"{path}: no JSON: {error}", subject=str(path),
                hint="rerail forecast --json spec.yaml > expected.json",
            ) from None  # fmt: skip
        return expected_from_json(content, str(path))
    from rerail.tools.forecast.sources import read_source
    from rerail.tools.forecast.step import StepModel

    source = read_source([path])
    return expected_of(StepModel(source.spec).forecast(4000))


def expected_of(forecast: Any) -> Expected:
    """Return the expectation of a `StepForecast`."""
    return Expected(forecast.name, forecast.step.quantile(_PERCENT))


_PERCENT = np.concatenate([[1e-4], np.arange(1, 100) / 100, [1 - 1e-4]])
