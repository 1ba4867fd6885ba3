"""Five hundred damages of the recorded jobs shake nothing; `rerail eval soak` runs ten thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerail.errors import UsageError
from rerail.evals.soak import run
from rerail.evals.soak.damage import DAMAGES
from rerail.evals.soak.run import soak

JOBS = Path(__file__).parents[1] / "data" / "faultlab"


def test_five_hundred_damages() -> None:
    report = soak(JOBS, 500, seed=7)
    assert report.faults == []
    assert report.runs == 500 and len(report.by_damage) == len(DAMAGES) + 1


def test_a_soak_finds_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run.diagnose_paths
    seen: list[object] = []

    def shaken(paths: list[Path]) -> object:
        seen.append(paths)
        if len(seen) > len(list(JOBS.iterdir())):
            raise KeyError("shaken")
        return whole(paths)

    monkeypatch.setattr(run, "diagnose_paths", shaken)
    assert "KeyError: 'shaken'" in soak(JOBS, 1).faults[0]


def test_a_folder_without_jobs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no recorded jobs"):
        soak(tmp_path, 1)
