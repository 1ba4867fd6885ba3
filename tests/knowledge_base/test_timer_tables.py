"""Tables of timers show the rank whose own work takes far longer, whoever prints them and in which form."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Diagnosis, Outcome

ROWS = [
    ("0", "na-1", "12", "300", "600", "500"),
    ("1", "na-1", "12", "301", "602", "499"),
    ("2", "na-2", "13", "299", "601", "498"),
    ("3", "na-2", "480", "300", "600", "31"),
]
TITLES = ("rank", "host", "data", "fwd", "bwd", "sync")


def said(text: str) -> Diagnosis:
    return diagnose_texts({"job.log": text}).diagnosis


def table(joint: str = "  ", front: str = "", rows: list[tuple[str, ...]] | None = None) -> str:
    lines = [TITLES, *(ROWS if rows is None else rows)]
    return "".join(f"{front}{joint.join(cells)}\n" for cells in lines)


@pytest.mark.parametrize(
    "text",
    [
        table(),
        table(","),
        table(" | "),
        table(front="2026-01-01 10:00:00,123 "),
        table(front="[rank0]: "),
        table().replace("host", "node").replace("data", "data(ms)"),
    ],
)
def test_who_waits_for_data_while_all_others_wait_for_it_is_shown_at_its_row(text: str) -> None:
    found = said(text)
    assert (found.failure_type, found.suspects.ranks) == ("slow_dataloading_storage", [3])
    assert found.first_fault is not None and found.first_fault.line == 5


def test_ranks_may_be_the_columns() -> None:
    text = "".join("  ".join(cells) + "\n" for cells in zip(TITLES, *ROWS, strict=True))
    found = said(text.replace("host  na-1  na-1  na-2  na-2\n", ""))
    assert (found.failure_type, found.suspects.ranks) == ("slow_dataloading_storage", [3])


def test_a_statistic_is_of_what_the_line_above_it_says() -> None:
    rows = "".join(f"{rank}  na-1  {3.4 if rank == 2 else 1.71}\n" for rank in range(4))
    assert said("compute time by rank (s)\nrank  host  mean\n" + rows).suspects.ranks == [2]
    assert said("loss by rank\nrank  host  mean\n" + rows).suspects.ranks == []


def test_a_clock_far_below_the_others_says_why() -> None:
    rows = "".join(
        f"{rank}  {640 if rank == 2 else 410}  {4 if rank == 2 else 690}  {1095 if rank == 2 else 1980}\n"
        for rank in range(4)
    )
    found = said("rank  fwd  comm_wait  sm_clk\n" + rows)
    assert (found.failure_type, found.suspects.ranks) == ("slow_gpu", [2])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(table(rows=[*ROWS[:3], ("3", "na-2", "13", "301", "600", "502")]), id="even"),
        pytest.param(table(rows=[*ROWS[:3], ("3", "na-2", "480", "300", "600", "499")]), id="no one waits for it"),
        pytest.param(table(rows=[("0", *ROWS[3][1:]), *ROWS[1:3]]), id="few ranks"),
        pytest.param(" pipeline_model_parallel_size .................... 4\n" + table(), id="stages of a pipeline"),
        pytest.param("shards\nrank  data  gpu\n0  12  0\n1  12  1\n2  480  2\n3  12  3\n", id="counts"),
        pytest.param("rank  fwd  optim\n0  0.1  0.9\n1  0.1  0.1\n2  0.1  0.1\n3  0.1  0.1\n", id="the first rank"),
    ],
)  # fmt: skip
def test_what_shows_nobody_apart_blames_nobody(text: str) -> None:
    found = said(text)
    assert found.suspects.ranks == []
    assert found.outcome is not Outcome.FAILURE


def test_data_that_takes_most_of_all_ranks_time_is_slow_for_all() -> None:
    text = "timers (ms)\nrank  0  1  2  3\ndata  121  122  120  123\nfwd  5.1  5.0  5.1  5.2\nbwd  6.9  6.8  6.9  7.0\n"
    found = said(text)
    assert (found.failure_type, found.suspects.ranks) == ("slow_dataloading_storage", [])
