"""A controller's log is about all its jobs: what it says of another one is no fault of this one."""

from __future__ import annotations

OUTPUT = (
    "2026-10-03T01:02:40 [rank0]: step 7711 loss 1.730\n"
    "srun: error: Node failure on tiger-3\n"
    "slurmstepd: error: *** STEP 991204.0 ON tiger-1 CANCELLED AT 2026-10-03T01:10:12 DUE TO NODE FAILURE, "
    "SEE SLURMCTLD LOG FOR DETAILS ***\n"
)
CONTROLLER = (
    '[2026-10-03T01:09:12.771] drain_nodes: node tiger-24 state set to DRAIN reason "prolog error" JobId={job}\n'
    "[2026-10-03T01:10:11.903] error: Nodes tiger-3 not responding, setting DOWN\n"
)


def test_the_prolog_of_another_job_did_not_end_this_one(diagnose):
    found = diagnose({"slurm.out": OUTPUT, "slurmctld.log": CONTROLLER.format(job=991377)})
    assert (found.failure_type, found.suspects.nodes) == ("node_fail_scheduler", ["tiger-3"])


def test_the_prolog_of_this_job_did_also_by_its_number_in_an_array(diagnose):
    for job in ("991204", "991200_4(991204)"):
        found = diagnose({"slurm.out": OUTPUT, "slurmctld.log": CONTROLLER.format(job=job)})
        assert found.failure_type == "scheduler_launch_failure"


def test_a_word_in_brackets_is_no_host(diagnose):
    found = diagnose("== slurmctld.log (tail) ==\n" + CONTROLLER.format(job=991377))
    assert "tail" not in (found.first_fault.node, *found.suspects.nodes)


GIVEN = (
    "[root@head ~]# grep -E '970|980' /var/log/slurm/slurmctld.log\n"
    "[2026-11-20T10:42:30.509] sched: Allocate JobId=980 NodeList=c007 #CPUs=8 Partition=gpu\n"
    "[2026-11-20T10:42:30.509] {given}\n"
    "[2026-11-20T14:37:57.377] _job_complete: JobId=970 WTERMSIG 9\n"
)


def test_a_job_of_one_node_was_killed_on_the_node_that_the_controller_gave_it(diagnose):
    for given in (
        "sched: Allocate JobId=970 NodeList=c019 #CPUs=8 Partition=gpu",
        "sched/backfill: _start_job: Started JobId=970 in gpu on c019",
    ):
        found = diagnose(GIVEN.format(given=given))
        assert (found.failure_type, found.first_fault.node) == (
            "process_killed_unexplained",
            "c019",
        )


def test_of_a_job_of_two_nodes_the_controller_tells_no_node(diagnose):
    given = "sched: Allocate JobId=970 NodeList=c[019-020] #CPUs=16 Partition=gpu"
    assert diagnose(GIVEN.format(given=given)).first_fault.node is None
