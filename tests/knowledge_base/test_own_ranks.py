"""Processes that tell their own rank, devices and blocks of ranks that tell it, and who tells what of a peer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis
from rerail.knowledge_base.rules import either

Run = Callable[[str | dict[str, str]], Diagnosis]

FLOCK = """Traceback (most recent call last):
  File "wenet/bin/train.py", line 119, in <module>
    main()
OSError: [Errno 116] Stale file handle: '/data/exp/ddp_init'
"""
ADDED = "INFO Added key: store_based_barrier_key:1 to store for rank: {}\n"


def place(found: Diagnosis) -> tuple[int | None, str | None]:
    assert found.first_fault is not None
    return found.first_fault.rank, found.first_fault.node


def test_the_log_of_one_process_that_tells_its_rank(diagnose: Run) -> None:
    assert place(diagnose(ADDED.format(3) + FLOCK))[0] == 3


@pytest.mark.parametrize("ranks", [(0,), (1, 2)])
def test_the_first_rank_prints_for_all_and_two_in_one_log_are_a_merged_one(
    diagnose: Run, ranks: tuple[int, ...]
) -> None:
    assert place(diagnose("".join(map(ADDED.format, ranks)) + FLOCK))[0] is None


def test_sections_of_files_whose_processes_tell_their_ranks(diagnose: Run) -> None:
    said = "initialized host gn-{} as rank {}\n"
    log = (
        "==> train.log.96 <==\n" + said.format(1, 96)
        + "==> train.log.103 <==\n" + said.format(2, 103) + FLOCK
        + "==> train.log.104 <==\n" + said.format(2, 104)
    )  # fmt: skip
    assert place(diagnose(log)) == (103, "gn-2")


def test_the_process_that_had_a_bus_error_by_its_device(diagnose: Run) -> None:
    lines = "".join(
        f"b41e7c0d93fa:{61180 + rank}:64771 [{rank}] NCCL INFO Connected all rings\n"
        for rank in range(4)
    )
    signal = (
        "[b41e7c0d93fa:61182:0:64825] Caught signal 7 (Bus error: nonexistent physical address)\n"
    )
    full = "$ df -h /dev/shm\nFilesystem Size Used Avail Use% Mounted on\nshm 64M 64M 0 100% /dev/shm\n"
    assert place(diagnose(lines + signal + full))[0] == 2
    one_device = lines.replace("[1]", "[0]").replace("[2]", "[0]").replace("[3]", "[0]")
    assert place(diagnose(one_device + signal + full))[0] is None


@pytest.mark.parametrize(("first", "rank"), [((8, 0), 10), ((1, 0), None)])
def test_ranks_of_hosts_in_blocks(diagnose: Run, first: tuple[int, int], rank: int | None) -> None:
    log = (
        "==> swift/node1.log <==\n"
        f"[INFO:swift] Rank: {first[0]}, local_rank: {first[1]}, world_size: 16, local_world_size: 8\n"
        "E0623 21:56:15.019000 3079601 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -11)"
        " local_rank: 2 (pid: 3079645) of binary: /usr/bin/python\n"
        "==> swift/node0.log <==\nstep 4 loss 2.1\n"
    )
    assert place(diagnose(log))[0] == rank


def test_who_has_it_says_so_itself(diagnose: Run) -> None:
    log = (
        "[1,0]<stdout>:gn-1:10214:10303 [0] transport/net_ib.cc:1909 NCCL WARN NET/IB : Got completion from peer"
        " 10.1.3.212<33057> with status=9 opcode=0 len=0 vendor err 138 (Send)\n"
        "[1,8]<stdout>:gn-2:127799:127863 [0] transport/net_ib.cc:101 NCCL WARN NET/IB : mlx5_0:1 Got async event :"
        " local access violation work queue error\n"
    )
    assert place(diagnose(log)) == (8, "gn-2")


def test_the_process_that_ended_first_by_the_line_above_its_exit(diagnose: Run) -> None:
    def ended(host: str, at: str, worker: int, code: int) -> str:
        return (
            f"==> {host}: taskmanager.log <==\n2021-09-09 16:57:{at} ERROR runner [] - Got exception during python running\n"
            f"com.alibaba.flink.ml.util.MLException: worker:{worker} python process exited with code {code}\n"
        )

    found = diagnose(ended("dn-112", "10,240", 0, 1) + ended("dn-114", "09,005", 2, 137))
    assert (found.failure_type, place(found)) == ("process_killed_unexplained", (2, "dn-114"))


def test_patterns_of_which_one_ignores_case() -> None:
    assert either(["(?i)warn", None, "INFO"]) == "(?i:warn)|INFO"
