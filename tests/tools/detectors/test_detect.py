import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.domain.series import MetricSeries, StepSeries
from rerail.tools.detectors.detect import detect
from rerail.tools.detectors.events import EventKind, SeriesOutcome, Stage
from rerail.tools.detectors.throughput import find_decline


def steps(values, **more):
    values = np.asarray(values, dtype=float)
    return StepSeries("job", np.arange(len(values)), values, **more)


def noise(n, seed=0, sigma=0.01):
    return np.exp(np.random.default_rng(seed).normal(0, sigma, n))


def test_four_healthy_and_six_slow_lines_are_fail_slow():
    times = [105.18, 105.15, 105.16, 105.17, 106.25, 110.17, 111.14, 111.2, 111.09, 111.17]
    report = detect(StepSeries("bloom", np.arange(42778, 42788), times))
    assert report.outcome is SeriesOutcome.FAIL_SLOW
    assert report.events[0].step == 42782
    assert report.lost_s == pytest.approx(30, abs=1)


def test_lost_time_counts_the_steps_that_a_row_stands_for():
    values = noise(200) * 2
    values[100:150] *= 2
    one = detect(steps(values))
    ten = detect(StepSeries("job", np.arange(200) * 10, values))
    assert one.lost_s == pytest.approx(100, rel=0.05)
    assert ten.lost_s == pytest.approx(1000, rel=0.05)
    assert one.lost_share == pytest.approx(0.2, abs=0.02)


def test_short_phase_that_costs_little_is_healthy():
    values = noise(3000)
    values[1000:1012] *= 1.5
    report = detect(steps(values))
    assert report.outcome is SeriesOutcome.HEALTHY
    assert report.episodes[0].stage is Stage.CONFIRMED
    assert report.lost_s > 0


def test_long_checkpoints_at_a_fixed_distance_are_known_pauses():
    values = noise(600)
    for at in range(50, 600, 100):
        values[at : at + 3] *= 6
    report = detect(steps(values))
    assert report.outcome is SeriesOutcome.HEALTHY
    assert report.events == ()


def test_longer_sequences_are_no_fault_when_work_is_known():
    rng = np.random.default_rng(0)
    tokens = np.where(np.arange(2000) < 1000, 4096.0, 8192.0) * rng.uniform(0.9, 1.1, 2000)
    values = (0.2 + tokens / 4096) * noise(2000)
    assert detect(steps(values)).outcome is SeriesOutcome.FAIL_SLOW
    assert detect(steps(values, tokens=tokens)).outcome is SeriesOutcome.HEALTHY


def test_a_slow_phase_shows_through_batch_ramp_up():
    tokens = np.repeat([1e6, 2e6, 3e6, 4e6], 500)
    values = tokens / 1e6 * noise(2000)
    assert detect(steps(values, tokens=tokens)).outcome is SeriesOutcome.HEALTHY
    values[1700:] *= 1.4
    report = detect(steps(values, tokens=tokens))
    assert report.outcome is SeriesOutcome.FAIL_SLOW
    assert report.events[0].step == pytest.approx(1700, abs=2)


def test_loss_that_jumps_and_stays_is_divergence():
    loss = [6.440115, 6.444662, 11.42026, 13.67367, 7.155109, 7.120044]
    report = detect(StepSeries("job", [6990, 7000, 7010, 7020, 7220, 9000], [18.7] * 6, loss=loss))
    assert report.outcome is SeriesOutcome.LOSS_DIVERGENCE
    assert report.events[0].step == 7010


def test_nan_to_the_end_and_one_skipped_step():
    loss = 3 * noise(100)
    loss[50] = np.inf
    report = detect(steps(noise(100), loss=loss))
    assert report.outcome is SeriesOutcome.HEALTHY
    assert [event.kind for event in report.events] == [EventKind.NAN]
    loss[90:] = np.nan
    assert detect(steps(noise(100), loss=loss)).outcome is SeriesOutcome.NAN


def test_gradients_that_loss_scaling_skipped_are_no_fault():
    norm = noise(200)
    norm[:4] = norm[90:93] = np.inf
    scaled = steps(noise(200), loss=3 * noise(200), grad_norm=norm)
    assert detect(scaled).outcome is SeriesOutcome.HEALTHY
    norm[150:] = np.nan
    assert (
        detect(steps(noise(200), loss=3 * noise(200), grad_norm=norm)).outcome is SeriesOutcome.NAN
    )


def test_loss_printed_every_tenth_step_is_not_nan():
    loss = np.full(200, np.nan)
    loss[::10] = 2.0 * noise(20)
    assert detect(steps(noise(200), loss=loss)).outcome is SeriesOutcome.HEALTHY


def test_hang_needs_a_clock_and_silence():
    series = steps(noise(50), time=1e9 + np.arange(50.0))
    assert detect(series).outcome is SeriesOutcome.HEALTHY
    assert detect(series, seen_until=1e9 + 60).outcome is SeriesOutcome.HEALTHY
    assert detect(series, seen_until=1e9 + 4000).outcome is SeriesOutcome.HANG


def test_too_few_rows():
    assert detect(steps([1.0, 1.0, 5.0])).outcome is SeriesOutcome.INSUFFICIENT
    assert detect(steps([])).outcome is SeriesOutcome.INSUFFICIENT


def test_throughput_decline_in_its_own_unit():
    rate = 5000 * noise(300)
    rate[200:260] /= 2
    events = find_decline(MetricSeries("samples/s", np.arange(300), rate))
    assert events[0].kind is EventKind.THROUGHPUT_DECLINE
    assert events[0].before == pytest.approx(5000, rel=0.02)
    assert events[0].change == pytest.approx(-0.5, abs=0.02)


def test_json_has_the_keys_of_the_contract():
    values = noise(300)
    values[200:] *= 2
    row = json.loads(json.dumps(detect(steps(values)).to_json(), allow_nan=False))
    assert {"name", "events", "outcome", "lost_s"} <= row.keys()
    keys = {"kind", "step", "detected_at_step", "before", "after", "change"}
    assert keys <= row["events"][0].keys()


finite = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([np.nan, np.inf, -np.inf]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-50, 500), finite, finite, finite, finite), max_size=80))
def test_any_series_gets_a_report(rows):
    columns = np.array(rows, dtype=float).reshape(-1, 5).T
    series = StepSeries(
        "any",
        columns[0].astype(int),
        columns[1],
        loss=columns[2],
        grad_norm=columns[3],
        loss_scale=columns[4],
        tokens=columns[4],
        time=columns[3],
    )
    report = detect(series, seen_until=1e5)
    json.dumps(report.to_json(), allow_nan=False)
    assert report.lost_s >= 0


def test_series_refuses_wrong_shapes():
    with pytest.raises(ValueError, match="loss has 2 values for 3 steps"):
        StepSeries("x", [1, 2, 3], [1, 1, 1], loss=[1, 2])
    with pytest.raises(ValueError, match="one dimension"):
        StepSeries("x", [[1]], [1.0])


def test_import_is_light():
    code = (
        "import sys, rerail.tools.detectors.detect, rerail.tools.detectors.read_series;"
        "bad = {'pandas', 'scipy', 'pyarrow', 'matplotlib'} & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
