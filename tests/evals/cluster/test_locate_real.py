"""`rerail diagnose 4711` on a real Slurm: as good as with the files named by hand, and only what belongs to the job."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rerail.assistant.locate.gather import gather
from rerail.assistant.locate.job_name import job_name
from rerail.assistant.locate.slurm import SlurmLocator
from rerail.evals.cluster.lab import Lab, cannot_run
from rerail.evals.cluster.site import wait_for
from rerail.recovery.site_policy import JobLayout, SitePolicy
from rerail.tools.clusters.slurm_read import SlurmReader

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
AGAIN = """#!/bin/bash
#SBATCH -o again-%j.out
srun -N2 -n2 -o "try-%j-${SLURM_RESTART_COUNT:-0}-%n.log" bash -c '
if [ -z "$SLURM_RESTART_COUNT" ]; then
  echo "[rank$SLURM_PROCID]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
  exec sleep 600
fi
echo "[rank$SLURM_PROCID]: RuntimeError: CUDA error: an illegal memory access was encountered"
exit 1'
"""
ELASTIC = f"""#!/bin/bash
#SBATCH -o /dev/null
cat > fails.py <<'END'
import os
print("step 1 loss 2.0", flush=True)
if os.environ["RANK"] == "1":
    raise KeyError("learning_rat")
END
{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2 --log-dir elastic --redirects 3 fails.py
"""
FELL = "NVRM: Xid (PCI:0000:9b:00): 79, pid=4242, name=python, GPU has fallen off the bus."


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
        (work / "elastic.sh").write_text(ELASTIC)
        elastic = submit("-N1", "elastic.sh")
        done, found = diagnose(elastic)
        assert (done.returncode, found["failure_type"]) == (0, "python_exception"), done.stderr
        assert found["first_fault"]["rank"] == 1
        assert (work / "elastic") in Path(found["first_fault"]["file"]).parents
        the_attempts_of_a_requeued_job_are_kept_apart(lab, work)


def the_attempts_of_a_requeued_job_are_kept_apart(lab, work):
    """Files, slurmd's logs and kernel logs of each attempt, the latter two where only the policy names them."""
    (work / "again.sh").write_text(AGAIN)
    how = ("sbatch", "--parsable", "-N2", "--ntasks=2", "again.sh")
    job = lab.run(*how, cwd=str(work)).strip()
    tries = {n: {work / f"try-{job}-{n}-{place}.log" for place in (0, 1)} for n in (0, 1)}
    assert wait_for(lambda: all(p.exists() and p.stat().st_size for p in tries[0]), 60)
    lab.run("scontrol", "requeue", job)
    state = ("squeue", "-h", "-j", job, "-o", "%T")
    assert wait_for(lambda: lab.run(*state).split() == ["PENDING"], 60)
    # Accounting keeps whole seconds: what is written from here on is told from what was before.
    second = int(time.time()) + 1
    assert wait_for(lambda: time.time() >= second, 60)
    lab.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    times = ("sacct", "-D", "-X", "-n", "-P", "-o", "State,Start,End", "-j", job)
    assert wait_for(lambda: "FAILED|" in lab.run(*times), 60)
    rows = [line.split("|") for line in lab.run(*times).splitlines()]
    assert [one[0] for one in rows] == ["REQUEUED", "FAILED"]
    system = lab.root / "collected"
    system.mkdir()
    node = lab.layout.nodes[1]
    for name in lab.layout.nodes:
        (system / f"{name}.slurmd").symlink_to(lab.root / "log" / f"slurmd.{name}.log")
    kernel = [f"{at} {node} kernel: {FELL}\n" for at in (rows[0][1], rows[1][1])]
    (system / f"{node}.kern").write_text("".join(kernel))
    layout = JobLayout(
        scheduler_logs=(f"{system}/{{node}}.slurmd",), kernel_logs=(f"{system}/{{node}}.kern",)
    )
    found = [evidence(lab, job, layout, number) for number in (0, 1)]
    for number, (texts, missing) in enumerate(found):
        header, *table = texts[f"sacct -D -j {job}"].splitlines()
        assert "DerivedExitCode" in header
        assert [row.split("|")[0] for row in table].count(job) == 1
        assert f"|{rows[number][0]}|" in table[0]
        assert {str(one) for one in tries[number]} <= set(texts)
        assert not {str(one) for one in tries[1 - number]} & set(texts)
        # Every line stands under the number that it has in the file, and what is not of this attempt is empty.
        assert texts[f"{system}/{node}.kern"] == "".join(
            line if place == number else "\n" for place, line in enumerate(kernel)
        )
        assert f"[{job}.0]" in texts[f"{system}/{node}.slurmd"]
        assert f"kernel log of {lab.layout.nodes[0]}" in missing
    # With the default open mode the second attempt wrote over what the first one had written.
    assert f"{work}/again-{job}.out was written again by attempt 1" in found[0][1]
    assert f"{work}/again-{job}.out" in found[1][0]
    lines = [set(texts[f"{system}/{lab.layout.nodes[0]}.slurmd"].split("\n")) for texts, _ in found]
    assert lines[0] & lines[1] == {""}
    assert any("DUE TO JOB REQUEUE" in one for one in lines[0])
    assert not any("DUE TO JOB REQUEUE" in one for one in lines[1])


def evidence(lab, job, layout, attempt):
    """Return the texts of what is found of one attempt, by name, and what is missing."""
    locator = SlurmLocator(SlurmReader(environment=lab.environment), SitePolicy(jobs=layout))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", lab.environment["PATH"])
        patch.setattr("rerail.assistant.locate.locator.BUILT_IN", (("slurm", lambda: locator),))
        with gather(job_name(job), 20.0, attempt) as found:
            texts = {one.name: one.path.read_text() for one in found.evidence.sources}
    missing = " | ".join(f"{one.subject} {one.why}" for one in found.evidence.problems)
    return texts, missing


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
