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
