"""NCCL's profiler dumps, xpu_timer's gauges and Megatron's timers, in the layouts that their sources print."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerail.errors import EvidenceError
from rerail.tools.localize.localize_paths import localize_paths
from rerail.tools.localize.nccl_profiler import looks_like_nccl_profiler, read_nccl_profiler
from rerail.tools.localize.xpu_timer import read_xpu_timer

# print_event.cc of NCCL 2.28: header, children, trailer; "{}]" ends the list.
HEADER = (
    '{{"name": "AllReduce", "cat": "COLL", "ph": "b", "id": {n}, "pid": {pid}, "tid": 1, "ts": {ts:.6f}, '
    '"args": {{"SeqNum": {n}, "CommHash": {comm}, "Rank": {rank}, "Count": 262144, "Datatype": '
    '"ncclFloat32", "Algorithm": "RING", "Protocol": "LL", "nChannels": 2}}}},\n'
)
PROXY = (
    '{{"name": "ProgressSend", "cat": "PROXY", "ph": "b", "id": {n}, "pid": {pid}, "tid": 1, "ts": {ts:.6f}, '
    '"args": {{"Channel": 0, "Peer": 6, "Steps": 28, "ChunkSize": 32768, "transSize": 1835008}}}},\n'
    '{{"name": "ProgressSend", "cat": "PROXY", "ph": "e", "id": {n}, "pid": {pid}, "tid": 1, "ts": {ts:.6f}}},\n'
)
KERNEL = (
    '{{"name": "KernelCh", "cat": "GPU", "ph": "b", "id": {n}, "pid": {pid}, "tid": 1, "ts": {ts:.6f}, '
    '"args": {{"Channel": 0, "StartGpuClk": {begin}, "StopGpuClk": {stop}}}}},\n'
    '{{"name": "KernelCh", "cat": "GPU", "ph": "e", "id": {n}, "pid": {pid}, "tid": 1, "ts": {ts:.6f}}},\n'
)
TRAILER = '{{"name": "AllReduce", "cat": "COLL", "ph": "e", "id": {n}, "pid": {pid}, "tid": 1, "ts": {ts:.6f}}},\n'


def dump(folder: Path, rank: int, took_us: list[float], inside: str = PROXY, comm: int = 10644) -> Path:  # fmt: skip
    path = folder / f"profile-node{rank // 2}-{4000 + rank}.txt"
    text, at = "[\n", 761142.5
    for n, took in enumerate(took_us):
        given = {"n": n, "pid": 900 + rank, "comm": comm, "rank": rank}
        clock = {"begin": 1765223112919376800, "stop": 1765223112919376800 + int(took * 1000)}
        text += HEADER.format(ts=at, **given)
        text += inside.format(ts=at + 1, **given, **clock) if inside else ""
        end = at + took if inside == PROXY else at + 3
        text += TRAILER.format(ts=end, **given)
        at += 20_000
    path.write_text(text + "{}]\n")
    return path


@pytest.mark.parametrize("inside", [PROXY, KERNEL])
def test_who_waits_least_in_a_profiler_dump_is_late(tmp_path: Path, inside: str) -> None:
    for rank in range(4):
        dump(tmp_path, rank, [400.0 if rank == 2 else 9_000.0 + rank] * 20, inside)
    (judged,) = localize_paths([tmp_path])
    (finding,) = judged.localization.findings
    assert (finding.workers, finding.nodes) == ((2,), ("node1",))
    assert finding.lost_s == pytest.approx(20 * 8.6e-3, rel=0.1)


def test_healthy_dumps_name_nobody(tmp_path: Path) -> None:
    for rank in range(4):
        dump(tmp_path, rank, [400.0 + (7 * rank + 3 * n) % 5 for n in range(20)])
    (judged,) = localize_paths([tmp_path])
    assert judged.localization.findings == []


def test_a_launch_is_no_duration(tmp_path: Path) -> None:
    files = [dump(tmp_path, rank, [5.0] * 6, inside="") for rank in range(2)]
    assert looks_like_nccl_profiler(files[0].read_text())
    with pytest.raises(EvidenceError, match="none of 12 collectives has a duration"):
        read_nccl_profiler(files)


def test_communicators_that_number_other_processes_are_left_out(tmp_path: Path) -> None:
    files = [dump(tmp_path, rank, [300.0] * 6) for rank in range(2)]
    other = tmp_path / "other"
    other.mkdir()
    text = dump(other, 0, [9.0] * 6, comm=99).read_text().replace('"pid": 900', '"pid": 77')
    (other / "profile-node7-1.txt").write_text(text)
    records = read_nccl_profiler([*files, other / "profile-node7-1.txt"])
    assert len(records.rank) == 12
    assert any("other communicators" in note for note in records.notes)


def test_a_cut_dump_and_a_foreign_line_are_told(tmp_path: Path) -> None:
    files = [dump(tmp_path, rank, [300.0] * 6) for rank in range(2)]
    whole = files[0].read_text()
    files[0].write_text(whole[:-300])
    notes = read_nccl_profiler(files).notes
    assert any("cut off" in note or "did not end" in note for note in notes)
    files[0].write_text(whole.replace('"ph": "b"', '"ph": b', 1))
    with pytest.raises(EvidenceError, match=r":2: not an event"):
        read_nccl_profiler(files)


# The README of xpu_timer: one gauge for each rank, operation and level; microseconds.
COLL = (
    'XPU_TIMER_COLL_KERNEL_AVG_LATENCY{{algorithm="RING_LL",dtype="fp16",ip="NOT_SET",job_name="NOT_SET",'
    'level="3",local_rank="{rank}",operation="AllReduce",pod_name="worker-{pod}",rank="{rank}",small="0",'
    'transport="InterNode"}} {us}\n'
)
MATMUL = (
    'XPU_TIMER_MM_KERNEL_AVG_LATENCY{{dtype="bf16",ip="NOT_SET",job_name="NOT_SET",level="3",local_rank="{rank}",'
    'operation="Matmul",pod_name="worker-{pod}",rank="{rank}"}} {us}\n'
)


def scrape(slow: int | None, ranks: int = 8) -> str:
    text = "# TYPE XPU_TIMER_COLL_KERNEL_AVG_LATENCY gauge\n"
    for rank in range(ranks):
        text += COLL.format(rank=rank, pod=rank // 4, us=370 if rank == slow else 890 + rank % 3)
    text += "# TYPE XPU_TIMER_MM_KERNEL_AVG_LATENCY gauge\n"
    for rank in range(ranks):
        text += MATMUL.format(rank=rank, pod=rank // 4, us=1330 if rank == slow else 813 + rank % 3)
    return text


def test_a_slow_gpu_among_the_gauges_of_xpu_timer(tmp_path: Path) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text("".join(scrape(5) for _ in range(6)))
    (judged,) = localize_paths([path])
    assert {w for one in judged.localization.findings for w in one.workers} == {5}
    assert judged.localization.findings[0].nodes == ("worker-1",)
    path.write_text("".join(scrape(None).replace(" 370", " 892") for _ in range(6)))
    (well,) = localize_paths([path])
    assert well.localization.findings == []


def test_gauges_without_latencies_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text('XPU_TIMER_COMMON_HANG{ip="NOT_SET",rank="1"} 0\n')
    with pytest.raises(EvidenceError, match="no latency of a rank"):
        read_xpu_timer([path])


def timers(slow: int | None, stages: int = 2, ranks: int = 8) -> str:
    """`--timing-log-option all`; ranks of the last stage do not send forward."""
    rows = {"forward-compute": 120.0, "backward-compute": 240.0}
    text = " iteration       10/     100 | elapsed time per iteration (ms): 480.1 |\ntimes across ranks (ms):"
    for name, usual in rows.items():
        text += f"\n  {name}:"
        for rank in range(ranks):
            last = rank * stages // ranks == stages - 1
            factor = (1.3 if last else 1.0) * (1.5 if rank == slow else 1.0)
            text += f"\n     rank {rank:2d}: {usual * factor + rank % 3 / 10:.2f}"
    text += "\n  forward-send:"
    for rank in range(ranks // stages):
        text += f"\n     rank {rank:2d}: 1.20"
    return text + "\n"


@pytest.mark.parametrize("slow", [None, 2, 6])
def test_megatron_timers_of_all_ranks(tmp_path: Path, slow: int | None) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(timers(slow) for _ in range(5)))
    (judged,) = localize_paths([path])
    named = {w for one in judged.localization.findings for w in one.workers}
    assert named == (set() if slow is None else {slow})


def test_megatron_timers_that_name_no_rank_blame_nobody(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "(min, max) time across ranks (ms):\n"
        "    forward-backward ...............................: (4542.10, 4543.10)\n"
        "    forward-compute ................................: (120.10, 190.30)\n"
    )
    (judged,) = localize_paths([path])
    assert str(judged.localization.outcome) == "no_reference"
    assert judged.localization.findings == []
    assert any("1.58 times" in note and "timing-log-option all" in note for note in judged.localization.missing)  # fmt: skip
