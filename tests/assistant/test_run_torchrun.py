"""`rerail run -- torchrun ...` with real failing jobs: torchrun stays the launcher, rerail judges."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]
RERAIL = (sys.executable, "-c", "from rerail.assistant.cli.main import main; main()")
TORCHRUN = Path(sys.executable).with_name("torchrun")
TRAIN = """
import os, sys
from pathlib import Path
import torch, torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    dist.init_process_group("gloo")
    rank, once = dist.get_rank(), Path(sys.argv[2])
    value = torch.ones(1)
    for step in range(1, 13):
        if rank == 1 and step == 8:
            if sys.argv[1] == "typo":
                {"learning_rate": 0.1}["learning_rat"]
            if sys.argv[1] == "killed" and not once.exists():
                once.touch()
                os.kill(os.getpid(), 9)
        dist.all_reduce(value)
        print(f"[rank{rank}] INFO step {step} loss {3 - 0.1 * step:.4f} step_time 0.1000s", flush=True)
    dist.destroy_process_group()

main()
"""


def run(folder, fault, *options):
    script = folder / "train.py"
    script.write_text(TRAIN)
    logs = folder / "logs"
    job = (
        str(TORCHRUN),
        "--standalone",
        "--nproc-per-node=2",
        str(script),
        fault,
        str(folder / "once"),
    )
    done = subprocess.run(
        [*RERAIL, "run", "--log-dir", str(logs), *options, "--", *job],
        env={
            **os.environ,
            "RERAIL_DATA_DIR": str(folder / "data"),
            "OMP_NUM_THREADS": "1",
            # torchrun 2.13 starts again on addresses of its first try unless told otherwise
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done, logs


def test_a_bug_is_named_with_its_rank_and_not_tried_again(tmp_path):
    done, logs = run(tmp_path, "typo", "--restarts", "2")
    assert done.returncode == 1, done.stderr
    assert not (logs / "attempt_1").exists()
    assert "python_exception" in done.stdout and "KeyError: 'learning_rat'" in done.stdout
    assert "rank 1" in done.stdout.split("EVIDENCE")[0].split("VERDICT")[1]
    # torchrun was not replaced: its own report is passed through, and its error files are read.
    assert "Root Cause (first observed failure)" in done.stdout
    [error] = logs.rglob("1/error.json")
    assert "KeyError: 'learning_rat'" in json.loads(error.read_text())["message"]["message"]
    stored = subprocess.run(
        [*RERAIL, "incidents"],
        env={**os.environ, "RERAIL_DATA_DIR": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "python_exception" in stored.stdout


def test_a_rank_that_was_killed_is_started_again_and_the_job_ends_well(tmp_path):
    done, logs = run(tmp_path, "killed", "--restarts", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("rerail run: starting again (1 of 2)") == 1
    assert (logs / "attempt_1").exists() and not (logs / "attempt_2").exists()
    assert "step 12 loss" in (logs / "attempt_1" / "launcher.log").read_text()
