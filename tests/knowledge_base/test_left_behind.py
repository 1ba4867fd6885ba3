"""Whose lines end a round before those of all others, where the job stood still until its limit ended it."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts

LIMIT = "slurmstepd: error: *** JOB 77 ON gn-1 CANCELLED AT 2026-03-01T{end} DUE TO TIME LIMIT ***"


def log(
    ended: dict[int, int], *, end: str = "03:00:00", each_s: float = 2.0, also: str = ""
) -> str:
    """Rounds of `each_s` seconds from 02:00:00 on, of each rank up to the one that it came to."""
    lines = [f"[rank{rank}]: started on gn-{1 + rank // 2} pid {4000 + rank}" for rank in ended]
    for number in range(1, max(ended.values()) + 1):
        seconds = number * each_s
        time = f"02:{int(seconds // 60):02d}:{seconds % 60:06.3f}"
        lines += [
            f"[rank{rank}]: 2026-03-01 {time} INFO round {number} loaded"
            for rank, last in ended.items()
            if number <= last
        ]
    return "\n".join([*lines, also, LIMIT.format(end=end), ""])


def test_the_rank_that_stopped_first_is_named() -> None:
    found = diagnose_texts({"a.log": log({0: 9, 1: 9, 2: 9, 3: 8})}).diagnosis
    assert found.failure_type == "job_time_limit"
    assert found.suspects.ranks == [3]
    assert found.suspects.nodes == ["gn-2"]
    assert "rank 3 stopped first" in found.summary.lower()


def test_ranks_of_one_host_that_stopped_first_are_named_with_it() -> None:
    found = diagnose_texts({"a.log": log({0: 9, 1: 9, 2: 7, 3: 7, 4: 9, 5: 9})}).diagnosis
    assert found.suspects.ranks == [2, 3]
    assert found.suspects.nodes == ["gn-2"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (log({0: 9, 1: 9, 2: 9, 3: 8}, end="02:00:20"), "the job went on to its limit"),
        (log({0: 9, 1: 9, 2: 9, 3: 8}, end="02:05:00", each_s=40.0), "a round takes that long"),
        (log({0: 9, 1: 9, 2: 8, 3: 8}), "as many are ahead as behind"),
        (log({0: 9, 1: 9, 2: 9, 3: 9}), "all came as far"),
        (log({0: 9, 1: 9, 2: 8, 3: 7, 4: 9, 5: 9, 6: 9}), "two stopped in different rounds"),
        (log({0: 9, 1: 8}), "of two nobody is the odd one"),
    ],
)
def test_nobody_is_named(text: str, why: str) -> None:
    found = diagnose_texts({"a.log": text}).diagnosis
    assert found.failure_type == "job_time_limit", why
    assert not found.suspects.ranks, why
    assert found.first_fault is not None
    assert found.first_fault.rank is None


def test_files_of_ranks_say_the_same_as_one_file() -> None:
    whole = log({0: 9, 1: 9, 2: 9, 3: 8}).splitlines()
    files = {
        f"rank_{rank}.log": "\n".join(line for line in whole if line.startswith(f"[rank{rank}]"))
        for rank in range(4)
    }
    files["slurm-77.out"] = whole[-1]
    assert diagnose_texts(files).diagnosis.suspects.ranks == [3]


def steps(label: str, late: int, *, ranks: int = 24, last: int = 4) -> str:
    lines = [
        f"{label.format(rank=rank, node=rank // 8)}2026-03-01 02:0{step}:00 INFO step {step} loss {3 - step / 100:.4f}"
        for step in range(1, last + 1)
        for rank in range(ranks)
        if rank != late or step < 2
    ]
    return "\n".join([*lines, ""])


LABELS = ["[default0]:[rank{rank}]: ", "[pod/w-{node}/pytorch] [rank{rank}]: ", "{rank}: "]


@pytest.mark.parametrize("label", LABELS)
def test_what_each_rank_measures_makes_no_other_round_of_it(label: str) -> None:
    found = diagnose_texts({"a.log": steps(label, 5) + LIMIT.format(end="03:00:00")}).diagnosis
    assert found.suspects.ranks == [5]
    assert "last round is 1, that of all others 4" in found.summary


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("end", ["03:00:00", "02:04:20"])
def test_of_more_ranks_than_lines_are_looked_at_the_facts_tell_who_stopped(
    label: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rerail.knowledge_base.causality.left_behind._MOST_LINES", 12)
    found = diagnose_texts({"a.log": steps(label, 5) + LIMIT.format(end=end)}).diagnosis
    assert found.suspects.ranks == ([5] if end == "03:00:00" else []), "it stood, or went on"


@pytest.mark.parametrize("label", LABELS)
def test_of_more_ranks_than_rows_are_looked_at_the_facts_tell_who_is_behind(
    label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rerail.knowledge_base.causality.end_of_log._LAST_ROWS", 12)
    monkeypatch.setattr("rerail.knowledge_base.causality.end_of_log._TAKEN_APART", 12)
    found = diagnose_texts({"a.log": steps(label, 5)}).diagnosis
    assert "Rank 5 was last seen at step 1, behind all others." in found.summary
    again = steps(label, 5) + steps(label, 99, last=2)
    assert "behind" not in diagnose_texts({"a.log": again}).diagnosis.summary
