"""Ranks and places by environments that processes print, ids in front of start lines, and losses of one process."""

import pytest

RAISED = """\
step 10 loss 2.1
Traceback (most recent call last):
  File "train.py", line 61, in <module>
RuntimeError: CUDA error: an illegal memory access was encountered
"""
OF_RANK_13 = [
    "export RANK=13\nexport LOCAL_RANK=5\nexport WORLD_SIZE=16\n",
    "OMPI_COMM_WORLD_LOCAL_RANK=5\nOMPI_COMM_WORLD_RANK=13\nOMPI_COMM_WORLD_SIZE=16\n",
    "env: {'RANK': '13', 'LOCAL_RANK': '5', 'WORLD_SIZE': '16', 'HOSTNAME': 'gn-7'}\n",
    "SLURMD_NODENAME=gn-7 SLURM_PROCID=13 SLURM_LOCALID=5\n",
    "+ export NODE_RANK=1\n+ export LOCAL_RANK=5\n+ export LOCAL_WORLD_SIZE=8\n",
]
OF_NOBODY = [
    "SLURM_PROCID=1\nSLURM_LOCALID=0\nSLURMD_NODENAME=gn-7\n",
    "RANK=1\nWORLD_SIZE=2\n+ torchrun --nnodes=2 --node_rank=1 --nproc_per_node=8 train.py\n",
    "ssh gn-7 RANK=13 WORLD_SIZE=16\n",
    "RANK=0\nLOCAL_RANK=0\nWORLD_SIZE=16\n",
]


@pytest.mark.parametrize("printed", OF_RANK_13)
def test_a_process_that_prints_its_environment_is_the_rank_that_this_tells(diagnose, printed):
    assert diagnose(printed + RAISED).suspects.ranks == [13]


@pytest.mark.parametrize("printed", OF_NOBODY)
def test_launchers_first_ranks_and_commands_for_others_tell_nothing_by_their_environment(
    diagnose, printed
):
    assert diagnose(printed + RAISED).suspects.ranks == []


def test_the_host_stands_in_the_environment_as_well(diagnose):
    printed = "SLURM_LOCALID=5\nSLURM_PROCID=13\nSLURMD_NODENAME=gn-7\nSLURM_LAUNCH_NODE_IPADDR=10.1.0.7\n"
    assert diagnose(printed + RAISED).first_fault.node == "gn-7"


def test_start_lines_tie_process_ids_in_front_to_ranks(diagnose):
    starts = [
        f"2025-03-01 08:00:00,11{n} 41{n} INFO run: hello from rank {n} / 4" for n in range(4)
    ]
    fault = "2025-03-01 08:20:00,110 412 ERROR run: RuntimeError: CUDA error: an illegal memory access was encountered"
    assert diagnose("\n".join([*starts, fault])).suspects.ranks == [2]
    one = [line.replace(f" 41{n} ", " 410 ") for n, line in enumerate(starts)]
    assert diagnose("\n".join([*one, fault.replace("412", "410")])).suspects.ranks == []


def test_the_first_thread_of_a_process_has_its_id(diagnose):
    starts = [
        f"I0511 03:12:01.00{n} 3051{n} main.py:40] process_index {n} / 4 pid 3051{n}"
        for n in range(4)
    ]
    fault = "E0511 03:20:00.110 30513 ops.py:9] RuntimeError: CUDA error: an illegal memory access was encountered"
    assert diagnose("\n".join([*starts, fault])).suspects.ranks == [3]


def lost(rank, step):
    return f"[rank{rank}]: 07:31:4{step % 10} step={step} loss=nan lr=1.2e-4"


def test_a_loss_that_one_rank_loses_before_all_others_is_its_own(diagnose):
    others = [lost(rank, 2211) for rank in range(4) if rank != 2]
    assert diagnose("\n".join([lost(2, 2210), *others])).suspects.ranks == [2]
    assert diagnose("\n".join([lost(2, 2211), *others])).suspects.ranks == []


def test_a_container_is_the_place_where_no_line_names_a_host(diagnose):
    raised = "RuntimeError: CUDA error: an illegal memory access was encountered"
    log = f"net-0  | step 1 loss 2.2\nnet-1  | step 1 loss 2.2\nnet-1  | {raised}\nnet-0  | step 2 loss 2.1\n"
    assert diagnose(log).first_fault.node == "net-1"
    told = log.replace("net-0  | step 2", "net-0  | Running on host gn-04\nnet-0  | step 2")
    assert diagnose(told).first_fault.node != "net-1" or diagnose(told).suspects.nodes != ["gn-04"]


def test_a_line_of_many_signs_is_not_tried_in_all_ways(diagnose):
    line = "RANK=" + "AAA=" * 400 + "'x y"
    assert diagnose(f"{line}\n{line}\nstep 1 loss 2.0\n").suspects.ranks == []
