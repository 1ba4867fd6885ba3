"""An adapter that reaches none of several peers, while nobody else complains, is at fault itself."""

from __future__ import annotations

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Diagnosis

DONE = (
    "{host}:71:160 [3] NCCL WARN NET/IB: Got completion from peer {peer}<41410> with status=12 opcode=0 len=0 "
    "vendor err 129 (Send) hca {device}\n"
)


def said(*lines: tuple[str, str, str]) -> Diagnosis:
    text = "".join(DONE.format(host=host, device=device, peer=peer) for host, device, peer in lines)
    return diagnose_texts({"job.log": text}).diagnosis


def test_one_adapter_against_several_peers_is_at_fault() -> None:
    found = said(("gn-1", "mlx5_3", "10.2.1.9"), ("gn-1", "mlx5_3", "10.2.1.11"))
    assert (found.failure_type, found.suspects.nodes) == ("nic_hardware_failure", ["gn-1"])


def test_one_peer_several_adapters_or_several_hosts_tell_nothing_of_an_adapter() -> None:
    for other in (
        ("gn-1", "mlx5_3", "10.2.1.9"),
        ("gn-1", "mlx5_2", "10.2.1.11"),
        ("gn-2", "mlx5_3", "10.2.1.11"),
    ):
        assert said(("gn-1", "mlx5_3", "10.2.1.9"), other).failure_type == "ib_retry_exceeded"
