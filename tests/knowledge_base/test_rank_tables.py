"""Hosts beside ranges of ranks, and hosts in the order of their ranks, in layouts that no form knows."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.cached_yaml import load_cached
from rerail.knowledge_base.placement.rank_tables import (
    FILE,
    aliases,
    held,
    lines_with_tables,
    orders,
)

FAULT = "\n[rank9]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
EXPECTED = {"gn-1": (0, 7), "gn-2": (8, 15)}


def tables(text: str) -> dict[str, tuple[int, int]]:
    case = diagnose_texts({"job.log": text}).case
    lines = list(lines_with_tables(case.views))
    return {one.host: (one.first, one.last) for one in held(lines)}


@pytest.mark.parametrize(
    "text",
    [
        "host table: ranks 0-7 gn-1, 8-15 gn-2",
        "hosts: [1,0-7] gn-1, [1,8-15] gn-2",
        "[titan] rank map: host gn-1 0-7, gn-2 8-15",
        "placement: 0-7 gn-1 | 8-15 gn-2",
        "rank_00000..00007 gn-1 ; rank_00008..00015 gn-2",
        "hosts gn-1:0-7 gn-2:8-15, world 16",
        "HOSTS: gn-1 gn-2 (tasks 0-7, 8-15)",
        "shards on /nvme; workers: gn-1 r0-7, gn-2 r8-15",
        "node gn-1 -> PolicyModelActor rank 0-7, node gn-2 -> PolicyModelActor rank 8-15, LLMRayActor on gn-9",
        "launcher pid table gn-1: ranks 0-7 = pids 33 34 36 ; gn-2: ranks 8-15 = pids 57 58 60",
        "trainer: ranks 0-7 on gn-1, ranks 8-15 on gn-2",
        '{"ts":"2026-05-01T10:00:02Z","host":"gn-9","stream":"stdout","line":"trainer: ranks 0-7 on gn-1, ranks 8-15 on gn-2"}',
        "[launcher] replica group ft_0: host gn-1, 8 ranks, global ranks 0-7\n"
        "[launcher] replica group ft_1: host gn-2, 8 ranks, global ranks 8-15",
        "[ranktable] host=gn-1 devices 0..7 -> rank_id 0..7\n[ranktable] host=gn-2 devices 0..7 -> rank_id 8..15",
    ],
)
def test_ranges_beside_hosts_are_a_table(text: str) -> None:
    assert tables(text) == EXPECTED
    found = diagnose_texts({"job.log": text + FAULT}).diagnosis
    assert found.first_fault is not None
    assert found.first_fault.node == "gn-2"


@pytest.mark.parametrize(
    "text",
    [
        "tensor parallel groups: tp-0 ranks 0-7, tp-1 ranks 8-15",
        "srun: error: gn-1: tasks 0-7: Terminated\nsrun: error: gn-2: tasks 8-15: Terminated",
        "ranks 0-7 waiting for gn-1, ranks 8-15 waiting for gn-2",
        "job of 2026-03-01 on gn-1, rank files of 2026-03-02 on gn-2",
        "ranks 0-7 gn-1, 9-15 gn-2",
        "ranks 0-7 gn-1, 8-15 gn-1",
        "rank 0: layers 0-7 stage-1, layers 8-15 stage-2",
        "CPU affinity of rank 0: NUMA node0 0-7 node1 8-15",
    ],
)
def test_other_ranges_are_none(text: str) -> None:
    assert tables(text) == {}


def _orders() -> list[tuple[str, str]]:
    raw = load_cached(FILE)
    return [
        (form["id"], text)
        for kind in ("orders", "counts", "node_ranks")
        for form in raw[kind]
        for text in form["matches"]
    ]


@pytest.mark.parametrize(("name", "text"), _orders())
def test_an_order_holds_on_its_examples(name: str, text: str) -> None:
    case = diagnose_texts({"job.log": text}).case
    lines = list(lines_with_tables(case.views))
    assert any(len(order.hosts) > 1 for order in orders(lines, case.says)), name


def node_of_rank_9(text: str) -> str | None:
    found = diagnose_texts({"job.log": text + FAULT}).diagnosis
    assert found.first_fault is not None
    return found.first_fault.node


@pytest.mark.parametrize(
    "text",
    [
        "> ranks per node 8; hosts in rank order: gn-1 gn-2",
        "nodes (8 GPUs): gn-1 gn-2 ; only local rank 0 downloads",
        "hostfile: gn-1 slots=8, gn-2 slots=8",
        "WORLD INFO DICT: {'gn-1': [0, 1, 2, 3, 4, 5, 6, 7], 'gn-2': [0, 1]}",
        "PBS_NODEFILE: gn-1 gn-2 ; mpiexec -n 16 --ppn 8",
        "NODE_RANK: gn-1=0 gn-2=1; NPROC=8",
        "[gn-2] torchrun --nnodes 2 --node_rank 1 --nproc_per_node 8",
    ],
)
def test_hosts_in_order_place_a_rank(text: str) -> None:
    assert node_of_rank_9(text) == "gn-2"


def test_an_order_that_contradicts_a_known_place_is_not_believed() -> None:
    known = "[gn-7] [rank9] step 1\n[gn-2] [rank1] step 1\n"
    assert node_of_rank_9(known + "> ranks per node 8; hosts in rank order: gn-1 gn-2") == "gn-7"


def test_slurms_list_counts_only_where_a_known_task_stands_in_its_block() -> None:
    listed = "SLURM_JOB_NODELIST=gn-[1-2] SLURM_NTASKS_PER_NODE=8"
    assert node_of_rank_9(listed) is None
    assert (
        node_of_rank_9(f"{listed}\nsrun: error: gn-1: tasks 0,4: Aborted (core dumped)") == "gn-2"
    )


def test_two_nodes_with_one_number_place_nobody() -> None:
    text = (
        "[gn-1] run --node_rank 1 --nproc_per_node 8\n[gn-2] run --node_rank 1 --nproc_per_node 8"
    )
    assert node_of_rank_9(text) is None


def test_a_list_of_addresses_names_their_hosts() -> None:
    text = "# /etc/hosts\n10.8.0.11 ibg-a1\n10.8.0.12 ibg-a2\nconnect 10.8.0.13 failed badly"
    case = diagnose_texts({"job.log": text}).case
    lines = list(lines_with_tables(case.views))
    assert {(address, host) for address, host, _ in aliases(lines)} == {
        ("10.8.0.11", "ibg-a1"),
        ("10.8.0.12", "ibg-a2"),
    }


def test_a_number_that_its_host_does_not_hold_counts_the_processes_of_the_host() -> None:
    text = (
        "replica group ft_0: host gn-1, 8 ranks, global ranks 0-7\n"
        "replica group ft_1: host gn-2, 8 ranks, global ranks 8-15\n"
        "[ft_1/rank3] [rank3]: torch.AcceleratorError: CUDA error: unspecified launch failure\n"
        "-- gn-2 journalctl -k --\n"
        "Jun 07 14:22:11 gn-2 kernel: NVRM: Xid (PCI:0000:5d:00): 79, pid=77120, GPU has fallen off the bus.\n"
    )
    found = diagnose_texts({"job.log": text}).diagnosis
    assert found.suspects.ranks == [11]
    assert found.suspects.nodes == ["gn-2"]


def test_a_file_of_hosts_has_one_a_line() -> None:
    assert node_of_rank_9("cat hostfile\ngn-1 slots=8\ngn-2 slots=8") == "gn-2"


def test_the_gpu_that_a_line_names_is_the_process_of_that_number_on_its_host() -> None:
    text = (
        "gn-1 slots=8\ngn-2 slots=8\nstep 1 loss 2.0\n"
        "AssertionError: found NaN in local grad norm for bucket #2 in backward pass before data-parallel "
        "communication collective. Device: 5, node: gn-2\n"
    )
    assert diagnose_texts({"job.log": text}).diagnosis.suspects.ranks == [13]
    reordered = "CUDA_VISIBLE_DEVICES=4,5,6,7,0,1,2,3\n" + text
    assert diagnose_texts({"job.log": reordered}).diagnosis.suspects.ranks == []


def test_the_rank_within_a_group_is_not_the_rank_in_the_job() -> None:
    text = (
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG ID 25 PG GUID 130(EXPERT_MODEL_PARALLEL_GROUP) Rank 2] Process group watchdog thread terminated "
        "with exception: CUDA error: an illegal memory access was encountered\n"
    )
    assert diagnose_texts({"job.log": text}).diagnosis.suspects.ranks == []


def test_a_lost_host_explains_what_others_said_before_it_was_declared_lost() -> None:
    text = (
        "1: gn-1:21101:21501 [1] nccl_net_ofi_rdma_process_cq_error:1412 NCCL WARN NET/OFI Request 0x7f42 (send) completed "
        "with error: err: 113, flags: 0x0, prov_errno: 4126\n"
        "srun: error: Node failure on gn-2\n"
        "slurmctld: error: Nodes gn-2 not responding, setting DOWN\n"
    )
    found = diagnose_texts({"job.log": text}).diagnosis
    assert found.suspects.nodes == ["gn-2"]


def test_rows_of_one_wording_are_a_table_of_hosts_that_are_not_of_one_series() -> None:
    rows = "inst-iqyol-r7: node_rank 0 (global ranks 0-7)\ninst-qw1pe-r7: node_rank 1 (global ranks 8-15)\n"
    assert tables(rows + FAULT) == {"inst-iqyol-r7": (0, 7), "inst-qw1pe-r7": (8, 15)}
    assert tables(rows.replace("node_rank 1", "machine 1 of") + FAULT) == {}
