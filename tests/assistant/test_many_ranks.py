"""One rank of very many is missing: the verdict names it, whatever label, and its cost counts everybody."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.presentation.verdict import verdict_view
from rerail.domain.diagnosis import Diagnosis
from rerail.evals.bench.timeouts import LABELS, timeout_log


def diagnose(folder: Path, ranks: int, label: str = "torchrun", missing: int = 437) -> Diagnosis:
    path = folder / "train.log"
    path.write_text("".join(f"{line}\n" for line in timeout_log(ranks, missing, label=label)))
    return diagnose_paths([path]).diagnosis


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("ranks", [512, 6_000])
def test_the_missing_rank_is_named(ranks: int, label: str, tmp_path: Path) -> None:
    found = diagnose(tmp_path, ranks, label)
    assert found.suspects.ranks == [437]
    (timed_out,) = found.consequences
    assert timed_out.count == ranks - 1
    assert timed_out.ranks == [r for r in range(ranks) if r != 437]
    assert f"{ranks - 1} further lines" in found.summary
    assert found.progress["last_step"] == 20


def test_cost_is_that_of_all_ranks_while_they_waited(tmp_path: Path) -> None:
    cost = diagnose(tmp_path, 4_096).cost
    assert cost.gpus == 4_096
    assert cost.idle_gpu_hours == pytest.approx(4_096 * 600 / 3600, abs=0.1)
    assert cost.detection_s == pytest.approx(600, abs=1)
    assert [told.partition(":")[0] for told in cost.covers] == ["detection", "idle"]


def test_cost_is_left_out_where_nothing_tells_how_many_gpus(
    job: Callable[[str], Path],
) -> None:
    text = "2026-03-01 02:00:00 starting\n2026-03-01 03:00:00 RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    cost = diagnose_paths([job(text)]).diagnosis.cost
    assert cost.idle_gpu_hours is None and cost.gpus is None and cost.covers == []
    assert cost.left_out == [
        "idle: left out, for no line tells how many GPUs the job had",
        "lost: left out, for no line tells a step",
    ]


SAVES = {
    "successfully saved checkpoint at iteration 40 to /ckpt": ("20 steps", "the last checkpoint"),
    "Saving model checkpoint to /ckpt/checkpoint-50": ("10 steps", "the last checkpoint"),
    "saving checkpoint at iteration 60 to /ckpt in torch_dist format": None,
    "loading checkpoint from /ckpt at iteration 10": (
        "50 steps",
        "the checkpoint of step 10, from which it was resumed",
    ),
}


@pytest.mark.parametrize("says", SAVES)
def test_cost_is_the_same_in_one_file_and_in_one_for_each_rank(says: str, tmp_path: Path) -> None:
    """The rank that fails prints no time: what ended it came no earlier than the last step."""
    rows = [f"[rank{r}]: 2026-03-04 01:00:00 [Rank {r}] of world size 8" for r in range(8)]
    for step in range(10, 70, 10):
        stamp = f"[rank0]: 2026-03-04 02:{step - 10:02d}:00"
        rows += [f"{stamp} iteration {step} | lm loss: 2.0E+00 |"]
        rows += [f"{stamp} {says}"] if step in map(int, re.findall(r"\d+", says)) else []
    rows += [
        "[rank5]: Traceback (most recent call last):",
        "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "[rank0]: 2026-03-04 03:20:00 closing",
    ]
    told = []
    for name, of in (("one", "job.log"), ("each", "rank{}.log")):
        folder = tmp_path / name
        folder.mkdir()
        for row in rows:
            with (folder / of.format(row[5])).open("a") as out:
                out.write(row + "\n")
        told.append(diagnose_paths([folder]).diagnosis.cost)
    assert told[0] == told[1]
    assert told[0].idle_gpu_hours == pytest.approx(8 * 0.5)
    lost = [one for one in told[0].covers if one.startswith("lost")]
    expected = SAVES[says]
    assert lost == ([f"lost: {expected[0]} since {expected[1]}"] if expected else [])
    unsaved = "lost: left out, for no line tells of a saved checkpoint"
    assert (unsaved in told[0].left_out) == (expected is None)


SAVED_LATER = {
    "Checkpoint saved at step 40": "20 steps since the last checkpoint",
    "checkpoint written to /fs/run7/global_step40": "20 steps since the last checkpoint",
    "checkpoint written to /fs/run7/global_step_40": "20 steps since the last checkpoint",
    "wrote checkpoint ckpt-40.pt": "20 steps since the last checkpoint",
    "ckpt done: step=40": "20 steps since the last checkpoint",
    "model saved -> out/model_40.pt": "20 steps since the last checkpoint",
    "Stored state at 40 steps to /fs/run7": "20 steps since the last checkpoint",
    "wrote checkpoint ckpt-1.pt": None,
    "persisted ckpt no. 12 in 3.1 s": None,
    "Failed to save checkpoint at step 40": "50 steps since the checkpoint of step 10, from which it was resumed",
}


@pytest.mark.parametrize("says", SAVED_LATER)
@pytest.mark.parametrize("resumed", [True, False])
def test_lost_steps_count_from_a_later_checkpoint_or_are_left_out(
    says: str, resumed: bool, job: Callable[[str], Path]
) -> None:
    rows = ["loading checkpoint from /ckpt at iteration 10"] if resumed else []
    for step in range(11, 61):
        rows += [f"step {step} loss {4 - step / 100:.4f}"] + ([says] if step == 40 else [])
    rows += ["[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."]
    cost = diagnose_paths([job("\n".join(rows) + "\n")]).diagnosis.cost
    told = [one for one in (*cost.covers, *cost.left_out) if one.startswith("lost")]
    expected = SAVED_LATER[says]
    if expected is None:
        which = "later" if resumed else "saved"
        assert told == [f"lost: left out, for a line may tell of a {which} checkpoint"]
    elif resumed or "last" in expected:
        assert told == [f"lost: {expected}"]
    else:
        assert told == ["lost: left out, for no line tells of a saved checkpoint"]


def test_cost_is_left_out_where_the_times_contradict_each_other(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    steps = [
        f"[rank{rank}]: [2026-03-04 0{hour}:00:00] iteration {hour * 10} | lm loss: 2.0E+00 |"
        for hour in (1, 2, 9)
        for rank in (0, 1)
    ]
    fault = "[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered"
    ends = ["[rank0]: [2026-03-04 03:00:00] closing", "[rank1]: [2026-03-04 03:00:01] closing"]
    for kept, idle in ((steps[:4], True), (steps, False)):
        path.write_text("\n".join(["world_size: 2", *kept, fault, *ends]) + "\n")
        diagnosis = diagnose_paths([path]).diagnosis
        cost = diagnosis.cost
        assert (cost.idle_gpu_hours is not None) == idle
        early = "idle: left out, for the log ends 6.0 h before a time in it"
        assert (early in cost.left_out) == (not idle)
        assert verdict_view(diagnosis).covers == (*cost.covers, *cost.left_out)


def test_detection_is_left_out_where_the_fault_stands_among_far_older_lines(tmp_path: Path) -> None:
    """Its own line has no time; the wait for it began hours behind all that stands around it."""
    path = tmp_path / "train.log"
    waits = (
        "[rank{rank}]:[E304 11:42:11.8 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation"
        " timeout: WorkNCCL(SeqNum=91, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012"
        " milliseconds before timing out."
    )
    fault = "[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered"
    for hour, kept in ((8, None), (11, 600.0)):
        step = "[rank{rank}]: [2026-03-04 {hour:02d}:3{n}:00] iteration {n} | lm loss: 2.0E+00 |"
        rows = [step.format(rank=rank, hour=hour, n=n) for n in (0, 1) for rank in range(4)]
        ends = [waits.format(rank=rank) for rank in (0, 2, 3)]
        path.write_text("\n".join(["world_size: 4", *rows[:6], fault, *rows[6:], *ends]) + "\n")
        cost = diagnose_paths([path]).diagnosis.cost
        assert cost.detection_s == (kept and pytest.approx(kept, abs=1))
        said = (
            [] if kept else ["detection: left out, for the first fault stands among lines that are"]
        )
        found = [one.partition(" 3.0 h older")[0] for one in cost.left_out]
        assert [one for one in found if one.startswith("detection")] == said
        assert (cost.idle_gpu_hours is not None) == bool(kept)


def test_time_of_a_line_without_one_is_not_that_of_the_beginning(tmp_path: Path) -> None:
    """Of a long log only some lines are kept: the cost counted from its first ones."""
    path = tmp_path / "train.log"
    with path.open("w") as out:
        for row in range(80_000):
            out.write(
                f"2026-03-01 {1 + row // 10_000:02d}:00:00 [rank{row % 4}]: routine line of a loader\n"
            )
        for row in range(5_000):
            out.write(f"plain chatter without a time {row}\n")
        out.write("RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
        out.write("2026-03-01 09:00:00 [rank0]: bye\n")
    cost = diagnose_paths([path]).diagnosis.cost
    assert cost.idle_gpu_hours is None


def behind_hosts(ranks: int, missing: int) -> str:
    """Steps and time-outs behind `gn-3.cluster.local:5:`, which tells host and local rank alone."""
    front = [f"gn-{rank // 8}.cluster.local:{rank % 8}: " for rank in range(ranks)]
    rows = [f"{one}step {step} loss 2.{step:02d}" for step in range(1, 30) for one in front]
    rows += [
        f"{front[rank]}[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=912, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 "
        "milliseconds before timing out."
        for rank in range(ranks)
        if rank != missing
    ]
    return "".join(f"{row}\n" for row in rows)


@pytest.mark.parametrize("ranks", [16, 64, 512])
def test_the_numbers_that_processes_call_themselves_are_ranks_where_hosts_and_local_ranks_bear_it_out(
    ranks: int, job: Callable[[str], Path]
) -> None:
    found = diagnose_paths([job(behind_hosts(ranks, missing=11))]).diagnosis
    assert (found.suspects.ranks, found.suspects.nodes) == ([11], ["gn-1.cluster.local"])


def test_numbers_within_the_hosts_are_no_ranks(job: Callable[[str], Path]) -> None:
    text = re.sub(r"\[Rank (\d+)\]", lambda m: f"[Rank {int(m[1]) % 8}]", behind_hosts(16, 11))
    assert diagnose_paths([job(text)]).diagnosis.suspects.ranks == []
