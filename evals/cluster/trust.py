"""What a set-up by the documentation has to withstand, on the real Slurm with its real accounts.

Traps of a job's user, a stop in the middle, a policy edited under the daemon, rights that are missing,
jobs that cannot be requeued. Each says what is wrong; none of them needs a GPU.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rerail.evals.cluster.bench import Bench, Result
from rerail.evals.cluster.site import USERS, as_account, wait_for

STEPS = 40


def _messages(bench: Bench) -> list[dict[str, Any]]:
    path = Path("/var/log/rerail/messages.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _told_of(bench: Bench, job: str, kind: str = "") -> list[dict[str, Any]]:
    return [
        one
        for one in _messages(bench)
        if f"/{job}/" in str(one.get("job", "")) and (not kind or one["kind"] == kind)
    ]


def _own_files(bench: Bench) -> dict[str, str]:
    """Return digest, owner and mode of what only rerail may change."""
    found = {}
    for path in (bench.site.data / "approval.key", bench.site.policy_file):
        facts = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        found[str(path)] = f"{digest} {facts.st_uid} {facts.st_mode:o}"
    return found


def _requeued_once(did: list[str], job: str) -> bool:
    """Return whether a job was requeued once, off the node that failed thrice by then or not."""
    return did in ([f"requeue {job}"], [f"requeue_excluding {job}"])


def planted_links(bench: Bench) -> Result:
    """The job's user plants links to rerail's key where it will write: nothing of rerail's changes."""
    result = Result("planted_links")
    before = _own_files(bench)
    job, folder = bench.site.submit(
        "planted_links", f"--steps {STEPS} --step-time-s 0.3 --poisoned 26"
    )
    # Behind the start: the job itself reads its orders there, and may not read rerail's key.
    result.check(bench.wait_for_text(job, folder, "INFO step 5 ", 60), "the job did not start")
    key = bench.site.data / "approval.key"
    daemon = bench.site.daemon.pid if bench.site.daemon else 0
    names = [f".restart.json.{pid}" for pid in range(daemon - 20, daemon + 200) if pid > 0]
    every = " ".join(["restart.json", ".restart.json", *names])
    plant = f"cd {folder} && for one in {every}; do ln -s {key} $one; done"
    subprocess.run(as_account(USERS[0], "sh", "-c", plant), check=True)
    result.check(wait_for(lambda: bench.settled(job), 90), "no plan was made")
    bench.fill_in(result, job)
    result.check(_own_files(bench) == before, f"rerail's own files: {_own_files(bench)}")
    result.check(len(bench.attempts(job)) == 1, "the job was restarted")
    result.check(any("is a link" in why for why in result.refused), f"refused: {result.refused}")
    result.check(bool(_told_of(bench, job)), "nobody was told")
    return result


def strange_spool(bench: Bench) -> Result:
    """A pipe, a folder, a link and another account's file in the spool: the next event is taken."""
    result = Result("strange_spool")
    spool = bench.site.data / "spool"
    for command in (
        ("mkfifo", str(spool / "pipe.json")),
        ("mkdir", str(spool / "folder.json")),
        ("ln", "-s", str(bench.site.data / "approval.key"), str(spool / "link.json")),
    ):
        subprocess.run(as_account("slurm", *command), check=True)
    stranger = spool / "stranger.json"
    stranger.write_text('{"job": {"job": "1"}, "state": "FAILED", "time": "2026-01-01T00:00:00Z"}')
    shutil.chown(stranger, USERS[1])
    job, folder = bench.site.submit("strange_spool", f"--steps {STEPS} --fault killed")
    bench.must_complete(result, job, folder, 120)
    bench.fill_in(result, job)
    # A folder of another account cannot be moved away, not even by the owner of the spool.
    left = [one.name for one in spool.glob("*.json") if one.name != "folder.json"]
    result.check(not left, f"still in the spool: {left}")
    told = bench.site.log().count("folder.json could not be set aside")
    result.check(told == 1, f"what could not be set aside was said {told} times")
    result.check("event refused: it is no file" in bench.site.log(), "it was not said")
    (spool / "folder.json").rmdir()
    return result


def stopped(bench: Bench) -> Result:
    """The breaker is opened, then a stop file laid: nothing is done, people know, a person goes on."""
    result = Result("stopped")
    bench.site.rerail("breaker", "open", "--why", "maintenance of the fabric")
    first, _ = bench.site.submit("stopped_breaker", f"--steps {STEPS} --fault killed")
    result.check(wait_for(lambda: bench.settled(first), 90), "no plan was made")
    result.check(not bench.done(first), f"did {bench.done(first)} with an open breaker")
    closed = bench.site.rerail("breaker", "close", "all is well")
    result.check(closed.returncode == 0, closed.stderr)
    job, folder = bench.site.submit("stopped_file", f"--steps {STEPS} --fault killed")
    stop = bench.site.data / "STOP"
    subprocess.run(as_account("rerail", "touch", str(stop)), check=True)
    result.check(wait_for(lambda: bench.settled(job), 90), "no plan was made")
    time.sleep(3.0)
    result.check(not bench.done(job), f"did {bench.done(job)} beside a stop file")
    result.check(bool(_told_of(bench, job)), "nobody was told of the stopped plan")
    doctor = bench.site.rerail("doctor")
    result.check("stop file" in doctor.stdout and doctor.returncode == 1, doctor.stdout)
    stop.unlink()
    plan = json.loads(
        bench.site.rerail("plan", bench.plans_of(job)[-1]["incident"], "--again", "--json").stdout
    )
    step = next(one["step"] for one in plan["actions"] if one["kind"].startswith("requeue"))
    automatic = not plan["actions"][step - 1]["needs_approval"]
    result.check(automatic, "the new plan waits")
    bench.must_complete(result, job, folder, 120, "the job did not complete after the stop")
    bench.fill_in(result, job)
    return result


def edited_policy(bench: Bench) -> Result:
    """The policy is edited, broken and gone under the daemon: it holds, says so, and doctor is red."""
    result = Result("edited_policy")
    good = bench.site.policy_file.read_text()
    job, folder = bench.site.submit("edited_policy", f"--steps {STEPS} --fault killed")
    result.check(bench.wait_for_text(job, folder, "INFO step 5 ", 60), "the job did not start")
    for text in (good + "\n# edited\n", "rules: [", None):
        if text is None:
            bench.site.policy_file.unlink()
        else:
            bench.site.policy_file.write_text(text)
        time.sleep(0.5)
    wait_for(lambda: bool(bench.plans_of(job)), 60)
    time.sleep(4.0)
    result.check(not bench.done(job), f"did {bench.done(job)} without a policy file")
    held = [one for one in _messages(bench) if one["kind"] == "held"]
    result.check(bool(held), "nobody was told that it holds")
    bench.site.policy_file.write_text(good + "\n# edited by ann\n")
    time.sleep(3.0)
    result.check(not bench.done(job), "it acted by an edited file that nobody had it read again")
    doctor = bench.site.rerail("doctor")
    red = [
        line for line in doctor.stdout.splitlines() if line.startswith(" bad") and "daemon" in line
    ]
    result.check(bool(red), f"doctor is not red: {doctor.stdout}")
    bench.site.signal(signal.SIGHUP)
    bench.must_complete(result, job, folder, 120, "the job did not complete after SIGHUP")
    bench.fill_in(result, job)
    content = bench.site.policy()
    bench.site.write_policy({**content, "dry_run": True})
    other, _ = bench.site.submit("dry_run_at_once", f"--steps {STEPS} --fault killed")
    wait_for(lambda: bench.settled(other) or bool(bench.plans_of(other)), 90)
    time.sleep(4.0)
    result.check(not bench.done(other), "it acted under dry_run: true")
    bench.site.policy_file.write_text(good)
    bench.site.signal(signal.SIGHUP)
    return result


def missing_rights(bench: Bench) -> Result:
    """The writer is only an operator: the drain is refused once and told by name, the rest goes on."""
    result = Result("missing_rights")
    level = ("sacctmgr", "-i", "modify", "user", "svc-rerail-writer", "set")
    bench.lab.run(*level, "adminlevel=operator")
    try:
        wait_for(lambda: "adminlevel=admin" in bench.site.rerail("doctor").stdout, 20)
        doctor = bench.site.rerail("doctor")
        result.check("adminlevel=admin" in doctor.stdout, f"doctor: {doctor.stdout}")
        job, folder = bench.site.submit("missing_rights", f"--steps {STEPS}")
        result.check(bench.wait_for_text(job, folder, "INFO step 15 ", 60), "it did not start")
        node = bench.attempts(job)[-1].nodes[-1]
        fault_at = time.time()
        bench.lab.kill_node(node)
        bench.must_complete(result, job, folder, 150, "the job did not complete elsewhere")
        bench.fill_in(result, job, fault_at)
        told = _told_of(bench, job, "step_failed")
        result.check(len(told) == 1, f"told {len(told)} times of the refused drain")
        said = told[0]["text"] if told else ""
        result.check("Invalid user id" in said and "adminlevel=admin" in said, f"told: {said}")
        result.check(not bench.drained(), f"drained: {bench.drained()}")
        bench.repair(node)
    finally:
        bench.lab.run(*level, "adminlevel=admin")
    return result


def not_requeueable(bench: Bench) -> Result:
    """A job of --no-requeue: its owner is told; where the site allows, it is submitted again."""
    result = Result("not_requeueable")
    job, _ = bench.site.submit(
        "not_requeueable", f"--steps {STEPS} --fault killed", sbatch=("--no-requeue",)
    )
    result.check(wait_for(lambda: bench.settled(job), 90), "no plan was made")
    bench.fill_in(result, job)
    result.check(not result.did, f"did {result.did}")
    result.check(any("--no-requeue" in why for why in result.refused), f"{result.refused}")
    result.check(any(one["to"] == "owner" for one in _told_of(bench, job)), "the owner is not told")
    good, rights = bench.site.policy_file.read_text(), Path("/etc/sudoers.d/rerail")
    sudoers = rights.read_text()
    rights.write_text(
        sudoers.replace("/bin/rerail-job-file", "/bin/rerail-job-file, /usr/bin/sbatch")
    )
    content = bench.site.policy()
    content["jobs"]["resubmit"] = True
    bench.site.write_policy(content)
    bench.site.signal(signal.SIGHUP)
    time.sleep(3.0)
    try:
        again, folder = bench.site.submit(
            "resubmitted", f"--steps {STEPS} --fault killed_here", sbatch=("--no-requeue",)
        )
        result.check(wait_for(lambda: bench.settled(again), 90), "no plan was made")
        plan = bench.plans_of(again)[-1]
        steps = [one["step"] for one in plan["actions"] if one["kind"] == "resubmit"]
        result.check(bool(steps), f"planned {plan['actions']}, refused {plan['refusals']}")
        if steps:
            done = bench.site.rerail(
                "approve", plan["id"], "--step", str(steps[0]), "--target", again
            )
            result.check(done.returncode == 0, done.stdout + done.stderr)
            ended = wait_for(lambda: (folder / "lineage.json").exists(), 90)
            result.check(ended, f"it was not submitted again: {done.stdout}")
            once = bench.site.rerail(
                "approve", plan["id"], "--step", str(steps[0]), "--target", again
            )
            result.check("nothing was done" in once.stdout, once.stdout)
    finally:
        rights.write_text(sudoers)
        bench.site.policy_file.write_text(good)
        bench.site.signal(signal.SIGHUP)
    return result


def store_reset(bench: Bench) -> Result:
    """The connection to an object store is reset once, below s3fs: restarted, not called a bug."""
    result = Result("store_reset")
    job, folder = bench.site.submit("store_reset", f"--steps {STEPS} --fault store_reset")
    bench.must_complete(result, job, folder, 120)
    bench.fill_in(result, job)
    result.check(_requeued_once(result.did, job), f"did {result.did}")
    return result


def doctor_is_green(bench: Bench) -> Result:
    """The page's last step: every right is tried and held, with a user's job to try it on."""
    result = Result("doctor_is_green")
    job, folder = bench.site.submit("doctor_is_green", "--steps 200 --step-time-s 0.3")
    result.check(bench.wait_for_text(job, folder, "INFO step 3 ", 60), "the job did not start")
    for node in bench.lab.layout.nodes:  # what this machine has no GPU to write
        scrape = bench.site.folder / "dcgm" / node / "a.prom"
        scrape.parent.mkdir(parents=True)
        scrape.write_text(f'DCGM_FI_DEV_XID_ERRORS{{gpu="0",UUID="GPU-0",Hostname="{node}"}} 0\n')
    done = bench.site.rerail("doctor", "--json")
    shutil.rmtree(bench.site.folder / "dcgm")
    found = {one["what"]: one for one in json.loads(done.stdout)}
    result.check(done.returncode == 0, done.stdout)
    tried = [
        *("store", "audit", "approvals", "spool", "messages", "TMPDIR", "daemon", "reader"),
        *("writer", "SLURM_CONF", "drain", "requeue", "JobRequeue", "health tests", "order files"),
    ]
    for name in tried:
        state = found.get(name, {}).get("state")
        result.check(state == "ok", f"{name}: {found.get(name)}")
    bench.lab.run("scancel", job)
    result.facts["doctor"] = [
        f"{one['state']} {one['what']}: {one['found']}" for one in found.values()
    ]
    return result


def killed_again_and_again(bench: Bench, times: int = 50) -> Result:
    """Kill -9 of the daemon at random moments while jobs fail: each is restarted, and once."""
    result = Result("killed_again_and_again")
    draw = random.Random(13)
    jobs: list[tuple[str, Path]] = []
    for kills in range(times):
        if kills % 10 == 0:
            fault = ("killed", "store_reset", "killed")[len(jobs) % 3]
            jobs.append(bench.site.submit(f"again_{len(jobs)}", f"--steps {STEPS} --fault {fault}"))
        bench.site.kill()
        begun = bench.site.log().count("watching slurm")
        bench.site.start()
        if kills % 5:  # mostly while it works, and every fifth time while it starts
            wait_for(lambda begun=begun: bench.site.log().count("watching slurm") > begun, 20)
        time.sleep(draw.uniform(0.0, 2.0))
    for job, folder in jobs:
        _restarted_once(bench, result, job, folder)
    verified = bench.site.rerail("audit", "verify")
    result.check(verified.returncode == 0, verified.stdout)
    result.facts["kills"] = times
    return result


def _restarted_once(bench: Bench, result: Result, job: str, folder: Path) -> None:
    bench.must_complete(result, job, folder, 240, f"job {job} did not complete")
    did = bench.done(job)
    result.check(_requeued_once(did, job), f"did {did} for {job}")
    result.check(len(bench.attempts(job)) == 2, f"{len(bench.attempts(job))} attempts of {job}")
    result.check(bench.lineage(folder) == list(range(1, STEPS + 1)), f"data of {job}")


TRUST: dict[str, Callable[[Bench], Result]] = {
    "doctor_is_green": doctor_is_green,
    "planted_links": planted_links,
    "strange_spool": strange_spool,
    "stopped": stopped,
    "edited_policy": edited_policy,
    "missing_rights": missing_rights,
    "not_requeueable": not_requeueable,
    "store_reset": store_reset,
    "killed_again_and_again": killed_again_and_again,
}
