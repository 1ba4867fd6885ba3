"""Bad profiles: each gets a word of its own, and no worker is blamed for them."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rerail.tools.localize.findings import Localization
from rerail.tools.localize.localize_paths import localize_paths
from rerail.tools.profiles.collect import profile_files, read_job
from rerail.tools.profiles.summary import SUFFIX
from rerail.tools.shards.unpack import LEAST_LIMIT

STEP_US, RANKS, ODD = 26_000.0, 8, 3
Event = dict[str, Any]


def _events(rank: int, device: bool, steps: int = 6, slow: float = 1.0) -> list[Event]:
    """Steps of eleven calls and a collective that fills what is left of 26 ms."""
    events = []
    for step in range(steps):
        begin = 1e6 + step * STEP_US
        at = begin + 50
        for call in range(11):
            took = 1000.0 * slow + rank + call
            name = f"gemm_{call % 4}" if device else f"aten::mm{call % 4}"
            cat = "kernel" if device else "cpu_op"
            events.append(
                {"ph": "X", "cat": cat, "name": name, "tid": 7, "ts": at, "dur": took, "args": {}}
            )
            at += took
        meet = (
            ("kernel", "ncclDevKernel_AllReduce")
            if device
            else ("user_annotation", "gloo:all_reduce")
        )
        took = begin + STEP_US - at
        events.append({"ph": "X", "cat": meet[0], "name": meet[1], "tid": 8, "ts": at, "dur": took})
        name = f"ProfilerStep#{100 + step}"
        events.append(
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": name,
                "tid": 1,
                "ts": begin,
                "dur": STEP_US,
            }
        )
    return events


def _write(folder: Path, rank: int, events: list[Event]) -> None:
    info = {"rank": rank, "world_size": RANKS}
    row = {"distributedInfo": info, "traceEvents": events}
    (folder / f"rank{rank}.json").write_text(json.dumps(row))


def _judged(folder: Path, device: bool, odd: list[Event]) -> Localization:
    for rank in range(RANKS):
        _write(folder, rank, odd if rank == ODD else _events(rank, device))
    return localize_paths([folder], lambda _: None)[0].localization


def _all(events: list[Event], change: Callable[[float], float]) -> list[Event]:
    return [{**event, "ts": change(event["ts"])} for event in events]


MIDDLE = 1e6 + 3.4 * STEP_US


@pytest.mark.parametrize("device", [True, False])
def test_the_odd_rank_is_named_where_it_is_slow(tmp_path: Path, device: bool) -> None:
    judged = _judged(tmp_path, device, _events(ODD, device, slow=1.5))
    assert [one.workers for one in judged.findings] == [(ODD,)]


@pytest.mark.parametrize("device", [True, False])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda at: at - 60_000 if at > MIDDLE else at, "its clock jumped"),
        (lambda at: at - 1e9 if at > MIDDLE else at, "its clock jumped"),
        (lambda at: -at, "its clock jumped"),
        (lambda at: 0.0, "its clock stood still"),
        (lambda at: 1e6 + (at - 1e6) * 1.7, "its clock jumped, or the profile is of another job"),
    ],
    ids=["back", "back 1,000 s", "backwards", "still", "fast"],
)
def test_a_clock_that_jumps_is_told(
    tmp_path: Path, device: bool, change: Callable[[float], float], said: str
) -> None:
    odd = _all(_events(ODD, device, slow=1.5), change)
    for event in odd:
        if "Step" in event["name"] and said.endswith("job"):
            event["dur"] *= 1.7
    judged = _judged(tmp_path, device, odd)
    assert judged.findings == []
    assert any(said in note and "rank" in note for note in judged.missing)


def test_windows_of_ranks_that_never_meet_may_differ(tmp_path: Path) -> None:
    """Without a collective a slow rank takes longer for its steps, and that is what is to be found."""
    for rank in range(RANKS):
        slow = 1.7 if rank == ODD else 1.0
        events = [e for e in _events(rank, True) if "AllReduce" not in e["name"]]
        events = [{**e, "ts": 1e6 + (e["ts"] - 1e6) * slow, "dur": e["dur"] * slow} for e in events]
        _write(tmp_path, rank, events)
    judged = localize_paths([tmp_path], lambda _: None)[0].localization
    assert [one.workers for one in judged.findings] == [(ODD,)]


@pytest.mark.parametrize("device", [True, False])
def test_a_trace_of_other_work_is_not_compared(tmp_path: Path, device: bool) -> None:
    odd = [{**e, "name": "conv_" + e["name"]} if e["tid"] == 7 else e for e in _events(ODD, device)]
    odd = [{**e, "dur": e["dur"] * 2} if e["tid"] == 7 else e for e in odd]
    judged = _judged(tmp_path, device, odd)
    assert judged.findings == []
    assert any("rank 3: it runs none of the functions" in note for note in judged.missing)


def test_a_trace_of_one_step_does_not_cut_the_others(tmp_path: Path) -> None:
    for rank in range(RANKS):
        slow = 1.5 if rank == 5 else 1.0
        _write(tmp_path, rank, _events(rank, True, steps=1 if rank == ODD else 6, slow=slow))
    judged = localize_paths([tmp_path], lambda _: None)[0].localization
    assert [one.workers for one in judged.findings] == [(5,)]
    assert any(
        "rank 3: its profile holds 1 step, those of the others 6" in n for n in judged.missing
    )


@pytest.mark.parametrize("bad", ["abc", [1], {"a": 1}])
def test_an_event_of_another_type_is_told(tmp_path: Path, bad: Any) -> None:
    odd = _events(ODD, True, slow=1.5)
    odd[7]["ts"] = bad
    judged = _judged(tmp_path, True, odd)
    assert judged.findings == []
    assert any("rank3.json: not a readable trace" in note for note in judged.missing)


def test_a_summary_that_unpacks_to_any_size_is_left_out(tmp_path: Path) -> None:
    for rank in range(1, RANKS):
        _write(tmp_path, rank, _events(rank, True))
    with gzip.open(tmp_path / f"rank0{SUFFIX}", "wb", 1) as stream:
        stream.write(b'{"rerail_profile": 1, "x": "' + b"a" * LEAST_LIMIT + b'"}')
    notes = read_job(profile_files(tmp_path)).notes
    assert any("it unpacks to more than 64 MB" in note for note in notes)


def test_links_and_pipes_in_the_folder_are_harmless(tmp_path: Path) -> None:
    judged = _judged(tmp_path, True, _events(ODD, True))
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "rank50.json").symlink_to("/etc/passwd")
    (tmp_path / "rank51.json").symlink_to("/dev/zero")
    (tmp_path / "rank52.json").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "rank53.json")
    again = localize_paths([tmp_path], lambda _: None)[0].localization
    assert (again.outcome, again.findings) == (judged.outcome, [])
    assert [note for note in again.missing if "rank5" in note] == [
        f"left out: {tmp_path}/rank50.json: not a readable trace (it does not begin as JSON)"
    ]
