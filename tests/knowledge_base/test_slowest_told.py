"""The rank that a framework's reports call the slowest, on the GPU that the machine shows slow, is the one."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts

STEPS = "".join(
    f"[2026-02-11 09:{10 + n}:04] step {20 * n} | loss 1.9 | {1.4 if n < 4 else 7.1} s/step{{{n}}}\n"
    for n in range(8)
)
SMI = """$ ssh gn-6 nvidia-smi -q -i 3 -d PERFORMANCE
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
"""


def ranks(reports: list[str]) -> list[int]:
    log = STEPS.format(*reports) + SMI
    return list(diagnose_texts({"job.log": log}).diagnosis.suspects.ranks)


def test_the_rank_that_the_last_reports_name_is_slow_where_it_may_sit_at_that_gpu() -> None:
    assert ranks([""] * 6 + [" | slowest rank 11 (7.0 s)"] * 2) == [11]


@pytest.mark.parametrize(
    "reports",
    [
        [""] * 6 + [" | slowest rank 11", " | slowest rank 19"],
        [""] * 7 + [" | slowest rank 11"],
        [""] * 6 + [" | slowest rank 12"] * 2,
    ],
    ids=["of two", "once", "at another GPU"],
)
def test_nobody_is_named_where_reports_differ_or_speak_of_another_gpu(reports: list[str]) -> None:
    assert ranks(reports) == []


def test_a_list_of_all_ranks_times_tells_the_slow_one() -> None:
    row = " | ".join(f"r{rank} {8126 if rank == 3 else 4400 + rank}" for rank in range(8))
    assert ranks([""] * 7 + [f"\n[straggler] kernel time per rank (ms): {row}"]) == [3]
