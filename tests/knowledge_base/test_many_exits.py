"""Of many exits behind many steps each is judged as if it stood alone, and the steps are looked at once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from rerail.domain.diagnosis import Diagnosis
from rerail.knowledge_base.causality import progress
from rerail.log_parsers.step_numbers import StepRow

ROWS = st.lists(st.tuples(st.integers(1, 3), st.none() | st.integers(0, 9)), max_size=16)


@given(ROWS, st.integers(0, 50))
def test_what_is_known_of_all_lines_at_once_is_what_each_line_is_told_alone(
    told: list[tuple[int, int | None]], number: int
) -> None:
    rows, at = [], 0
    for gap, step in told:
        at += gap
        rows.append(StepRow(at, "form", step))
    survey = SimpleNamespace(steps=rows)
    view = SimpleNamespace(survey=survey, headings=tuple, section=lambda _: 0)
    with patch.object(progress, "_as_clocks_allow", lambda _case, found, _line: found):
        heights = progress._Heights.of(view, 0)  # type: ignore[arg-type]
        rises = heights.rise(None, SimpleNamespace(number=number))  # type: ignore[arg-type]
    assert rises == progress._rose(rows, number, progress._OUTLIVED_STEPS)


def test_the_steps_are_listed_once_however_many_exits_stand_among_them(
    diagnose: Callable[[str], Diagnosis],
) -> None:
    ranks, listed = 300, []
    plain = progress.step_rows
    log = "".join(
        f"{rank}: step {step} loss 3.{step:02d}\n" for step in range(1, 4) for rank in range(ranks)
    )
    log += "".join(
        f"srun: error: n{rank // 8:03d}: task {rank}: Exited with exit code {1 if rank == 77 else 143}\n"
        for rank in range(ranks)
    )
    log += "0: step 4 loss 3.04\n"
    with patch.object(progress, "step_rows", lambda view: listed.append(view) or plain(view)):
        found = diagnose(log)
    assert (found.first_fault.rank, found.first_fault.node) == (77, "n009")  # type: ignore[union-attr]
    assert len(listed) < ranks / 4
