"""The recorded runs of the launcher lab, replayed: type, line, rank and host, and no false alarm."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerail.evals.launchers.score import Scored, score_all, tally
from rerail.evals.launchers.truth import read_truths

RECORDED = Path(__file__).parents[2] / "data" / "launchers"
# What rerail does not tell of these runs today; README.md of the lab says why.
OPEN = {
    "dask/argument",
    "deepspeed/argument",
    "hydra/hang",
    "hydra/vanish",
    "job_array/argument",
    "mpich/vanish",
    "mpich_files/vanish",
    "ray/vanish",
    "structlog_console/crash",
    "structlog_console/hang",
    "structlog_console/vanish",
}
LEAST_LAUNCHERS, LEAST_FAULTS = 50, 6
RANK_BAR, HOST_BAR = 0.98, 0.98
SIZE_LIMIT = 6_000_000


@pytest.fixture(scope="module")
def scores() -> list[Scored]:
    return score_all(read_truths(RECORDED), RECORDED)


def test_only_what_is_known_to_be_open_is_wrong(scores):
    wrong = {f"{one.launcher}/{one.scenario}" for one in scores if not one.right}
    assert wrong <= OPEN


def test_rank_and_host_reach_the_bar(scores):
    total = tally(scores)
    assert total.share("rank") >= RANK_BAR
    assert total.share("host") >= HOST_BAR


def test_nobody_is_accused_wrongly_and_no_healthy_run_fails(scores):
    total = tally(scores)
    assert total.right["wrong rank"] == 0
    assert total.right["wrong host"] == 0
    assert total.right["false alarm"] == 0


def test_the_set_is_as_broad_as_it_says_and_small():
    truths = read_truths(RECORDED)
    faults = {
        launcher: sum(not truth.healthy for (name, _), truth in truths.items() if name == launcher)
        for launcher, _ in truths
    }
    assert sum(count >= LEAST_FAULTS for count in faults.values()) >= LEAST_LAUNCHERS
    files = [path for path in RECORDED.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < SIZE_LIMIT


def test_every_right_line_is_there_and_no_folder_of_the_recording_machine():
    for (launcher, scenario), truth in read_truths(RECORDED).items():
        folder = RECORDED / launcher / scenario
        assert truth.healthy or truth.lines, (launcher, scenario)
        for name, numbers in truth.lines.items():
            assert max(numbers) <= len((folder / name).read_text().split("\n"))
        for path in folder.rglob("*"):
            if path.is_file():
                text = path.read_text()
                assert "/tmp/lab-" not in text and ".pyenv" not in text and "/work/" not in text, (
                    path
                )
