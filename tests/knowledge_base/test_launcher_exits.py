"""A launcher that only tells of a signal tells of a failure, whichever launcher it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis, Outcome

Run = Callable[[str | dict[str, str]], Diagnosis]

STEPS = "".join(f"step {i} loss 2.{9 - i}\n" for i in range(6))


@pytest.mark.parametrize(
    ("ending", "leaf", "ranks"),
    [
        ("ERROR:composer.cli.launcher:Rank 2 crashed with exit code -11.", "process_segfault", [2]),
        ("ERROR:composer.cli.launcher:Rank 2 crashed with exit code -7.", "shm_exhausted", [2]),
        (
            "subprocess.CalledProcessError: Command '['python3', '-u', 'train.py']' died with <Signals.SIGKILL: 9>.",
            "process_killed_unexplained",
            [],
        ),
        (
            "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGSEGV",
            "process_segfault",
            [2],
        ),
        (
            "ERROR:  One or more process (first noticed rank 3) terminated with signal 11 (core dumped)",
            "process_segfault",
            [3],
        ),
        ("Process 3 exit with status code -11.", "process_segfault", [3]),
        ("x1001c0s2b0n0: rank 17 died from signal 11", "process_segfault", [17]),
        (
            "prterun noticed that process rank 14 with PID 2330856 on node lx27 exited on\nsignal 11 (Segmentation fault).",
            "process_segfault",
            [14],
        ),
    ],
)
def test_a_signal_is_a_failure(diagnose: Run, ending: str, leaf: str, ranks: list[int]) -> None:
    found = diagnose(STEPS + ending + "\n")
    assert (found.outcome, found.failure_type, found.suspects.ranks) == (
        Outcome.FAILURE,
        leaf,
        ranks,
    )


def test_who_names_a_process_knows_better_than_the_accounting(diagnose: Run) -> None:
    found = diagnose(
        STEPS
        + "4|FAILED|15:0|n[1-2]|2026-11-20T23:41:35|2026-11-20T23:41:44\n"
        + "srun: error: n2: task 1: Segmentation fault (core dumped)\n"
    )
    assert (found.failure_type, found.suspects.ranks, found.suspects.nodes) == (
        "process_segfault",
        [1],
        ["n2"],
    )


@pytest.mark.parametrize(
    "ending",
    [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "PyTorchJob llm-ft is failed because 1 Worker replica(s) failed.",
        "Warning  FailedJobs  3s  jobset  jobset failed due to one or more job failures",
        "2026-04-28 12:02:11,101\tERR cli.py:68 -- Job 'raysubmit_9a' failed",
        "[2026-03-04 10:11:12,101] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 771",
    ],
)
def test_a_job_reported_as_failed_has_failed(diagnose: Run, ending: str) -> None:
    assert diagnose(STEPS + ending + "\n").outcome is Outcome.FAILURE
    # An attempt that failed and was followed by steps is behind the job.
    more = "".join(f"step {i} loss 1.{9 - i}\n" for i in range(6, 9))
    assert diagnose(STEPS + ending + "\n" + more).outcome is Outcome.NO_FAILURE


def test_the_cleaning_up_of_a_platform_is_not_its_first_exit(diagnose: Run) -> None:
    line = "ERROR: Job 1 failed with return code list: [137, 1]\n"
    assert diagnose(STEPS + line).failure_type == "process_exit_unexplained"
    assert diagnose(STEPS + line.replace("1]", "0]")).failure_type == "process_killed_unexplained"


def test_the_host_of_an_mpich_box_is_the_node(diagnose: Run) -> None:
    box = "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 4774 RUNNING AT nc-08\n=   EXIT CODE: 139\n"
    assert diagnose(STEPS + box).suspects.nodes == ["nc-08"]


def table(host: str, root: tuple[int, str], *others: tuple[int, str]) -> str:
    def row(number: int, rank: int, at: str) -> str:
        return (
            f"[{number}]:\n  time      : 2026-06-03_{at}\n  host      : {host}\n  rank      : {rank} (local_rank: {rank % 4})\n"
            f"  exitcode  : 1 (pid: {19400 + rank})\n  error_file: <N/A>\n"
        )

    failures = "".join(row(i + 1, *one) for i, one in enumerate(others))
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \ntrain.py FAILED\nFailures:\n"
        + failures
        + "Root Cause (first observed failure):\n"
        + row(0, *root)
    )


@pytest.mark.parametrize(
    ("tables", "rank", "node"),
    [
        (table("gn-1", (0, "22:45:52"), (3, "22:45:52")), 0, "gn-1"),
        (table("gn-1", (0, "22:45:52"), (3, "22:45:52")) + table("gn-2", (4, "22:45:01")), 4, "gn-2"),
        # Clocks of two hosts agree no better than this.
        (table("gn-1", (0, "22:45:52")) + table("gn-2", (4, "22:45:51")), 0, "gn-1"),
    ],
)  # fmt: skip
def test_the_tables_of_several_hosts_are_compared_by_their_clocks(
    diagnose: Run, tables: str, rank: int, node: str
) -> None:
    found = diagnose(STEPS + tables)
    assert (found.failure_type, found.suspects.ranks, found.suspects.nodes) == (
        "process_exit_unexplained", [rank], [node],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "rank", "node"),
    [
        (
            "mpiexec.hydra -l -f nodes -n 6 python -u train.py\n"
            "[0] [0] MPI startup(): Rank    Pid      Node name  Pin cpu\n"
            "[0] [0] MPI startup(): 0       5480     gn58       {0,1}\n"
            "[0] [0] MPI startup(): 4       5680     gn60       {0,1}\n"
            "[0] step 1\n[0] step 2\n[4] Error text: an illegal memory access was encountered\n[0] step 3\n",
            4,
            "gn60",
        ),
        (
            'Traceback (most recent call last):\n  File "ddp.py", line 3, in <module>\n    import torch\n'
            "ImportError: /opt/t/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister\n"
            "[cn07:mpispawn_2][child_handler] MPI process (rank: 2, pid: 31177) exited with status 1\n"
            "[cn05:mpi_rank_0][error_sighandler] Caught error: Terminated (signal 15)\n",
            2,
            "cn07",
        ),
        (
            "(partition 0) rank 0 of 2 on 10.139.64.5, local_rank 0\n"
            "(partition 1) rank 1 of 2 on 10.139.64.8, local_rank 0\n"
            "24/07/02 08:41:55 WARN TaskSetManager: Lost task 1.0 in stage 12.0 (TID 120) (10.139.64.8 executor 3): "
            "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
            '  File "/w/train.py", line 96, in main\n'
            "KeyError: 'labels'\n",
            1,
            "10.139.64.8",
        ),
    ],
)
def test_the_maps_and_exits_of_launchers_place_a_fault(
    diagnose: Run, text: str, rank: int, node: str
) -> None:
    first = diagnose(text).first_fault
    assert first is not None
    assert (first.rank, first.node) == (rank, node)
