"""What `rerail localize` reads, and what it says of files that it cannot use."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from rerail.domain.process_group import group_kind
from rerail.errors import EvidenceError
from rerail.log_parsers.straggler_lines import straggler_notes
from rerail.tools.localize.findings import Localization, LocalizeOutcome
from rerail.tools.localize.gpu_metrics import judge_gpu_metrics, read_gpu_metrics
from rerail.tools.localize.judge import localize
from rerail.tools.localize.localize_paths import localize_paths
from rerail.tools.localize.records import assemble
from rerail.tools.localize.tables import read_times
from rerail.tools.profiles.collect import read_job


def kineto(rank: int, compute_us: float, wait_us: float, world: int = 4) -> dict[str, object]:
    """A GPU trace of three steps with one collective each, as the profiler writes it."""
    events: list[dict[str, object]] = []
    for step in range(3):
        start = step * 10_000.0
        names = [(f"ProfilerStep#{step}", "user_annotation", start, 9_000.0)]
        names += [("ampere_sgemm_128x64_tn", "kernel", start, compute_us)]
        names += [
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "kernel", start + compute_us, wait_us)
        ]
        for name, cat, ts, dur in names:
            args = {"Process Group Name": "0", "Process Group Description": "default_pg"}
            events.append({"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args})
    return {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
        "host_name": f"n{rank // 2}",
        "traceEvents": events,
    }


def write_traces(folder: Path, slow: int | None, world: int = 6) -> None:
    for rank in range(world):
        compute = 1000.0 + rank + (800.0 if rank == slow else 0.0)
        text = json.dumps(kineto(rank, compute, 2000.0 - compute, world))
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(text.encode()))


def test_kineto_names_the_rank_with_the_most_own_compute(tmp_path: Path) -> None:
    write_traces(tmp_path, slow=4)
    (judged,) = localize_paths([tmp_path])

    (finding,) = judged.localization.findings
    assert finding.workers == (4,)
    assert finding.nodes == ("n2",)
    assert finding.failure_type == "slow_gpu"
    assert judged.heatmap is not None
    assert judged.heatmap.ratio.shape == (6, 3)


def test_kineto_of_a_healthy_job_names_nobody(tmp_path: Path) -> None:
    write_traces(tmp_path, slow=None)
    (judged,) = localize_paths([tmp_path])
    assert judged.localization.outcome is LocalizeOutcome.HEALTHY


def test_a_pipeline_stage_that_is_longer_by_design_is_no_fault(tmp_path: Path) -> None:
    for rank in range(8):
        trace = kineto(rank, 1500.0 if rank >= 6 else 1000.0 + rank, 500.0, 8)
        if rank >= 6:
            events = trace["traceEvents"]
            assert isinstance(events, list)
            events[1]["name"] = "cross_entropy_forward_kernel"
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    (judged,) = localize_paths([tmp_path])
    assert judged.localization.outcome is LocalizeOutcome.HEALTHY


def test_kineto_says_which_ranks_are_missing_and_refuses_doubles(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(kineto(0, 10, 10)))
    assert "3 of 4 ranks are missing" in read_job([tmp_path / "a.json"]).notes[0]
    (tmp_path / "b.json").write_text(json.dumps(kineto(0, 10, 10)))
    with pytest.raises(EvidenceError, match="rank 0 was already read"):
        read_job([tmp_path / "a.json", tmp_path / "b.json"])
    (tmp_path / "c.json").write_text('{"traceEvents": [')
    with pytest.raises(EvidenceError, match="not a readable trace"):
        read_job([tmp_path / "c.json"])


def inspector_lines(rank: int, took_us: float, count: int = 20) -> str:
    rows = []
    for number in range(count):
        rows.append(
            json.dumps(
                {
                    "header": {"id": "0xc0ffee", "rank": rank, "n_ranks": 4, "nnodes": 2},
                    "metadata": {"dump_timestamp_us": number, "hostname": f"n{rank // 2}", "pid": rank},
                    "coll_perf": {
                        "coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": 1 << 20,
                        "coll_exec_time_us": took_us + (number + rank) % 3,
                        "coll_algobw_gbs": 1.0, "coll_busbw_gbs": 1.0,
                    },
                }
            )
        )  # fmt: skip
    return "\n".join(rows) + "\n"


def test_inspector_names_the_rank_that_others_wait_for(tmp_path: Path) -> None:
    for rank in range(4):
        text = inspector_lines(rank, 500.0 if rank == 2 else 4000.0)
        (tmp_path / f"n{rank // 2}-pid{rank}.log").write_text(text + '{"header": {"id"')
    (judged,) = localize_paths([tmp_path])

    assert judged.localization.findings[0].workers == (2,)
    assert any("last line is cut off" in note for note in judged.localization.missing)


def test_a_table_of_compute_times(tmp_path: Path) -> None:
    rows = ["rank,step,self_ms,stage,node"]
    for step in range(5):
        for rank in range(16):
            took = (100 if rank < 8 else 150) * (1.4 if rank == 11 else 1) + (rank * 7 + step) % 5
            rows.append(f"{rank},{step},{took},{rank // 8},n{rank // 4}")
    path = tmp_path / "times.csv"
    path.write_text("\n".join(rows) + "\n")
    (judged,) = localize_paths([path])

    (finding,) = judged.localization.findings
    assert finding.workers == (11,)
    assert finding.ratio == pytest.approx(1.4, abs=0.05)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rank,step,self_ms\n0,1,10\n1,1,fast\n", ":3: self_ms is 'fast'"),
        ("rank,step,self_ms\n0,1,-10\n", ":2: self_ms is -10"),
        ("rank,pg,seq,dur_us\nzero,a,1,5\n", ":2: rank is 'zero'"),
        ("rank,step,self_ms\n", "no rows"),
    ],
)
def test_bad_tables_name_the_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text(text)
    with pytest.raises(EvidenceError, match=said):
        localize_paths([path])


def test_process_group_names_give_their_kind() -> None:
    named = {
        "TENSOR_MODEL_PARALLEL_GROUP": "tp", "mesh_dp": "dp", "DATA_PARALLEL_GROUP_WITH_CP": "cp",
        "PIPELINE_MODEL_PARALLEL_GROUP": "pp", "EXPERT_MODEL_PARALLEL_GROUP": "ep",
        "default_pg": "world", "mesh_tp": "tp", "undefined": "other",
    }  # fmt: skip
    assert {name: group_kind(name) for name in named} == named


def test_counters_show_a_throttled_gpu_and_confirm_a_finding(tmp_path: Path) -> None:
    lines = ["# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz)."]
    for gpu in range(8):
        host = f'Hostname="n{gpu // 2}"'
        clock, reason, heat = (1200, 0x40, 91) if gpu == 4 else (1980, 0, 60)
        lines += [
            f'DCGM_FI_DEV_SM_CLOCK{{gpu="{gpu % 2}",{host}}} {clock}',
            f'DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{gpu="{gpu % 2}",{host}}} {reason}',
            f'DCGM_FI_DEV_GPU_TEMP{{gpu="{gpu % 2}",{host}}} {heat}',
            f'DCGM_FI_DEV_GPU_UTIL{{gpu="{gpu % 2}",{host}}} 100',
        ]
    (tmp_path / "dcgm.prom").write_text("\n".join(lines) + "\n")
    findings = judge_gpu_metrics(read_gpu_metrics(tmp_path / "dcgm.prom"))
    assert {one.kind for one in findings} == {"throttle", "slow_clock"}
    assert {one.nodes for one in findings} == {("n2",)}
    assert any("hardware thermal slowdown" in one.reason for one in findings)

    traces = tmp_path / "traces"
    traces.mkdir()
    write_traces(traces, slow=4)
    judged = localize_paths([traces, tmp_path / "dcgm.prom"])
    rank = next(f for one in judged for f in one.localization.findings if f.workers == (4,))
    assert "confirmed by counters" in rank.reason


def test_nvidia_smi_csv_shows_a_narrow_link(tmp_path: Path) -> None:
    head = "index, clocks.current.sm [MHz], pcie.link.width.current\n"
    rows = "".join(f"{gpu}, 1980 MHz, {8 if gpu == 3 else 16}\n" for gpu in range(8))
    (tmp_path / "smi.csv").write_text(head + rows)
    (finding,) = judge_gpu_metrics(read_gpu_metrics(tmp_path / "smi.csv"))
    assert finding.reason == "GPU 3: PCIe width x8, 16 elsewhere"


def test_idle_gpus_may_clock_down(tmp_path: Path) -> None:
    rows = "".join(f"{g}, {300 if g < 2 else 1980} MHz, {0 if g < 2 else 99} %\n" for g in range(8))
    (tmp_path / "smi.csv").write_text("index, clocks.sm [MHz], utilization.gpu [%]\n" + rows)
    assert judge_gpu_metrics(read_gpu_metrics(tmp_path / "smi.csv")) == []


def test_what_frameworks_print_of_stragglers() -> None:
    lines = [
        (1, "GPU relative performance:"),
        (2, " Worst performing 3/64 ranks:"),
        (3, "  Rank=17 Node=n05 Score=0.61"),
        (4, "  Rank=3 Node=n01 Score=0.98"),
        (
            5,
            "[2024-03-14 23:07:56] | MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: 5468.20ms/5 | "
            "MnEtpt/Rnk: 296.02TF/0 | MxEtpt/Rnk: 297.32TF/8",
        ),
        (6, "| MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: 3468.20ms/0 |"),
    ]
    notes = straggler_notes(lines)
    assert [(note.rank, note.line) for note in notes] == [(17, 3), (5, 5)]


def test_the_lowest_of_megatrons_list_is_slow_where_it_is_far_below_the_next() -> None:
    listed = "INFO:megatron.core.utils:^^^^ Bottom 4 Ranks with lowest  Etpt{}: {}/11, 401.94/3, 402.20/17, 402.49/9,"
    lines = enumerate([listed.format("(TF)", 241.88), listed.format(" (TF)", 226.01)])
    assert [note.rank for note in straggler_notes(lines)] == [11, 11]
    assert straggler_notes([(1, listed.format("(TF)", 399.10))]) == []
    assert straggler_notes([(1, listed.format("(TF)", 0.0))]) == []


def test_files_with_nothing_to_judge_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing here\n")
    with pytest.raises(EvidenceError, match="nothing to localise"):
        localize_paths([tmp_path / "notes.txt"])
    with pytest.raises(EvidenceError, match="does not exist"):
        localize_paths([tmp_path / "gone"])


def test_assembling_windows_without_steps() -> None:
    from rerail.tools.localize.records import Records

    records = Records("r")
    key = records.key("mesh_dp")
    for rank in range(4):
        for seq in range(50):
            records.add(rank, key, seq, -1, 0.01)
    job = assemble(records)
    assert job.groups[0].kind == "dp"
    assert job.groups[0].transfer_s.shape == (5, 1)
    assert job.groups[0].transfer_s.sum() == pytest.approx(0.5)


def test_one_collective_names_nobody_and_one_step_says_so(tmp_path: Path) -> None:
    def table(text: str) -> Localization:
        path = tmp_path / "few.csv"
        path.write_text(text)
        return localize(assemble(read_times(path)))

    def calls(count: int) -> Localization:
        rows = [
            f"{rank},0,{seq},{5 if rank == 3 else 2000 + 10 * rank}"
            for seq in range(count)
            for rank in range(8)
        ]
        return table("\n".join(["rank,pg,seq,dur_us", *rows]) + "\n")

    assert [one.workers for one in calls(6).findings] == [(3,)]
    few = calls(1)
    assert (few.outcome, few.findings) == (LocalizeOutcome.UNEXPLAINED, [])
    assert any("only 1 collective of" in one for one in few.missing)
    own = [f"{rank},0,{1500 if rank == 3 else 1000 + rank}" for rank in range(8)]
    once = table("\n".join(["rank,step,self_ms", *own]) + "\n")
    assert [one.workers for one in once.findings] == [(3,)]
    assert any("3 steps or more" in one for one in once.missing)
    mixed = [
        f"{rank},{step},{1.0 if rank == 3 else 1000}" for step in range(4) for rank in range(8)
    ]
    with pytest.raises(EvidenceError, match=r"few\.csv:5: .*rank 3 .*units were mixed"):
        table("\n".join(["rank,step,self_ms", *mixed]) + "\n")
