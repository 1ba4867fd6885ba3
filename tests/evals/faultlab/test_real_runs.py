from importlib.util import find_spec
from pathlib import Path

import pytest

from rerail.evals.faultlab.runner import run_scenario
from rerail.evals.faultlab.scenarios import all_scenarios
from rerail.evals.faultlab.score import torchrun_root_cause

QUICK = [one for one in all_scenarios().values() if one.quick]


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("scenario", QUICK, ids=lambda one: one.name)
def test_a_job_really_fails(scenario, tmp_path: Path) -> None:
    run = run_scenario(scenario, tmp_path)
    assert run.exit_code == 1
    assert not run.timed_out
    assert [path.name for path in tmp_path.iterdir()] == [scenario.name]
    logs = tmp_path / scenario.name / "logs"
    launcher = (logs / "torchrun.log").read_text()
    assert torchrun_root_cause(launcher) == scenario.truth.rank
    ranks = sorted(path.name for path in logs.glob("*/attempt_0/*"))
    assert ranks == ["0", "1", "2", "3"]
    assert scenario.name not in launcher
