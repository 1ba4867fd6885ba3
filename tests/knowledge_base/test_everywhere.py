"""A fault that all ranks have alike is nobody's: no rank, no host, and the headline says so."""

from __future__ import annotations

ASSERT = "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 256 != 4 * 8 * 4"


def raised(rank: int, host: str) -> str:
    lines = [
        "Traceback (most recent call last):",
        '  File "/job/ft.py", line 96, in <module>',
        ASSERT,
    ]
    return "".join(f"{host}: [rank{rank}]: {line}\n" for line in lines)


def test_a_wrong_argument_on_all_ranks_is_of_no_rank_and_no_host(diagnose):
    found = diagnose("".join(raised(r, f"gn-0{1 + r // 2}") for r in (2, 0, 3, 1)))
    assert (found.first_fault.rank, found.first_fault.node) == (None, None)
    assert (found.suspects.ranks, found.suspects.nodes) == ([], [])
    assert found.headline.startswith("Ranks 0 to 3 were given a wrong configuration")


def test_a_wrong_argument_on_one_rank_is_of_that_rank(diagnose):
    found = diagnose(raised(2, "gn-02"))
    assert (found.first_fault.rank, found.first_fault.node) == (2, "gn-02")


def test_the_rank_that_prints_the_loss_of_all_is_not_the_one_that_is_named(diagnose):
    steps = "".join(f"[rank0]: step {s} loss {9 / s:.3f} grad_norm 0.3\n" for s in range(1, 12))
    found = diagnose(
        steps + "".join(f"[rank0]: step {s} loss nan grad_norm nan\n" for s in (12, 13, 14))
    )
    assert (found.failure_type, found.first_fault.rank) == ("loss_nan", None)
