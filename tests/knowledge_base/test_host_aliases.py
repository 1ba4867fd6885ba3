"""A host that labels call by an address, a number or a pod goes by the name that its own lines give it."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."


def place(text: str) -> tuple[int | None, str | None]:
    """Rank and node of the first fault."""
    fault = diagnose_texts({"job.log": text}).diagnosis.first_fault
    return (None, None) if fault is None else (fault.rank, fault.node)


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ("{label}: hostname=bm-a{n} driver=550.54\n", "10.3.0.{n}"),
        ("[{label}] node=bm-a{n} NODE_RANK={n}\n", "pre-w-{n}"),
        ("{label}: NNODES=2 NODE_RANK={n} NPUS_PER_NODE=1 host=bm-a{n}\n", "node{n}"),
    ],
)
def test_a_label_stands_for_the_host_that_its_lines_name(said: str, label: str) -> None:
    front = "[{}] " if said.startswith("[") else "{}: "
    text = "".join(said.format(label=label.format(n=n), n=n) for n in (1, 2))
    text += "".join(
        f"{front.format(label.format(n=n))}step {s} loss 2.0\n" for s in range(4) for n in (1, 2)
    )
    text += f"{front.format(label.format(n=2))}[rank2]: {OOM}\n"
    assert place(text) == (2, "bm-a2")


def test_a_container_s_own_name_does_not_stand_for_its_host() -> None:
    text = "".join(f"dgx-a1{n}: hostname=trainer-{n} image=24.05\n" for n in (1, 2))
    assert place(text + f"dgx-a12: [rank1]: {OOM}\n") == (1, "dgx-a12")


def test_two_labels_with_one_host_are_not_tied_to_it() -> None:
    text = "".join(f"10.3.0.{n}: hostname=login-1 driver=550.54\n" for n in (1, 2))
    assert place(text + f"10.3.0.2: [rank1]: {OOM}\n") == (1, "10.3.0.2")


def test_a_line_lists_what_the_labels_stand_for() -> None:
    text = "started on 2 workers: w-0=tpu-x-w-0 w-1=tpu-x-w-1\n"
    text += "".join(f"w-{n}: step {s} loss 2.0\n" for s in range(4) for n in (0, 1))
    assert place(text + f"w-1: {OOM}\n")[1] == "tpu-x-w-1"


def test_an_agent_s_table_names_the_host_of_its_label() -> None:
    front = "(worker1, rank=1, pid=4413, ip=10.128.0.57)"
    table = (
        f"{front} [rank11]: {OOM}\n{front} Root Cause (first observed failure):\n{front} [0]:\n"
        f"{front}   time      : 2026-02-26_23:18:41\n{front}   host      : sft-w1.c.acme.internal\n"
        f"{front}   rank      : 11 (local_rank: 3)\n{front}   exitcode  : 1 (pid: 9120)\n"
    )
    assert place(table) == (11, "sft-w1.c.acme.internal")


def test_a_host_is_called_as_its_labels_call_it_and_not_by_its_domain() -> None:
    table = "".join(
        f"tr-1 | {line}\n"
        for line in (
            f"[rank4]: {OOM}", "Root Cause (first observed failure):", "[0]:", "  time      : 2026-02-26_23:18:41",
            "  host      : tr-1.tr.svc.cluster.local", "  rank      : 4 (local_rank: 0)", "  exitcode  : 1 (pid: 30)",
        )
    )  # fmt: skip
    steps = "".join(f"tr-{n} | step {s} loss 2.0\n" for s in range(4) for n in (0, 1))
    assert place(steps + table) == (4, "tr-1")


def test_nccl_names_the_host_of_an_actor_that_ray_knows_by_its_address() -> None:
    worker = "(WorkerDict pid=88309, ip=10.1.8.22) "
    text = (
        "(WorkerDict pid=66000) dgx-041:66000:66000 [0] NCCL INFO Bootstrap : Using bond0:10.1.8.21<0>\n"
        f"{worker}dgx-042:88309:88309 [0] NCCL INFO Bootstrap : Using bond0:10.1.8.22<0>\n"
        f"{worker}[rank11]: step 3 loss 2.0\n"
        "ray.exceptions.RayTaskError(OutOfMemoryError): ray::WorkerDict.update() (pid=88309, ip=10.1.8.22, actor_id=d2)\n"
        '  File "/verl/workers/dp_actor.py", line 412, in update_policy\n'
        f"{OOM}\n"
    )
    assert place(text) == (11, "dgx-042")


def test_a_container_s_id_is_nobody_s_name() -> None:
    text = "".join(f"10.3.0.{n}: hostname=9823fd21aa0{n} driver=550.54\n" for n in (1, 2))
    assert place(text + f"10.3.0.2: [rank1]: {OOM}\n") == (1, "10.3.0.2")


def test_an_address_that_a_launcher_prints_of_its_own_host_is_the_host_of_its_file() -> None:
    env = (
        "Container rank {r} status failed cmd ['python'] code 1 log log/workerlog.1\n"
        "env {{'PADDLE_TRAINER_ID': '{r}', 'PADDLE_RANK_IN_NODE': '1',"
        " 'PADDLE_CURRENT_ENDPOINT': '10.78.112.{n}:57130'}}\n"
    )
    texts = {f"yq-a{n}/launch.out": env.format(r=2 * n + 1, n=n) for n in (0, 1)}
    texts |= {f"yq-a{n}/workerlog.1": "step 3 loss 2.0\n" for n in (0, 1)}
    texts["yq-a1/workerlog.1"] += (
        "Traceback (most recent call last):\n"
        '  File "train.py", line 58, in <module>\n'
        ":ResourceExhaustedError: \n\n"
        "Out of memory error on GPU 1. Cannot allocate 1.5GB memory on GPU 1, 38GB memory has been allocated.\n"
    )
    fault = diagnose_texts(texts).diagnosis.first_fault
    assert fault is not None
    assert (fault.rank, fault.node) == (3, "yq-a1")


def test_the_number_of_an_instance_stands_for_the_host_that_a_list_gives_it() -> None:
    ids = {7: "i-0db7083f3fcbebb65", 8: "i-07ab2209d1bc0fe11", 9: "i-0ce6d3d57139f053c"}
    told = "".join(
        f"ip-10-0-0-{n}: libfabric:4517:1708520807::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 5,"
        f" message: Invalid address My EFA addr: a My host id: {ids[n]} Peer EFA addr: b Peer host id: {ids[9]} (7)\n"
        for n in (7, 8)
    )
    listed = "".join(f"{i}  p4de.24xlarge  10.0.0.{n}  ip-10-0-0-{n}\n" for n, i in ids.items())
    assert place(told + listed)[1] == "ip-10-0-0-9"
    events = f"2024-02-21T13:05:12Z  {ids[9]}  instance-status: impaired  (reachability failed)\n"
    assert place(told + listed + events)[1] == "ip-10-0-0-9"


RETRY = "{host}:{pid}:{pid} [6] transport/net_ib.cc:1831 NCCL WARN NET/IB: Got completion from peer {peer}<40112> with status=12 opcode=129 len=0 vendor err 129 (Recv) hca mlx5_9\n"


def test_an_address_goes_by_the_name_that_a_cloud_makes_of_it_where_the_logs_have_that_name() -> (
    None
):
    peer = "10.0.3.9"
    told = "".join(RETRY.format(host=f"ip-10-0-3-{n}", pid=100 + n, peer=peer) for n in (7, 8))
    assert place(told)[1] == peer
    said = "ip-10-0-3-9:109:109 [0] NCCL INFO cudaDriverVersion 12040\n"
    assert place(said + told)[1] == "ip-10-0-3-9"
