"""The format for lnav: made from the labels, accepted by lnav itself, and it finds the ranks of a real log."""

import csv
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rerail.log_parsers.labels import labels
from rerail.log_parsers.lnav_format import NAME, lnav_format

LOG = Path(__file__).parents[1] / "data" / "faultlab" / "hang_one_rank" / "torchrun.log"


@pytest.fixture
def lnav(tmp_path):
    if shutil.which("lnav") is None:
        pytest.skip("lnav is not installed: apt-get install lnav")
    folder = tmp_path / "formats" / "installed"
    folder.mkdir(parents=True)
    (folder / "rerail.json").write_text(json.dumps(lnav_format()))

    def run(*arguments):
        return subprocess.run(
            ["lnav", "-I", str(tmp_path), *arguments], capture_output=True, text=True, timeout=60, check=False,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "TERM": "dumb"},
        )  # fmt: skip

    return run


def test_each_pattern_has_a_sample_that_it_matches_and_names_what_it_holds():
    made = lnav_format()[NAME]
    assert len(made["regex"]) == len(made["sample"]) > 60
    for one, sample in zip(made["regex"].values(), made["sample"], strict=True):
        found = re.match(one["pattern"], sample["line"])
        assert found and found["timestamp"].startswith("2026-11-23 03:01:44")
        assert set(found.groupdict()) <= {*made["value"], "timestamp", "level", "body"}
    ours = {label.id.replace("-", "_") for label in labels()}
    assert {name.rsplit("_", 1)[0] for name in made["regex"]} <= ours


def test_lnav_takes_it_and_reads_the_ranks_of_torchrun(lnav):
    checked = lnav("-C")
    assert checked.returncode == 0 and "error" not in checked.stdout + checked.stderr
    query = (
        f";select rank, local, count(*) as lines from {NAME} where rank is not null group by rank"
    )
    done = lnav("-n", "-c", query, "-c", ":write-csv-to -", str(LOG))
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["rank"] for row in rows] == [row["local"] for row in rows] == ["0", "1", "2", "3"]
