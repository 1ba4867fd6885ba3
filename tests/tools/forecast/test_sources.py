"""Specs built from measured runs, and runs held against forecasts."""

import json
from pathlib import Path

import numpy as np
import pytest

from rerail.domain.series import StepSeries
from rerail.errors import ConfigError, EvidenceError
from rerail.tools.detectors.against_forecast import with_expected
from rerail.tools.detectors.detect import detect
from rerail.tools.detectors.events import SeriesOutcome
from rerail.tools.forecast.compare import compare, expected_of, read_expected
from rerail.tools.forecast.from_trace import spec_from_spans, spec_from_timeline
from rerail.tools.forecast.sources import read_source, spec_from_steps
from rerail.tools.forecast.step import StepModel

TRACE = Path("tests/data/straggler_ar/trace-AR.parquet")


def series(times):
    return StepSeries("run", np.arange(len(times)), np.asarray(times, dtype=float))


@pytest.fixture(scope="module")
def expected():
    times = np.random.default_rng(1).normal(1.0, 0.02, 400)
    return expected_of(StepModel(spec_from_steps(times, "healthy")).forecast(2000))


@pytest.mark.slow
def test_a_real_trace_is_forecast_from_half_of_its_steps():
    _, measured = spec_from_timeline(TRACE)
    spec, _ = spec_from_timeline(TRACE, range(0, len(measured), 2))
    assert (spec.world_size, spec.node_count) == (16, 4)  # one rank of each tensor-parallel group
    found = StepModel(spec).forecast(1000, errors=False)
    for percent in (50, 95):
        assert found.percentile(percent) == pytest.approx(
            np.percentile(measured[1::2], percent), rel=0.02
        )


def test_spans_make_collectives_that_wait_for_the_last_rank():
    def step(i, work):
        begin = 10.0 * i
        end = begin + 2.0  # all leave together, whoever came first
        return (begin, end + 0.5, [("world", begin + work, end)])

    spans = {0: [step(i, 1.0) for i in range(12)], 1: [step(i, 1.7) for i in range(12)]}
    found = StepModel(spec_from_spans(spans)).forecast(500, errors=False)
    # 1.7 until the last rank is there, 0.3 of transfer, 0.5 behind it.
    assert found.percentile(50) == pytest.approx(2.5, rel=1e-6)


def test_a_run_that_is_slow_from_its_first_step_is_seen_only_with_a_forecast(expected):
    slow = series(np.random.default_rng(2).normal(1.3, 0.02, 200))
    alone = detect(slow)
    assert alone.outcome is SeriesOutcome.HEALTHY
    told = with_expected(slow, alone, expected)
    assert told.outcome is SeriesOutcome.FAIL_SLOW
    assert told.events[0].step == 0
    assert told.lost_s == pytest.approx(0.3 * 197, rel=0.05)


def test_a_healthy_run_stays_healthy_beside_its_forecast(expected):
    for seed in range(20):
        good = series(np.random.default_rng(seed).normal(1.0, 0.02, 200))
        assert with_expected(good, detect(good), expected).outcome is SeriesOutcome.HEALTHY
    assert compare(np.ones(5), expected) is None
    other = compare(np.full(40, expected.percentile(50) / 5), expected)
    assert other is not None and not other.slower
    assert "not a forecast of this run" in other.sentence()


def test_a_forecast_that_is_no_forecast_is_refused(tmp_path):
    file = tmp_path / "expected.json"
    for content in ("{}", "[1]", "{", json.dumps({"quantiles_s": [1.0] * 100 + ["x"]})):
        file.write_text(content)
        with pytest.raises(ConfigError):
            read_expected(file)
    file.write_text(json.dumps({"name": "n", "quantiles_s": list(np.linspace(1, 2, 101))}))
    assert read_expected(file).percentile(50) == pytest.approx(1.5)


def test_too_short_a_series_and_an_empty_folder_are_refused(tmp_path):
    file = tmp_path / "steps.csv"
    file.write_text("step,step_time_s\n1,1.0\n2,1.1\n")
    with pytest.raises(EvidenceError, match="2 step times"):
        read_source([file])
    (tmp_path / "none").mkdir()
    with pytest.raises(EvidenceError, match="no Kineto traces"):
        read_source([tmp_path / "none"])
