"""`rerail detect` on logs that show no step lines, only collective calls."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rerail.assistant.step_logs import read_step_log
from rerail.errors import EvidenceError
from rerail.tools.detectors.detect import detect
from rerail.tools.detectors.events import EventKind

BODY = [("AllReduce", 4, 1024)] * 6 + [("ReduceScatter", 16, 4096), ("AllReduce", 32, 1)]


def call_times(iterations: int, slow_from: int, step_s: float = 0.5) -> list[tuple[int, float]]:
    """(call in the body, time) of every call; 1.6 times slower from `slow_from`."""
    rng, now, out = np.random.default_rng(5), 1.7e9, []
    for number in range(iterations):
        for place in range(len(BODY)):
            now += step_s / len(BODY) * (1.6 if number >= slow_from else 1.0) * rng.normal(1, 0.02)
            out.append((place, now))
    return out


def stamp(time_s: float, digits: int) -> str:
    """A UTC stamp with `digits` of the second."""
    from datetime import UTC, datetime

    text = datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return text[: 19 + (digits + 1 if digits else 0)]


def coll_log(path: Path, digits: int, step_s: float = 0.5, iterations: int = 200) -> Path:
    """An NCCL_DEBUG_SUBSYS=COLL log."""
    lines = []
    for place, now in call_times(iterations, 120, step_s):
        op, ranks, count = BODY[place]
        lines.append(
            f"[{stamp(now, digits)}] node-01:189884:189990 [3] NCCL INFO {op}: opCount 1a sendbuff "
            f"0x7f recvbuff 0x7e count {count} datatype 9 op 0 root 0 comm 0x5{ranks:x} "
            f"[nranks={ranks}] stream 0x55"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def test_nccl_call_lines_show_the_onset(tmp_path: Path) -> None:
    (series,) = read_step_log(coll_log(tmp_path / "nccl.log", digits=6))

    assert len(series) == 199
    onsets = [e.step for e in detect(series).events if e.kind is EventKind.SLOW_ONSET]
    assert onsets == [pytest.approx(120, abs=2)]


def test_whole_seconds_are_averaged_over_several_iterations(tmp_path: Path) -> None:
    (series,) = read_step_log(coll_log(tmp_path / "nccl.log", digits=0, iterations=400))

    assert "mean of" in series.name
    assert np.median(series.step_time_s[:3]) == pytest.approx(0.5, rel=0.2)


def test_inspector_lines_show_iterations(tmp_path: Path) -> None:
    path = tmp_path / "inspector.log"
    with path.open("w") as out:
        for number, (place, now) in enumerate(call_times(150, 90)):
            op, ranks, count = BODY[place]
            row = {
                "header": {"id": f"0x{ranks:x}", "rank": 0, "n_ranks": ranks, "nnodes": 1},
                "metadata": {"dump_timestamp_us": int(now * 1e6), "hostname": "n1", "pid": 3},
                "coll_perf": {
                    "coll": op, "coll_sn": number, "coll_msg_size_bytes": count,
                    "coll_exec_time_us": 5,
                },
            }  # fmt: skip
            out.write(json.dumps(row) + "\n")
    (series,) = read_step_log(path)
    onsets = [e.step for e in detect(series).events if e.kind is EventKind.SLOW_ONSET]
    assert onsets == [pytest.approx(90, abs=2)]


def test_calls_without_times_are_no_series(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text(
        "n1:1:2 [0] NCCL INFO AllReduce: opCount 1 sendbuff 0x1 recvbuff 0x2 count 8 datatype 7 "
        "op 0 root 0 comm 0x5 [nranks=8] stream 0x3\n" * 50
    )
    with pytest.raises(EvidenceError, match="no step lines"):
        read_step_log(path)
