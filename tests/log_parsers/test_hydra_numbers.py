"""Hydra's -prepend-rank puts a bare number in front of lines; its own words say that it is a rank."""

from __future__ import annotations

from rerail.log_parsers.induced_labels import induce

LINES = [f"[{rank}] [pvc-{rank // 8}] xpu:{rank % 8} pid 911{rank}" for rank in (0, 8, 16, 24, 30)]
LINES += [f"[0] iteration {step} loss 9.1 elapsed 4.1 s" for step in range(5, 30, 5)]
LINES += ["[30] Traceback (most recent call last):", "[30] RuntimeError: device lost"]
PLAIN = [f"a line of another program, number {number}" for number in range(30)]
BLOCK = [
    "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
    "=   RANK 30 PID 91130 RUNNING AT pvc-3",
]


def test_numbers_with_gaps_are_ranks_where_the_launcher_says_so():
    labels = induce(LINES + PLAIN + BLOCK, year=2026)
    assert [label.id for label in labels] == ["induced"]


def test_they_are_not_where_nobody_does():
    assert induce(LINES + PLAIN, year=2026) == ()
