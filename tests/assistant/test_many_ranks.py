"""One rank of very many is missing: the verdict names it, whatever label, and its cost counts everybody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rerail.assistant.pipeline import diagnose_paths
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
        cost = diagnose_paths([path]).diagnosis.cost
        assert (cost.idle_gpu_hours is not None) == idle


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
