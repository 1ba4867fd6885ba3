"""Processes that share the cores of a host: who only waits for one is not blamed, who is slow still is."""

from __future__ import annotations

from collections.abc import Sequence

from rerail.tools.localize.findings import Localization
from rerail.tools.profiles.judge import judge_profiles
from rerail.tools.profiles.matrix import build_matrix
from rerail.tools.profiles.summary import FunctionPattern, Summary

STEPS = 6
STEP_S = 0.2
QUIET = (0.020, 0.021, 0.019, 0.020, 0.022, 0.020)
Steps = Sequence[float]


def _function(name: str, work: str, by_step: Steps) -> FunctionPattern:
    beta = sum(by_step) / (STEPS * STEP_S)
    nan = float("nan")
    return FunctionPattern(
        name, work, "cpu", beta, nan, nan, "none", STEPS, sum(by_step), tuple(by_step)
    )


def _judged(
    own: Sequence[Steps], *, wait: Sequence[Steps] | None = None, hosts: str = "aaaa",
    inside: str = "prepare", work: str = "host",
) -> Localization:  # fmt: skip
    """Judge four ranks whose own time (ranks, steps) is spent in one function beside 20 ms of others."""
    rows = []
    for rank, steps in enumerate(own):
        rest = [min(one, 0.020) for one in steps]
        more = [max(one - 0.020, 0.0) for one in steps]
        rows.append(
            Summary(
                rank, len(own), hosts[rank], "", "job", 7, (STEP_S,) * STEPS, tuple(steps), False,
                (_function("aten::mm", "host", rest), _function(inside, work, more)), (), f"rank{rank}",
                cpu_wait_s=tuple(wait[rank]) if wait else (),
            )
        )  # fmt: skip
    return judge_profiles("job", build_matrix(rows))


def _named(judged: Localization) -> list[tuple[int, ...]]:
    return [one.workers for one in judged.findings]


def test_a_rank_that_waits_for_a_shared_core_is_not_blamed() -> None:
    own = [QUIET, QUIET, QUIET, [one + 0.060 for one in QUIET]]
    waits = [[0.001] * STEPS] * 3 + [[0.061] * STEPS]
    assert _named(_judged(own)) == [(3,)]
    assert _named(_judged(own, wait=waits)) == []


def test_alone_on_its_host_a_rank_that_waits_is_named() -> None:
    own = [QUIET, QUIET, QUIET, [one + 0.060 for one in QUIET]]
    waits = [[0.001] * STEPS] * 3 + [[0.061] * STEPS]
    assert _named(_judged(own, wait=waits, hosts="abcd")) == [(3,)]


def test_a_slow_rank_is_seen_behind_the_waits_of_all() -> None:
    """All seem to take 90 to 100 ms a step; three of them only wait."""
    noise = [0.02, 0.07, 0.05, 0.09, 0.04, 0.07]
    own = [[0.020 + one for one in noise[rank:] + noise[:rank]] for rank in range(4)]
    waits = [noise[rank:] + noise[:rank] for rank in range(4)]
    own[2] = [0.080 + one / 3 for one in waits[2]]
    waits[2] = [one / 3 for one in waits[2]]
    assert _named(_judged(own)) == []
    assert _named(_judged(own, wait=waits)) == [(2,)]


def test_whose_steps_overlap_those_of_the_others_is_not_named() -> None:
    even = [[0.030, 0.0301, 0.060, 0.0302, 0.0299, 0.0300]] * 3
    judged = _judged([*even, [0.045, 0.046, 0.044, 0.045, 0.030, 0.047]])
    assert _named(judged) == []
    assert any("the time of rank 3 was longer" in note for note in judged.missing)


def test_a_little_longer_beside_the_slowest_of_the_host_is_a_note() -> None:
    """Of 140 ms that the slowest loses, 30 on a neighbour are not told from noise; 80 are."""
    first = [one + 0.140 for one in QUIET]
    judged = _judged([QUIET, QUIET, first, [one + 0.030 for one in QUIET]])
    assert _named(judged) == [(2,)]
    assert any("the time of rank 3 was longer" in note for note in judged.missing)
    more = [one + 0.080 for one in QUIET]
    assert _named(_judged([QUIET, QUIET, first, more, QUIET, QUIET], hosts="aaaaaa")) == [(2, 3)]
    little = [QUIET, QUIET, first, [one + 0.030 for one in QUIET], QUIET, QUIET]
    assert _named(_judged(little, hosts="aaabbb")) == [(2, 3)]


def test_another_small_finding_on_the_host_is_a_note() -> None:
    """Rank 2 waits 140 ms for its data; rank 3 does something else for 22 ms."""
    rows = []
    for rank in range(4):
        more = {2: 0.140, 3: 0.022}.get(rank, 0.0)
        own = tuple(one + more for one in QUIET)
        name, work = ("fetch", "loader") if rank == 2 else ("prepare", "host")
        rows.append(
            Summary(
                rank, 4, "a", "", "job", 7, (STEP_S,) * STEPS, own, False,
                (_function("aten::mm", "host", QUIET), _function(name, work, [more] * STEPS)), (), f"rank{rank}",
            )
        )  # fmt: skip
    judged = judge_profiles("job", build_matrix(rows))
    assert _named(judged) == [(2,)]
    assert any(note.startswith("rank 3 on node a: ") for note in judged.missing)


def test_one_fetch_that_was_held_up_is_no_slow_storage() -> None:
    once = [0.020, 0.020, 0.160, 0.020, 0.020, 0.020]
    assert _named(_judged([QUIET, QUIET, QUIET, once], inside="fetch", work="loader")) == []
    each = [one + 0.090 for one in QUIET]
    assert _named(_judged([QUIET, QUIET, QUIET, each], inside="fetch", work="loader")) == [(3,)]


def test_a_function_apart_counts_only_if_the_whole_is_longer() -> None:
    """What one process does in `prepare`, the others do elsewhere."""
    rows = []
    for rank in range(4):
        mine = _function("prepare" if rank == 3 else "elsewhere", "host", [0.030] * STEPS)
        own = tuple(one + 0.030 for one in QUIET)
        rows.append(
            Summary(
                rank, 4, "a", "", "job", 7, (STEP_S,) * STEPS, own, False,
                (_function("aten::mm", "host", QUIET), mine), (), f"rank{rank}", cpu_wait_s=(0.0,) * STEPS,
            )
        )  # fmt: skip
    assert _named(judge_profiles("job", build_matrix(rows))) == []
