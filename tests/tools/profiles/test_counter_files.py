"""Samples of DCGM and nvidia-smi beside a trace bind functions to what they use."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from rerail.errors import EvidenceError
from rerail.tools.profiles.collect import read_job, read_profile
from rerail.tools.profiles.counter_files import read_counters

BASE_NS = 1_711_964_646_000_000_000
BEGIN_S = BASE_NS / 1e9 + 1000.0
SMI = "timestamp, index, utilization.gpu [%], utilization.memory [%], clocks.current.sm [MHz]\n"


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def trace(folder: Path, rank: int, base: bool = True) -> Path:
    """Three steps of one second: 0.6 s of a matmul, 0.3 s of a collective; times count from the base."""
    events = []
    for step in range(3):
        at = 1000e6 + step * 1e6
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 1e6, "tid": 1},
            {"ph": "X", "cat": "kernel", "name": "sm90_gemm", "ts": at, "dur": 6e5, "tid": 7},
            {"ph": "X", "cat": "kernel", "name": "short_kernel", "ts": at + 6e5, "dur": 4e4, "tid": 7},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ts": at + 65e4,
             "dur": 3e5, "tid": 7, "args": {"Process Group Name": "0", "Group size": 2}},
        ]  # fmt: skip
    whole = {
        "distributedInfo": {"rank": rank, "world_size": 2}, "host_name": "n1", "traceEvents": events,
        **({"baseTimeNanoseconds": BASE_NS} if base else {}),
    }  # fmt: skip
    path = folder / f"rank{rank}.json"
    path.write_text(json.dumps(whole))
    return path


def smi(folder: Path) -> None:
    from datetime import UTC, datetime

    text = SMI
    for n in range(60):
        at = datetime.fromtimestamp(BEGIN_S + n * 0.05, UTC).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
        for gpu, used in ((0, 90), (1, 40)):
            text += f"{at}, {gpu}, {used} %, 30 %, 1410 MHz\n"
    (folder / "n1.counters.csv").write_text(text)


def mu(path: Path, name: str) -> tuple[float, str]:
    (row,) = [
        one for one in read_profile(path).functions if name in one.function.lower().replace("_", "")
    ]
    return row.mu, row.source


def test_nvidia_smi_rows_say_how_far_each_ranks_gpu_was_used(tmp_path: Path) -> None:
    smi(tmp_path)
    assert mu(trace(tmp_path, 0), "gemm") == (pytest.approx(0.9), "counter")
    assert mu(trace(tmp_path, 1), "gemm") == (pytest.approx(0.4), "counter")
    # A call of 40 ms lies between two samples, which are 50 ms apart.
    assert math.isnan(mu(tmp_path / "rank0.json", "shortkernel")[0])
    notes = read_profile(tmp_path / "rank1.json").notes
    assert any("counters of GPU 1 of n1, taken for rank 1" in note for note in notes)


def test_dcgmi_dmon_with_times_adds_both_directions(tmp_path: Path) -> None:
    text = "#Entity   SMACT  DRAMA  NVLTX  NVLRX\nID\n"
    rows = [
        f"{BEGIN_S + n * 0.05:.6f} GPU 0     0.750  0.200  200000000000  250000000000\n"
        for n in range(60)
    ]
    (tmp_path / "n1.counters.txt").write_text(text + "".join(rows))
    path = trace(tmp_path, 0)
    assert mu(path, "gemm") == (pytest.approx(0.75), "counter")
    assert mu(path, "allreduce") == (pytest.approx(0.495), "counter")


def test_scrapes_of_dcgm_exporter(tmp_path: Path) -> None:
    text = "# HELP DCGM_FI_PROF_SM_ACTIVE Ratio\n" + "".join(
        f'DCGM_FI_PROF_SM_ACTIVE{{gpu="0",Hostname="n1.example.org"}} 0.6 {round((BEGIN_S + n * 0.1) * 1000)}\n'
        for n in range(30)
    )
    (tmp_path / "all.counters.prom").write_text(text)
    assert mu(trace(tmp_path, 0), "gemm") == (pytest.approx(0.6), "counter")


def test_what_cannot_be_bound_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    smi(tmp_path)
    path = trace(tmp_path, 0, base=False)
    found = read_profile(path)
    assert any("does not say when it was taken" in note for note in found.notes)
    (tmp_path / "n1.counters.csv").rename(tmp_path / "n9.counters.csv")
    assert any("host (n1)" in note for note in read_profile(trace(tmp_path, 0)).notes)


def test_samples_without_time_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "n1.counters.txt"
    path.write_text("#Entity   SMACT\nID\nGPU 0     0.750\n")
    with pytest.raises(EvidenceError, match="no time"):
        read_counters(path)
    path = tmp_path / "n1.counters.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(EvidenceError, match="no counter of the table"):
        read_counters(path)
    trace(tmp_path, 0)
    trace(tmp_path, 1)
    notes = read_job(sorted(tmp_path.glob("rank*.json"))).notes
    assert any("counters were left out" in note for note in notes)
