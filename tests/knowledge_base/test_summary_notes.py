"""The page's sentence names what the line named: a note's blanks are filled, or it is left out."""

from __future__ import annotations

from collections.abc import Callable

from rerail.domain.diagnosis import Diagnosis

Run = Callable[[str | dict[str, str]], Diagnosis]

STEPS = "".join(f"step {i} loss 2.{9 - i}\n" for i in range(6))


def test_a_note_names_what_the_line_named(diagnose: Run) -> None:
    found = diagnose(
        "[rank0]: torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 9/16 clients joined.\n"
    )
    assert "Only 9/16 clients reached the store." in found.summary
    assert "{" not in found.summary


def test_a_note_whose_field_the_line_lacks_is_left_out(diagnose: Run) -> None:
    found = diagnose(
        STEPS
        + "h100-7:2201:2330 [3] NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129\n"
    )
    assert found.failure_type == "ib_retry_exceeded"
    assert "{" not in found.summary
    assert "retransmissions to" not in found.summary
