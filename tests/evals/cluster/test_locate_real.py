"""`rerail diagnose 4711` on a real Slurm: as good as with the files named by hand, and only what belongs to the job."""

import json
import os
import subprocess
import sys

import pytest

from rerail.evals.cluster.lab import Lab, cannot_run
from rerail.evals.cluster.site import wait_for

RERAIL = "from rerail.assistant.cli.main import main; main()"
JOB = """#!/bin/bash
#SBATCH -o main-%x-%j.out
echo starting
srun --ntasks=2 -N2 -o "step-%j-%2t.log" python3 -c '
import os, sys
rank = int(os.environ["SLURM_PROCID"])
print("step 1 loss 2.0", flush=True)
if rank:
    print("[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    sys.exit(1)
'
"""


@pytest.mark.slurm
@pytest.mark.slow
@pytest.mark.skipif(bool(cannot_run()), reason=cannot_run() or "it can")
def test_jobs_are_found_by_their_numbers(tmp_path):
    with Lab(2, prefix=f"l{os.getpid()}n", rest=False) as lab:
        work = lab.root / "work"
        work.mkdir()
        (work / "job.sh").write_text(JOB)

        def submit(*how):
            done = lab.run("sbatch", "--parsable", "-W", *how, check=False, cwd=str(work))
            return done.strip()

        def diagnose(*arguments):
            done = subprocess.run(
                [sys.executable, "-c", RERAIL, "diagnose", "--json", "--no-model", *arguments],
                capture_output=True,
                text=True,
                timeout=120,
                cwd=tmp_path,
                env={**lab.environment, "RERAIL_DATA_DIR": str(tmp_path / "data")},
                check=False,
            )
            return done, json.loads(done.stdout) if done.stdout else {}

        job = submit("-J", "tr", "-N2", "--ntasks=2", "job.sh")
        files = [work / name for name in (f"main-tr-{job}.out", f"step-{job}-01.log")]
        _, by_hand = diagnose(*map(str, files))
        done, found = diagnose(job)
        assert done.returncode == 0, done.stderr
        for key in ("outcome", "status", "failure_type"):
            assert found[key] == by_hand[key], key
        assert found["failure_type"] == "cuda_oom"
        assert found["first_fault"]["file"] == by_hand["first_fault"]["file"] == str(files[1])
        array = submit("--array=1-2", "-N1", "--wrap", "echo step; exit $((SLURM_ARRAY_TASK_ID-1))")
        # The accounting learns of the tasks one after the other, and later than who waits for them.
        ended = ("sacct", "-X", "-n", "-P", "-o", "JobID,State", "-j", array)
        assert wait_for(
            lambda: set(lab.run(*ended).split()) >= {f"{array}_1|COMPLETED", f"{array}_2|FAILED"},
            60,
        )
        done, _ = diagnose(array)
        assert (done.returncode, f"{array}_2" in done.stderr) == (2, True), done.stderr
        done, found = diagnose(f"{array}_2")
        assert (done.returncode, found["outcome"]) == (0, "failure"), done.stderr
        done, found = diagnose(f"{array}_1")
        assert (done.returncode, found["outcome"]) == (3, "no_failure"), done.stderr
        gone = submit("-N1", "-o", "gone.out", "--wrap", "rm gone.out; exit 4")
        _, found = diagnose(gone)
        assert any("is not there" in one["what"] for one in found["missing"])
        done, _ = diagnose("999999")
        assert (done.returncode, "knows no job 999999" in done.stderr) == (11, True)
        plan = subprocess.run(
            [sys.executable, "-c", RERAIL, "plan", job, "--json"],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            env={**lab.environment, "RERAIL_DATA_DIR": str(tmp_path / "data")},
            check=False,
        )
        assert plan.returncode == 0, plan.stderr
        assert json.loads(plan.stdout)["job"]["job"] == job


LATE = """#!/bin/bash
srun --ntasks=2 -N2 -o "late-%j-%t.log" python3 -c '
import os, sys, time
rank = int(os.environ["SLURM_PROCID"])
print("step 1 loss 2.0", flush=True)
while not os.path.exists("go"):
    time.sleep(0.2)
if rank:
    print("[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    sys.exit(1)
'
"""


@pytest.mark.slurm
@pytest.mark.slow
@pytest.mark.skipif(bool(cannot_run()), reason=cannot_run() or "it can")
def test_a_running_job_is_followed_to_its_end(tmp_path):
    with Lab(2, prefix=f"f{os.getpid()}n", rest=False) as lab:
        work = lab.root / "work"
        work.mkdir()
        (work / "job.sh").write_text(LATE)
        job = lab.run("sbatch", "--parsable", "-N2", "--ntasks=2", "job.sh", cwd=str(work)).strip()
        followed = subprocess.Popen(
            [sys.executable, "-u", "-c", RERAIL, "diagnose", "--follow", "--quiet", job],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**lab.environment, "RERAIL_DATA_DIR": str(tmp_path / "data")},
        )
        try:
            first = followed.stdout.readline()
            assert "no_failure" in first or "inconclusive" in first, followed.stderr.read()
            (work / "go").touch()
            out, err = followed.communicate(timeout=300)
        finally:
            followed.kill()
        assert followed.returncode == 0, err
        assert f"late-{job}-1.log:2" in out.splitlines()[-1]
