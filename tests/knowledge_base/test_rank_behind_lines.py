"""Ranks at the end of lines: who is silent or behind among many, and on which node where it stands in front."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis

Run = Callable[[str], Diagnosis]
Form = Callable[[int, str], str]

STEPS, BEHIND, LATE, EACH = 10, 4, 43, 8
AT = "2026-03-01 02"
FORMS: dict[str, Form] = {
    "in brackets": lambda rank, text: f"{text} (rank={rank})",
    "a word in brackets": lambda rank, text: f"{text} [rank {rank}]",
    "a pair": lambda rank, text: f"{text:40} rank={rank}",
    "JSON": lambda rank, text: f'{text} {{"rank": {rank}}}',
    "behind a host": lambda rank, text: f"gn-{rank // EACH:03d}: {text} (rank={rank})",
}


def log(form: Form, ranks: int, *, behind: bool) -> str:
    told = [
        form(rank, f"{AT}:00:{step:02d} step {step}/900 loss 3.{step:02d}")
        for step in range(1, STEPS + 1)
        for rank in range(ranks)
        if rank != LATE or not behind or step <= BEHIND
    ]
    for rank in range(ranks):
        if rank != LATE or behind:
            seq = BEHIND if rank == LATE else STEPS
            call = f"WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000)"
            text = f"Watchdog caught collective operation timeout: {call} ran for 600012 ms"
            told.append(form(rank, f"{AT}:11:07 [Rank {rank}] {text}"))
    return "\n".join([*told, ""])


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.parametrize("ranks", [64, 520])
def test_who_is_silent_or_behind_is_told(
    form: Form, behind: bool, ranks: int, diagnose: Run
) -> None:
    found = diagnose(log(form, ranks, behind=behind))
    assert found.suspects.ranks == [LATE]
    if form is FORMS["behind a host"]:
        assert found.suspects.nodes == [f"gn-{LATE // EACH:03d}"]
