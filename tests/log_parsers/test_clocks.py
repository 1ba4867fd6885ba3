"""The skew of a node's clock is read from the steps that all nodes share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rerail.domain.diagnosis import Diagnosis
from rerail.log_parsers import clocks
from rerail.log_parsers.clocks import clock_offsets
from rerail.log_parsers.collect import ScanPlan, collect
from rerail.log_parsers.view import LogView

START = datetime(2026, 3, 1, 2, 0, tzinfo=UTC).timestamp()


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def steps(skew: float, count: int, every: float = 10.0) -> str:
    return "".join(
        f"{stamp(START + i * every + skew)} iteration {i}/ 500 | lm loss: 2.5E+00 |\n"
        for i in range(1, count + 1)
    )


def offsets(folder: Path) -> dict[str, float]:
    return clock_offsets(collect([folder], ScanPlan(())).views)


def test_a_clock_that_is_ahead_is_set_back(job: Callable[..., Path]) -> None:
    folder = job(
        {"node1.log": steps(0, 40), "node2.log": steps(95, 30), "node3.log": steps(-7.5, 30)}
    )
    found = offsets(folder)
    assert found == {"node2.log": pytest.approx(-95), "node3.log": pytest.approx(7.5)}


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (steps(0.4, 30), "a second is printing, not skew"),
        (steps(95, 2), "two steps are too few"),
        ("no steps here\n", "nothing is shared"),
        ("iteration 5/ 500 | lm loss: 2.5E+00 |\n" * 9, "no stamps"),
    ],
)
def test_a_clock_is_left_alone(other: str, why: str, job: Callable[..., Path]) -> None:
    assert offsets(job({"node1.log": steps(0, 40), "node2.log": other})) == {}, why


def test_of_many_files_fewer_lines_are_parsed(
    job: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []
    wall_time = LogView.wall_time

    def counted(view: LogView, number: int) -> float | None:
        parsed.append(number)
        return wall_time(view, number)

    monkeypatch.setattr(LogView, "wall_time", counted)
    folder = job({"node1.log": steps(0, 40), "node2.log": steps(95, 39)})
    assert offsets(folder) == {"node2.log": pytest.approx(-95)}
    many = len(parsed)
    parsed.clear()
    monkeypatch.setattr(clocks, "_MOST_LINES", 16)
    assert offsets(folder) == {"node2.log": pytest.approx(-95)}
    assert len(parsed) < many / 3


def test_one_file_has_no_skew(job: Callable[..., Path]) -> None:
    assert offsets(job({"node1.log": steps(0, 40)})) == {}


def crash(node: str, rank: int, seconds: float, text: str) -> str:
    head = f"{stamp(seconds)} [rank{rank}]: "
    return (
        f"{head}Traceback (most recent call last):\n"
        f'{head}  File "/job/train.py", line 7, in <module>\n'
        f"{head}{text}\n"
    )


def test_the_first_fault_is_first_by_the_corrected_clock(
    diagnose: Callable[..., Diagnosis],
) -> None:
    # By its own clock node 2 failed a minute before node 1; in truth it failed half a minute later.
    end = START + 401
    found = diagnose(
        {
            "rank_0.log": steps(0, 40) + crash("n1", 0, end, "KeyError: 'lr'"),
            "rank_1.log": steps(-90, 40)
            + crash("n2", 1, end + 30 - 90, "ZeroDivisionError: division by zero"),
        }
    )
    assert found.first_fault is not None
    assert (found.first_fault.file, found.suspects.ranks) == ("rank_0.log", [0])


def test_without_skew_the_earlier_line_is_first_whatever_the_order_of_files(
    diagnose: Callable[..., Diagnosis],
) -> None:
    end = START + 401
    found = diagnose(
        {
            "rank_0.log": steps(0, 40) + crash("n1", 0, end + 30, "KeyError: 'lr'"),
            "rank_1.log": steps(0, 40) + crash("n2", 1, end, "ZeroDivisionError: division by zero"),
        }
    )
    assert found.first_fault is not None
    assert (found.first_fault.file, found.suspects.ranks) == ("rank_1.log", [1])


def test_a_kernel_clock_since_boot_is_never_taken_for_the_time_of_day(
    diagnose: Callable[..., Diagnosis],
) -> None:
    found = diagnose(
        {
            "dmesg.txt": "[ 8123.456789] NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.\n"
        }
    )
    assert found.first_fault is not None
    assert found.first_fault.time is None
