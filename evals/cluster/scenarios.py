"""The recovery scenarios: a real job on a real Slurm fails, nobody touches anything, what happens?"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from rerail.evals.cluster.bench import Bench, Result
from rerail.evals.cluster.site import USERS, as_account, wait_for

STEPS = 40
EVERY = list(range(1, STEPS + 1))


def _recovered(
    bench: Bench, result: Result, job: str, folder: Path, fault_at: float | None = None
) -> Result:
    """Wait for the end of a job that should recover by itself, and judge its lineage."""
    bench.must_complete(result, job, folder, 150)
    bench.fill_in(result, job, fault_at)
    bench.trains_again(result, job, folder, fault_at)
    result.facts["batches"] = bench.lineage(folder)
    return result


def _left_alone(bench: Bench, result: Result, job: str) -> Result:
    """Wait for the plan of a job that should not be restarted."""
    result.check(wait_for(lambda: bench.settled(job), 90), "no plan was made")
    time.sleep(1.0)  # anything that would be done wrongly would be done within this time
    bench.fill_in(result, job)
    result.check(len(bench.attempts(job)) == 1, "the job was restarted")
    result.check(not result.did, f"something was done: {result.did}")
    return result


def node_lost(bench: Bench) -> Result:
    """A node dies under the job: it is drained, the job goes on elsewhere from its checkpoint."""
    result = Result("node_lost")
    job, folder = bench.site.submit("node_lost", f"--steps {STEPS}")
    result.check(bench.wait_for_text(job, folder, "INFO step 15 ", 60), "the job did not start")
    node = bench.attempts(job)[-1].nodes[-1]
    fault_at = time.time()
    bench.lab.kill_node(node)
    _recovered(bench, result, job, folder, fault_at)
    last = bench.attempts(job)[-1]
    result.check(node not in last.nodes, f"it runs on {node} again")
    result.check(bench.drained() == [node], f"drained: {bench.drained()}, lost: {node}")
    # Beside other work the job is some steps further when the node is gone.
    used = re.search(r"resumed from step_0000[1-9]0\.pt", bench.output(job, folder))
    result.check(used is not None, "no checkpoint used")
    result.check(result.facts["batches"] == EVERY, "data was lost or repeated")
    bench.repair(node)
    return result


def node_lost_by_trigger(bench: Bench) -> Result:
    """The same, and rerail asks Slurm nothing by itself: strigger tells it of the node."""
    result = Result("node_lost_by_trigger")
    as_slurm = as_account("slurm", "strigger")
    trigger = "--program=/etc/rerail/trigger down"
    bench.lab.run(*as_slurm, "--set", "--node", "--down", "--flags=PERM", trigger)
    bench.site.kill()
    bench.site.start("--poll", "3600")
    try:
        job, folder = bench.site.submit("node_lost_by_trigger", f"--steps {STEPS}")
        result.check(bench.wait_for_text(job, folder, "INFO step 15 ", 60), "it did not start")
        node = bench.attempts(job)[-1].nodes[-1]
        fault_at = time.time()
        bench.lab.kill_node(node)
        _recovered(bench, result, job, folder, fault_at)
    finally:
        bench.site.kill()
        bench.lab.run(*as_slurm, "--clear", "--user=slurm", check=False)
        bench.site.start("--poll", "15")
    result.check(bench.heard_from(job) == "slurm-strigger", f"heard from {bench.heard_from(job)}")
    result.check(bench.drained() == [node], f"drained: {bench.drained()}, lost: {node}")
    result.check(node not in bench.attempts(job)[-1].nodes, f"it runs on {node} again")
    result.check(result.facts["batches"] == EVERY, "data was lost or repeated")
    bench.repair(node)
    return result


def rank_killed(bench: Bench) -> Result:
    """One rank is killed once: the job is requeued as it is."""
    result = Result("rank_killed")
    job, folder = bench.site.submit("rank_killed", f"--steps {STEPS} --fault killed")
    _recovered(bench, result, job, folder)
    result.check(result.did == [f"requeue {job}"], f"did {result.did}")
    result.check(result.facts["batches"] == EVERY, "data was lost or repeated")
    return result


def rank_killed_always(bench: Bench) -> Result:
    """The same at every start: it is given up after three restarts without progress."""
    result = Result("rank_killed_always")
    job, _ = bench.site.submit("rank_killed_always", f"--steps {STEPS} --fault killed_always")
    capped = wait_for(lambda: len(bench.plans_of(job)) >= 4 and bench.settled(job), 240)
    result.check(capped, f"{len(bench.plans_of(job))} plans instead of 4")
    bench.fill_in(result, job)
    result.check(len(bench.attempts(job)) == 4, f"{len(bench.attempts(job))} attempts, not 4")
    result.check(any("without progress" in why for why in result.refused), "no cap was named")
    return result


def user_bug(bench: Bench) -> Result:
    """An exception of the user's code: not restarted, the owner is told."""
    result = Result("user_bug")
    job, _ = bench.site.submit("user_bug", f"--steps {STEPS} --fault typo")
    _left_alone(bench, result, job)
    told = [one["kind"] for plan in bench.plans_of(job) for one in plan["states"]]
    result.check("notify" in told, "nobody was told")
    return result


def out_of_memory(bench: Bench) -> Result:
    """The kernel kills a task at its memory limit: not restarted as it is."""
    result = Result("out_of_memory")
    job, _ = bench.site.submit("out_of_memory", f"--steps {STEPS} --fault hoard")
    return _left_alone(bench, result, job)


def time_limit(bench: Bench) -> Result:
    """The time limit ends the job: it is requeued and goes on."""
    result = Result("time_limit")
    job, folder = bench.site.submit(
        "time_limit", "--steps 170 --step-time-s 0.6", sbatch=("--time", "1")
    )
    bench.must_complete(result, job, folder, 280)
    bench.fill_in(result, job)
    bench.trains_again(result, job, folder, None)
    result.check(bench.first_end(job)[0] == "TIMEOUT", "it did not time out")
    result.check(f"requeue {job}" in result.did, f"did {result.did}")
    result.check(bench.lineage(folder) == list(range(1, 171)), "data was lost or repeated")
    return result


def preempted(bench: Bench) -> Result:
    """A more urgent job takes the nodes: the job is requeued and goes on after it."""
    result = Result("preempted")
    job, folder = bench.site.submit("preempted", f"--steps {STEPS}")
    result.check(bench.wait_for_text(job, folder, "INFO step 15 ", 60), "the job did not start")
    bench.site.sbatch(
        *(USERS[1], "-p", "urgent", "-N", str(len(bench.lab.layout.nodes)), "--exclusive"),
        *("-o", "/dev/null", "--wrap", "sleep 4"),
    )
    _recovered(bench, result, job, folder)
    result.check(bench.first_end(job)[0] == "PREEMPTED", "it was not preempted")
    result.check(result.facts["batches"] == EVERY, "data was lost or repeated")
    return result


def checkpoint_cut(bench: Bench) -> Result:
    """The newest checkpoint is cut in half: the one before is used."""
    result = Result("checkpoint_cut")
    first, folder = bench.site.submit("checkpoint_cut", "--steps 20")
    result.check(bench.wait_for_text(first, folder, "training complete", 60), "no first run")
    wait_for(lambda: bench.attempts(first)[-1].state == "COMPLETED", 20)
    newest = folder / "ckpt/step_000020.pt"
    os.truncate(newest, newest.stat().st_size // 2)
    (folder / "lineage.json").unlink()
    job = bench.site.again(folder, f"--steps {STEPS}")
    _recovered(bench, result, job, folder)
    result.check(result.facts["batches"] == EVERY, "data was lost or repeated")
    result.check("resumed from step_000010.pt" in bench.output(job, folder), "not from step 10")
    return result


def poisoned_batch(bench: Bench) -> Result:
    """One batch makes the loss NaN: back to the checkpoint before it, without that batch only."""
    result = Result("poisoned_batch")
    job, folder = bench.site.submit("poisoned_batch", f"--steps {STEPS} --poisoned 26")
    _recovered(bench, result, job, folder)
    wanted = [step for step in EVERY if step != 26]
    result.check(result.facts["batches"] == wanted, "other data was lost or repeated")
    return result


def loss_spike(bench: Bench) -> Result:
    """A batch of noise makes the loss jump and stay finite; the job's own guard ends it."""
    result = Result("loss_spike")
    every = list(range(1, 81))
    job, folder = bench.site.submit("loss_spike", "--steps 80 --garbled 66 --guard 1.3")
    _recovered(bench, result, job, folder)
    wanted = [step for step in every if step != 66]
    result.check(result.facts["batches"] == wanted, "other data was lost or repeated")
    result.check(result.did == [f"roll_back_and_skip_data {job}"], f"did {result.did}")
    result.check("resumed from step_000060.pt" in bench.output(job, folder), "not from step 60")
    return result


def hang(bench: Bench) -> Result:
    """A rank hangs: noticed by standing still, stacks collected, restarted."""
    result = Result("hang")
    job, folder = bench.site.submit("hang", f"--steps {STEPS} --fault stuck")
    result.check(bench.wait_for_text(job, folder, "INFO step 24 ", 60), "the job did not start")
    fault_at = time.time()
    evidence: list[str] = []

    def dumped() -> bool:
        evidence[:] = [line for line in bench.output(job, folder).splitlines() if "_stuck" in line]
        return bool(evidence)

    result.check(wait_for(dumped, 120), "no stack of the hanging rank was collected")
    _recovered(bench, result, job, folder, fault_at)
    result.check(result.facts["batches"] == EVERY, "data was lost or repeated")
    result.facts["stack"] = evidence[:1]
    kept = list((bench.site.data / "evidence").rglob(f"*-{job}-0-dumps/job/*"))
    result.check(any("_stuck" in one.read_text() for one in kept), "the stacks were not kept")
    return result


def slow_group(bench: Bench) -> Result:
    """One rank is five times slower: it gets fewer micro-batches while the job runs on."""
    result = Result("slow_group")
    job, folder = bench.site.submit("slow_group", program="slow_job")
    result.check(bench.wait_for_text(job, folder, "training complete", 150), "it did not end")
    wait_for(lambda: bench.settled(job), 30)
    bench.fill_in(result, job, bench.attempts(job)[0].start)
    result.check(result.did == [f"adjust_micro_batches {job}"], f"did {result.did}")
    states = [one["state"] for plan in bench.plans_of(job) for one in plan["states"]]
    result.check(set(states) == {"verified"}, f"states: {states}")
    result.check(len(bench.attempts(job)) == 1, "the job was restarted")
    output = bench.output(job, folder)
    result.check("micro-batches are [7, 1] from step" in output, "the job does not follow")
    before, _, after = output.partition("micro-batches are")
    took = [
        statistics.median(map(float, re.findall(r"step_time ([\d.]+)s", part)))
        for part in (before, after)
    ]
    result.facts["step_s"] = took
    result.check(took[1] < 0.6 * took[0], f"a step takes {took[1]} s, before {took[0]} s")
    return result


def forged_xid(bench: Bench) -> Result:
    """A job prints a GPU fault that no kernel reported: nothing is drained or restarted."""
    result = Result("forged_xid")
    job, _ = bench.site.submit("forged_xid", f"--steps {STEPS} --fault xid_in_output")
    _left_alone(bench, result, job)
    result.check(not bench.drained(), f"drained: {bench.drained()}")
    return result


def dcgm_attests(bench: Bench) -> Result:
    """The same Xid, and the site's scrapes of DCGM say it too: drained, and run elsewhere.

    What the job left in its own folder of the other node accuses nobody. The scrapes are written by
    the scenario: this machine has no GPU.
    """
    result = Result("dcgm_attests")
    # Slowly, so that the scrapes lie there before the fault.
    job, folder = bench.site.submit(
        "dcgm_attests", f"--steps {STEPS} --step-time-s 0.3 --fault xid_once"
    )
    result.check(bench.wait_for_text(job, folder, "INFO step 3 ", 60), "the job did not start")
    first, node = bench.attempts(job)[-1].nodes
    metric = (
        'DCGM_FI_DEV_XID_ERRORS{{gpu="3",UUID="GPU-3",Hostname="{}",pci_bus_id="0000:9b:00.0"}}'
    )
    scrapes = {bench.site.folder / "dcgm" / node: node, folder / "dcgm" / first: first}
    for place, host in scrapes.items():
        place.mkdir(parents=True)
        for name, value, age_s in (("a", 0, 1.0), ("b", 79, 0.0)):
            scrape = place / f"{name}.prom"
            scrape.write_text(f"# HELP x\n{metric.format(host)} {value}\n")
            at = time.time() - age_s
            os.utime(scrape, (at, at))
    _recovered(bench, result, job, folder)
    shutil.rmtree(bench.site.folder / "dcgm")
    result.check(bench.drained() == [node], f"drained: {bench.drained()}, accused: {node}")
    result.check(f"drain {node}" in result.did, f"did {result.did}")
    result.check(node not in bench.attempts(job)[-1].nodes, f"it runs on {node} again")
    result.check(result.facts["batches"] == EVERY, "data was lost or repeated")
    bench.repair(node)
    return result


def health_tests(bench: Bench) -> Result:
    """After such a forgery a person approves the health tests of the job's nodes; they run for real."""
    result = Result("health_tests")
    job, _ = bench.site.submit("health_tests", f"--steps {STEPS} --fault xid_in_output")
    _left_alone(bench, result, job)
    plan = bench.plans_of(job)[-1]
    steps = [one["step"] for one in plan["actions"] if one["kind"] == "run_health_tests"]
    result.check(bool(steps), "no health tests were proposed")
    done = bench.site.rerail("approve", plan["id"], "--step", str(steps[0]), "--target", job)
    result.check(done.returncode == 0, done.stdout + done.stderr)
    result.check(wait_for(lambda: bench.settled(job), 90), "the tests did not end")
    bench.fill_in(result, job)
    result.check(result.manual_steps == 1, f"{result.manual_steps} approvals")
    reports = [json.loads(one.read_text()) for one in bench.site.health.glob("health-*.json")]
    result.check(
        any(one["healthy"] and len(one["nodes"]) == 2 for one in reports), f"reports: {reports}"
    )
    return result


def controller_down(bench: Bench) -> Result:
    """Controller and rerail both die during the recovery: it is done later, and once."""
    result = Result("controller_down")
    job, folder = bench.site.submit("controller_down", f"--steps {STEPS} --fault killed")
    heard = wait_for(lambda: bench.heard(job), 60)
    result.check(heard, "rerail did not hear of the failure")
    bench.lab.kill_controller()
    time.sleep(3)
    bench.site.kill()
    bench.site.start()
    time.sleep(3)
    result.check(not bench.done(job), "something was done without a controller")
    bench.lab.start_controller()
    _recovered(bench, result, job, folder)
    result.check(result.did == [f"requeue {job}"], f"did {result.did}")
    result.check(len(bench.attempts(job)) == 2, f"{len(bench.attempts(job))} attempts, not 2")
    result.check(result.facts["batches"] == EVERY, "data was lost or repeated")
    return result


def approve_and_undo(bench: Bench) -> Result:
    """A proven fault under a rule that only proposes: approved by hand, drained once, undone."""
    result = Result("approve_and_undo")
    node = bench.lab.layout.nodes[1]
    kernel = bench.site.folder / "kernel"
    kernel.mkdir(exist_ok=True)
    job, folder = bench.site.submit(
        "approve_and_undo",
        f"--steps {STEPS} --fault xid_in_output",
        # Both nodes by name: with one left free, rank 1 runs elsewhere while another node is cleaned up.
        sbatch=("-p", "urgent", "-w", ",".join(bench.lab.layout.nodes[:2])),
    )
    # The kernel log of the node says the same: this time the fault is proven.
    (kernel / f"{node}.log").write_text(
        f"{time.strftime('%b %e %H:%M:%S')} {node} kernel: "
        "[12345.678901] NVRM: Xid (PCI:0000:9b:00): 79, pid=4242, name=python, "
        "GPU has fallen off the bus.\n"
    )
    bench.site.set_mode("propose")
    if not wait_for(lambda: bool(bench.plans_of(job)), 90):
        result.check(False, f"no plan was made: {bench.stand(job, folder)}")
        return result
    plan = bench.plans_of(job)[-1]
    proposed = [one["kind"] for one in plan["actions"]]
    if proposed[:1] != ["drain"] or "requeue_excluding" not in proposed:
        result.check(False, f"proposed {proposed}, refused {plan['refusals']}")
        return result
    time.sleep(2)
    result.check(not bench.drained(), "it was drained without an approval")
    tried = bench.site.rerail("approve", plan["id"], "--step", "1", "--dry-run")
    result.check(tried.returncode == 0 and not bench.drained(), f"dry run: {tried.stdout}")
    result.check(f"NodeName={node}" in tried.stdout, "the dry run shows no command")
    wrong = bench.site.rerail("approve", plan["id"], "--step", "1", "--target", "n9")
    result.check(wrong.returncode == 1 and not bench.drained(), "a wrong target was taken")
    for _ in range(2):
        done = bench.site.rerail("approve", plan["id"], "--step", "1", "--target", node)
        result.check(done.returncode == 0, done.stdout + done.stderr)
    result.check(bench.drained() == [node], f"drained: {bench.drained()}")
    result.check(bench.done(job) == [f"drain {node}"], f"did {bench.done(job)}")
    # The job asks for the node by name: without it Slurm would let it wait for ever.
    again = [one["step"] for one in plan["actions"] if one["kind"] == "requeue_excluding"]
    done = bench.site.rerail("approve", plan["id"], "--step", str(again[0]), "--target", job)
    result.check("by name" in done.stdout, f"requeued without {node}: {done.stdout}")
    result.check(len(bench.attempts(job)) == 1, "the job was requeued")
    undo = bench.site.rerail("undo", plan["id"], "--step", "1")
    back = undo.stdout.split(":")[0]
    done = bench.site.rerail("approve", back, "--step", "1", "--target", node)
    result.check(done.returncode == 0, undo.stderr + done.stdout + done.stderr)
    result.check(not bench.drained(), "it is still drained")
    (kernel / f"{node}.log").unlink()
    bench.site.set_mode("auto-low")
    bench.repair(node)
    return result


SCENARIOS: dict[str, Callable[[Bench], Result]] = {
    "node_lost": node_lost,
    "rank_killed": rank_killed,
    "rank_killed_always": rank_killed_always,
    "user_bug": user_bug,
    "out_of_memory": out_of_memory,
    "time_limit": time_limit,
    "preempted": preempted,
    "checkpoint_cut": checkpoint_cut,
    "poisoned_batch": poisoned_batch,
    "loss_spike": loss_spike,
    "hang": hang,
    "slow_group": slow_group,
    "forged_xid": forged_xid,
    "health_tests": health_tests,
    "controller_down": controller_down,
    # Last: each costs a node, and from a node's third failure on jobs are kept off it (`repeats`).
    "node_lost_by_trigger": node_lost_by_trigger,
    "dcgm_attests": dcgm_attests,
}
