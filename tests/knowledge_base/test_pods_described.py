"""A pod that is described in one section of a file runs on its node; the other pods of the file do not."""

from __future__ import annotations

LOGS = (
    "--- kubectl logs sd-lora-master-0 ---\n"
    "[rank0]: torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.hpp:268, remote process exited or there was a network error\n"
    "--- kubectl logs sd-lora-worker-1 --previous ---\n"
    "RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 HOSTNAME=sd-lora-worker-1 POD_IP=10.0.3.58\n"
)
DESCRIBED = (
    "--- kubectl describe pod sd-lora-worker-1 ---\n"
    "Name:             sd-lora-worker-1\nNode:             aks-gpu-2411-vmss03/10.0.3.4\nContainers:\n  pytorch:\n"
    "    State:          Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n"
)


def test_the_node_of_a_described_pod_is_not_that_of_the_others(diagnose):
    found = diagnose(LOGS + DESCRIBED)
    assert (found.first_fault.rank, found.first_fault.node) == (2, "aks-gpu-2411-vmss03")


def test_a_file_that_describes_one_pod_from_its_top_is_of_its_node(diagnose):
    found = diagnose(DESCRIBED.split("---\n", 1)[1])
    assert found.first_fault.node == "aks-gpu-2411-vmss03"


def test_an_instance_that_its_peers_call_by_number_is_named_by_its_host(diagnose):
    hosts = {"ip-10-36-29-253": "i-0db7083f3fcbebb65", "ip-10-36-17-81": "i-0ce6d3d57139f053c"}
    hosts["ip-10-36-44-102"] = "i-03b1f6e2a90c47d11"
    said = "".join(f"{host}: host id {number}\n" for host, number in hosts.items())
    lost = "".join(
        f"libfabric:451707:174::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 107, message: Unresponsive receiver My EFA addr: "
        f"fi_addr_efa://[fe80::13]:0:1 My host id: {hosts[own]} Peer EFA addr: fi_addr_efa://[fe80::14]:0:2 "
        f"Peer host id: {hosts['ip-10-36-17-81']} (14)\n"
        for own in ("ip-10-36-29-253", "ip-10-36-44-102")
    )
    assert diagnose(said + lost).suspects.nodes == ["ip-10-36-17-81"]


MPI_LINES = (
    "".join(
        f"[1,{rank}]<stdout>:step {step} loss 2.1\n" for step in range(1, 6) for rank in range(4)
    )
    + "[1,3]<stderr>:RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
)
NOTICED = "mpirun noticed that process rank 3 with PID 88 on node bert-worker-1 exited on signal 6 (Aborted).\n"


def _pod(name: str, node: str, begun: str = "2026-03-01T09:59:00Z") -> str:
    state = "    State:          Terminated\n      Reason:       Error\n      Exit Code:    1\n"
    ended = state if "launcher" in name else "    State:          Running\n"
    return (
        f"Name:             {name}\nNamespace:        ml\nNode:             {node}\n"
        f"Start Time:       {begun}\nContainers:\n  c:\n{ended}"
    )


def test_a_rank_of_an_mpi_job_is_on_the_host_that_mpirun_names_and_not_on_the_launchers(diagnose):
    files = {
        "cpu-b1/launcher.log": MPI_LINES + NOTICED,
        "describe-bert-launcher.txt": _pod("bert-launcher", "cpu-b1"),
        "describe-bert-worker-0.txt": _pod("bert-worker-0", "gpu-b2"),
        "describe-bert-worker-1.txt": _pod("bert-worker-1", "gpu-b3"),
    }
    assert diagnose(files).suspects.nodes == ["gpu-b3"]


def test_the_end_of_a_launcher_places_no_rank(diagnose):
    files = {
        "launcher.log": MPI_LINES,
        "describe-bert-launcher.txt": _pod("bert-launcher", "cpu-b1"),
        "describe-bert-worker-0.txt": _pod("bert-worker-0", "gpu-b2"),
        "describe-bert-worker-1.txt": _pod("bert-worker-1", "gpu-b3"),
    }
    assert diagnose(files).suspects.nodes == []


def test_a_pod_that_began_behind_its_own_lines_ran_elsewhere_before(diagnose):
    lines = "".join(
        f"[pod/bert-worker-1/c] 2026-03-01 10:00:0{second} step {second}\n" for second in range(5)
    )
    fault = "[pod/bert-worker-1/c] RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    later = _pod("bert-worker-1", "gpu-b9", "Sun, 01 Mar 2026 11:30:00 +0000")
    before = _pod("bert-worker-1", "gpu-b3", "Sun, 01 Mar 2026 09:58:00 +0000")
    assert "gpu-b9" not in diagnose(lines + fault + later).suspects.nodes
    assert diagnose(lines + fault + before).suspects.nodes == ["gpu-b3"]
