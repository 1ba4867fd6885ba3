"""A log that just stops: where it stopped, since when, who was behind, and what to collect."""

from __future__ import annotations

from collections.abc import Callable

from rerail.domain.diagnosis import Diagnosis, Outcome

Run = Callable[[str | dict[str, str]], Diagnosis]


def rank_log(rank: int, last: int, total: str = "/5000") -> str:
    return "".join(
        f"2026-03-01 02:{s // 60:02d}:{s % 60:02d} [rank{rank}] step {s}{total} loss {3 - s / 999:.4f}\n"
        for s in range(1, last + 1)
    )


def test_it_tells_the_step_the_time_and_what_to_collect(diagnose: Run) -> None:
    found = diagnose(rank_log(0, 90))
    assert found.outcome is Outcome.NO_FAILURE
    assert "ends at step 90 of 5000, 2026-03-01 02:01:30" in found.summary
    assert "step 90" in found.missing[0].what
    assert "py-spy" in found.missing[0].how_to_get
    assert "ends at step 90, 2026" in diagnose(rank_log(0, 90, "")).summary


def test_the_rank_that_did_not_come_along_is_told_in_files_of_ranks_and_in_one(
    diagnose: Run,
) -> None:
    logs = {f"rank{r}.log": rank_log(r, 88 if r == 2 else 90) for r in range(4)}
    merged = "".join(sorted("".join(logs.values()).splitlines(keepends=True)))
    for evidence in (logs, merged):
        found = diagnose(evidence)
        assert "Rank 2 was last seen at step 88, behind all others." in found.summary
        assert "of rank 2 first" in found.missing[0].how_to_get


def test_ranks_that_differ_among_themselves_accuse_nobody(diagnose: Run) -> None:
    logs = {f"rank{r}.log": rank_log(r, 90 - 3 * r) for r in range(4)}
    assert "behind" not in diagnose(logs).summary
    one_behind = {f"rank{r}.log": rank_log(r, 89 if r == 2 else 90) for r in range(4)}
    assert "behind" not in diagnose(one_behind).summary


def test_step_lines_of_which_not_all_could_be_judged_are_told(diagnose: Run) -> None:
    """A loss that no word names may have diverged, and steps without a time may have become slower."""
    lines = [f"n_iter = {n} , J = {2 + n % 7 / 100:.4f}" for n in range(1, 61)]
    told = [lack.what for lack in diagnose({"train.log": "\n".join(lines)}).missing]
    assert any(what.startswith("the loss in train.log: no word tells") for what in told)
    assert any("whether they became slower was not judged" in what for what in told)
    named = [
        f"n_iter = {n} loss = {2 + n % 7 / 100:.4f} step_time = 0.8{n % 9}" for n in range(1, 61)
    ]
    told = [lack.what for lack in diagnose({"train.log": "\n".join(named)}).missing]
    assert not any("judged" in what or "no word tells" in what for what in told)
