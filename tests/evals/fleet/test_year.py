"""The fleet view of simulated years whose truth is known, through the store, the command and the files."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rerail.assistant.presentation.fleet_site import recoveries, site_view
from rerail.domain.plan import ActionState
from rerail.evals.fleet.year import (
    BEGIN,
    YEAR_S,
    Truth,
    as_sacct,
    incidents_of,
    node_name,
    simulate,
)
from rerail.knowledge_base.store.engine import open_store, writing
from rerail.knowledge_base.store.incidents import record
from rerail.recovery.store.plans import Restart
from rerail.settings import Settings

RERAIL = Path(sys.executable).parent / "rerail"
SMALL = {"nodes": 200, "jobs": 3000, "users": 30, "per_gpu_hour": 4e-5}


def named(view):
    return {one.name for part in (view.nodes, view.switches, view.users) for one in part if one.stands_out}  # fmt: skip


def judged(year):
    return site_view(year.found, year.runs, year.roots, since=BEGIN, until=BEGIN + 2 * YEAR_S)


def test_bad_nodes_and_a_careless_user_stand_out_and_nobody_else():
    year = simulate(Truth(**SMALL, bad_nodes={node_name(17): 20.0, node_name(90): 20.0}, careless={"u3": 3.0}), 1)  # fmt: skip
    view = judged(year)
    assert named(view) == {"n0017", "n0090", "u3"}
    assert view.efficiency.ettr == pytest.approx(year.ettr, abs=1e-4)
    assert view.efficiency.goodput == pytest.approx(year.goodput, abs=1e-4)
    assert view.efficiency.known == view.efficiency.failures > 100 and view.undiagnosed == 0


def test_in_a_healthy_year_nothing_stands_out_and_the_intervals_hold_the_true_rate():
    truth = Truth(**SMALL)
    view = judged(simulate(truth, 2))
    assert named(view) == set() and view.nodes[0].failures >= 4  # the worst one looks bad
    held = [
        (s.mttf.low or 0) <= s.hours / (truth.per_gpu_hour * s.gpu_hours) <= (s.mttf.high or 1e9)
        for s in view.reliability.sizes
    ]
    assert len(held) == 8 and sum(held) >= 7
    assert view.reliability.one_rate > 0.01
    gpus, projected = view.reliability.projection[-1]
    assert projected.low <= 1 / (truth.per_gpu_hour * gpus) <= projected.high


def test_a_restart_has_held_when_the_job_lives_for_a_day_after_it():
    year = simulate(Truth(nodes=8, jobs=30, users=2, per_gpu_hour=2e-3), 3)
    again = next(one for one in year.found if one.row.attempt == 1)
    at = BEGIN + YEAR_S
    from rerail.knowledge_base.store.clock import from_iso

    failed_at = from_iso(again.row.time).timestamp()
    rows = [
        Restart("local", again.row.job, 0, ActionState.VERIFIED, True, failed_at - 60),
        Restart("local", again.row.job, 0, ActionState.VERIFIED, True, failed_at - 90_000),
        Restart("local", "none", 0, ActionState.FAILED, True, at),
        Restart("local", "none", 0, ActionState.VERIFIED, False, at - 60),
    ]
    told = recoveries(rows, year.found, at)
    auto = told["automatic"]
    assert (auto.begun, auto.held, auto.failed_again, auto.did_not_work) == (3, 1, 1, 1)
    assert told["approved"].too_new == 1


@pytest.fixture
def site(tmp_path):
    """A small site with its store, and a user whose name is markup."""
    year = simulate(Truth(nodes=12, jobs=60, users=3, per_gpu_hour=4e-4), 4)
    engine = open_store(Settings(data_dir=tmp_path / "data"))
    with writing(engine) as connection:
        for one in incidents_of(year):
            record(connection, one)
    engine.dispose()
    (tmp_path / "jobs.txt").write_text(as_sacct(year).replace("|u0|", "|<img src=x>|"))

    def rerail(*arguments, code=0):
        done = subprocess.run(
            [str(RERAIL), "report", "--since", "2025-12-31", *map(str, arguments)], capture_output=True, text=True,
            timeout=60, check=False, env={**os.environ, "RERAIL_DATA_DIR": str(tmp_path / "data")},
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return rerail


def test_the_report_says_it_in_text_files_and_a_page(site, tmp_path):
    text = site("--jobs", tmp_path / "jobs.txt")
    assert max(map(len, text.splitlines())) <= 80
    assert "Goodput: 9" in text and "What stands out, and what chance explains" in text
    assert "projected" in text and "A count is no proof" not in text
    body = json.loads(
        site("--jobs", tmp_path / "jobs.txt", "--json", "--csv", tmp_path / "csv", "--html", tmp_path / "fleet.html").partition("\nwritten:")[0]
    )  # fmt: skip
    sizes = list(csv.DictReader((tmp_path / "csv" / "sizes.csv").read_text().splitlines()))
    assert (
        float(sizes[0]["mttf_low"]) < float(sizes[0]["mttf_hours"]) < float(sizes[0]["mttf_high"])
    )
    page = (tmp_path / "fleet.html").read_text()
    assert "&lt;img src=x&gt;" in page and "<img" not in page and "<script" not in page
    assert "href=" not in page and "Failures against job size" in page
    assert body["site"]["attempts"] == sum(one["attempts"] for one in body["site"]["reliability"]["sizes"])  # fmt: skip


def test_without_a_record_of_jobs_nothing_is_said_of_chance(site, tmp_path):
    text = site()
    assert "Name the site's record of jobs" in " ".join(text.split()) and "ETTR" not in text
    assert "sacct" in site("--jobs", tmp_path / "nothing.txt", code=11)


def test_either_store_gives_back_what_the_statistics_need(empty_store_url, tmp_path):
    from rerail.knowledge_base.store.engine import reading
    from rerail.knowledge_base.store.span import failures_between
    from rerail.recovery.executor import RESTARTS
    from rerail.recovery.store.plans import restarts_since

    year = simulate(Truth(nodes=8, jobs=40, users=2, per_gpu_hour=1e-3), 3)
    engine = open_store(Settings(data_dir=tmp_path, store_url=empty_store_url))
    try:
        with writing(engine) as connection:
            for one in incidents_of(year):
                record(connection, one)
        with reading(engine) as connection:
            found = failures_between(connection, "2025-12-31", "2030-01-01")
            assert restarts_since(connection, 0.0, RESTARTS) == []
    finally:
        engine.dispose()
    told = sorted((one.row.job, one.row.attempt, one.nodes, one.lost_steps, one.made_steps) for one in found)  # fmt: skip
    assert told == sorted(
        (one.row.job, one.row.attempt, one.nodes, one.lost_steps, one.made_steps if one.made_steps else None)
        for one in year.found
    )  # fmt: skip
    assert len(told) > 20
