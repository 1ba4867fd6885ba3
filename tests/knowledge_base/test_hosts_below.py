"""Hosts that a job script prints one a line below its command: who they are, and which ranks they hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis

Run = Callable[[str], Diagnosis]

STARTS = "".join(
    f"[rank{rank}]: rank {rank} of 8 on {host}\n" for rank, host in ((0, "gn-041"), (3, "gn-041"))
)
FAULT = (
    "[rank5]: Traceback (most recent call last):\n"
    '[rank5]:   File "/w/train.py", line 207, in step\n'
    "[rank5]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n"
)
WORLD = "> using world size: 8, data-parallel size: 8\n"


@pytest.mark.parametrize(
    "command",
    ["+ scontrol show hostnames gn-[041-042]", "$ cat $PBS_NODEFILE", "+ sort -u /w/hostfile"],
)
def test_a_rank_is_on_the_host_of_its_block_where_a_known_one_is_in_its_own(
    command: str, diagnose: Run
) -> None:
    hosts = "gn-041\ngn-042\n"
    found = diagnose(
        f"{command}\n{hosts}+ torchrun --nproc_per_node=4 train.py\n{STARTS}{WORLD}{FAULT}"
    )
    assert (found.suspects.ranks, found.suspects.nodes) == ([5], ["gn-042"])


def test_a_file_of_hosts_holds_a_host_as_often_as_it_has_ranks(diagnose: Run) -> None:
    hosts = "gn-041\n" * 4 + "gn-042\n" * 4
    found = diagnose(f"+ cat $PBS_NODEFILE\n{hosts}{STARTS}{WORLD}{FAULT}")
    assert found.suspects.nodes == ["gn-042"]


def test_the_only_host_is_where_the_job_failed_and_keeps_its_whole_name(diagnose: Run) -> None:
    found = diagnose(
        "+ cat /var/spool/pbs/aux/884120.aquila-pbs\ngn0412.aquila.local\nepoch 1 loss 2.1\n"
        "=>> PBS: job killed: mem 201344216kb exceeded limit 201326592kb\n"
    )
    assert found.first_fault is not None
    assert found.first_fault.node == "gn0412.aquila.local"


def test_one_of_two_listed_hosts_is_not_the_only_one(diagnose: Run) -> None:
    found = diagnose(f"Hostname: gn-041\n+ scontrol show hostnames\ngn-041\ngn-042\n{FAULT}")
    assert (found.suspects.ranks, found.suspects.nodes) == ([5], [])


def test_what_is_no_host_ends_the_list(diagnose: Run) -> None:
    found = diagnose(f"+ cat $PBS_NODEFILE\ngn-041\nseed42\ngn-042\n{STARTS}{WORLD}{FAULT}")
    assert "seed42" not in found.suspects.nodes
    assert found.suspects.nodes != ["gn-042"]


def test_a_list_of_which_lines_were_not_kept_leaves_no_host_out(diagnose: Run) -> None:
    """A fault on the last of 20,000 hosts is the job's, whatever was kept of the list."""
    hosts = "".join(f"gn-{number:05d}\n" for number in range(20_000))
    fault = FAULT.replace("[rank5]: ", "gn-19999: ")
    found = diagnose(f"+ cat $PBS_NODEFILE\n{hosts}step 1 loss 2.1\n{fault}")
    assert found.failure_type == "gpu_ecc_uncorrectable"
