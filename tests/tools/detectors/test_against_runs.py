"""A run beside good runs of the same job: real faults are found, and another seed is not one."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from rerail.assistant.cli.detect import detect_command
from rerail.assistant.step_logs import read_step_log
from rerail.domain.series import StepSeries
from rerail.errors import EvidenceError
from rerail.tools.detectors.against_runs import Check, against_runs

LOSS = Path("tests/data/loss")
HEALTHY = [LOSS / "healthy" / name / "trainer_state.json" for name in ("", "seed43", "seed44")]


def load(path: Path) -> StepSeries:
    return read_step_log(path)[0]


def checks(run: StepSeries, good: list[StepSeries]) -> dict[str, Check]:
    return {check.what: check for check in against_runs(run, good)}


def job(
    seed: int, *, level: float = 1.0, until: int = 400, slower_from: int = 0, chance: float = 0.0
) -> StepSeries:
    rng = np.random.default_rng(seed)
    step = np.arange(1, until + 1)
    loss = 0.5 + 2 * np.exp(-step / 80)
    if chance:
        loss = np.full(until, chance)
    slow = np.where(step >= slower_from, level, 1.0) if slower_from else np.full(until, level)
    return StepSeries(
        f"job {seed}",
        step,
        0.2 * slow * np.exp(rng.normal(0, 0.02, until)),
        loss=loss * np.exp(rng.normal(0, 0.03, until)),
        learning_rate=np.full(until, 1e-3),
    )


@pytest.mark.parametrize("at", [0, 1, 2])
def test_another_seed_of_a_real_healthy_job_does_not_differ(at: int) -> None:
    runs = [load(path) for path in HEALTHY]
    others = [run for number, run in enumerate(runs) if number != at]
    for good in ([others[0]], [others[1]], others):
        found = checks(runs[at], good)
        assert (found["loss"].status, found["learning rate"].status) == ("same", "same")
        assert found["step time"].status == "unknown"


@pytest.mark.parametrize("count", [1, 3])
def test_real_wrong_labels_show_in_the_loss(count: int) -> None:
    found = checks(load(LOSS / "bad_labels/trainer_state.json"), [load(p) for p in HEALTHY[:count]])
    assert found["loss"].status == "supported" and found["loss"].worse
    assert found["loss"].since_step == 5 and found["loss"].observed > 5 > found["loss"].expected
    assert found["learning rate"].status == "same"


def test_a_real_learning_rate_of_zero_is_established() -> None:
    found = checks(load(LOSS / "lr_zero/trainer_state.json"), [load(HEALTHY[0])])["learning rate"]
    assert (found.status, found.worse, found.since_step, found.observed) == (
        "established",
        True,
        5,
        0.0,
    )
    assert "is 0 at every step" in found.says


def test_a_lower_loss_is_said_and_is_no_fault() -> None:
    found = checks(load(LOSS / "overfit/trainer_state.json"), [load(p) for p in HEALTHY])["loss"]
    assert found.status == "supported" and not found.worse and found.observed < found.expected


def test_a_loss_at_chance_names_the_number_of_classes() -> None:
    found = checks(job(1, chance=math.log(10)), [job(2), job(3)])["loss"]
    assert found.worse and "ln(10)" in found.says and "labels" in found.says


@pytest.mark.parametrize(
    ("level", "runs", "status"),
    [(1.2, 2, "supported"), (1.13, 1, "hypothesis"), (1.5, 1, "supported")],
)
def test_slow_from_the_start_shows_as_far_as_the_good_runs_tell(
    level: float, runs: int, status: str
) -> None:
    found = checks(job(1, level=level), [job(2 + i) for i in range(runs)])["step time"]
    assert (found.status, found.worse) == (status, True) and "from the start" in found.says
    assert found.observed / found.expected == pytest.approx(level, rel=0.02)


def test_the_step_since_which_a_run_is_slower_is_told() -> None:
    found = checks(job(1, level=1.3, slower_from=200), [job(2), job(3)])["step time"]
    assert found.since_step is not None and 180 <= found.since_step <= 220


def test_no_false_alarm_among_two_hundred_healthy_seeds() -> None:
    wrong = [
        check
        for seed in range(200)
        for check in against_runs(
            job(seed), [job(1000 + 2 * seed + i) for i in range(1 + seed % 2)]
        )
        if check.status != "same"
    ]
    assert wrong == []


def test_good_runs_that_vary_say_that_nothing_can_be_known() -> None:
    found = checks(job(1, level=1.2), [job(2), job(3, level=1.6)])["step time"]
    assert found.status == "unknown" and "varies by" in found.says


def test_runs_that_share_no_steps_cannot_be_compared() -> None:
    far = job(2)
    far = StepSeries("far", far.step + 10_000, far.step_time_s, loss=far.loss)
    assert {check.status for check in against_runs(job(1), [far])} == {"unknown"}


def test_a_rate_and_seconds_are_not_compared() -> None:
    run, rate = job(1), job(2)
    rate = StepSeries(
        "rate", rate.step, rate.step_time_s, loss=rate.loss, throughput=1 / rate.step_time_s
    )
    assert checks(run, [rate])["step time"].status == "unknown"
    assert checks(rate, [rate])["throughput"].status == "same"


def test_the_command_says_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    code = detect_command(
        [LOSS / "lr_zero/trainer_state.json"], True, read_log=read_step_log, baselines=HEALTHY[:2]
    )
    (series,) = json.loads(capsys.readouterr().out)["series"]
    assert code == 0 and series["outcome"] == "worse_than_baseline"
    assert series["reason"].startswith("the learning rate is 0")
    assert [one["status"] for one in series["baseline"]] == ["supported", "unknown", "established"]


def test_a_run_that_is_not_good_is_refused_as_a_baseline() -> None:
    with pytest.raises(EvidenceError, match="cannot serve as a good run: loss_divergence"):
        detect_command(
            [HEALTHY[0]], read_log=read_step_log, baselines=[LOSS / "lr_hot/trainer_state.json"]
        )


def test_a_folder_serves_as_a_baseline_and_nothing_to_compare_is_inconclusive(
    tmp_path: Path,
) -> None:
    (tmp_path / "steps.log").write_text(
        "".join(f"step {s} loss {2 / s:.4f}\n" for s in range(5_000, 5_100))
    )
    code = detect_command([HEALTHY[0]], read_log=read_step_log, baselines=[tmp_path])
    assert code == 10
