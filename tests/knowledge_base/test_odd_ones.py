"""One row, one rank or one stretch of steps that differs from all others is what is slow; a lone row tells nothing."""

from __future__ import annotations

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Diagnosis, Outcome


def said(text: str) -> Diagnosis:
    return diagnose_texts({"job.log": text}).diagnosis


def host(found: Diagnosis) -> str | None:
    return found.first_fault.node if found.first_fault is not None else None


def clocks(*mhz: int) -> str:
    rows = "".join(f"{gpu}, {one} MHz, 621.15 W, 60\n" for gpu, one in enumerate(mhz))
    return (
        "+ torchrun --nnodes 1 --nproc_per_node 8 train.py\nops@gn-7:~$ nvidia-smi --query-gpu=index,clocks.sm --format=csv\n"
        + rows
    )


def test_the_one_gpu_with_a_clock_far_below_the_others_is_slow() -> None:
    found = said(clocks(1755, 1770, 1740, 345, 1755, 1755, 1760, 1750))
    assert found.failure_type == "slow_gpu"
    assert found.suspects.ranks == [3] and found.suspects.nodes == ["gn-7"]


def test_clocks_that_all_differ_or_stand_alone_tell_nothing() -> None:
    assert said(clocks(1755, 900, 1300, 345)).failure_type != "slow_gpu"
    assert said(clocks(1755, 345)).failure_type != "slow_gpu"


def parts(ranks: int, slow: int | None, *, rounds: int = 2) -> str:
    return "".join(
        f"2026-07-30 11:02:{10 + one:02d} | INFO | host=gn-{rank // 4} rank={rank} forward (t): {1.914 if rank == slow else 0.52}\n"
        for one in range(rounds)
        for rank in range(ranks)
    )


def test_the_one_rank_whose_own_part_takes_far_longer_is_slow() -> None:
    found = said(parts(8, 5))
    assert found.failure_type == "fail_slow_unexplained"
    assert found.suspects.ranks == [5] and host(found) == "gn-1"


def test_one_slow_reading_of_few_ranks_is_no_slow_rank() -> None:
    assert said(parts(4, 2, rounds=1)).outcome is not Outcome.FAILURE
    assert said(parts(8, None)).outcome is not Outcome.FAILURE


def steps(*ms: float) -> str:
    return "".join(
        f" iteration {8100 + 300 * at:8d}/  120000 | consumed samples: 8294400 | elapsed time per iteration (ms): {one} |"
        " lm loss: 2.411207E+00 |\n"
        for at, one in enumerate(ms)
    )


def test_a_few_steps_show_a_slow_phase_where_all_behind_the_change_are_slower() -> None:
    found = said(steps(5014.2, 5021.8, 5033.0, 9377.5, 9402.1, 6240.9))
    assert found.failure_type == "fail_slow_unexplained"
    assert found.first_fault is not None and found.first_fault.line == 4


def test_a_pause_or_a_slow_start_is_no_slow_phase() -> None:
    assert (
        said(steps(5014.2, 5021.8, 5033.0, 9377.5, 5020.0, 5030.0)).outcome is not Outcome.FAILURE
    )
    assert (
        said(steps(9377.5, 5021.8, 5033.0, 5020.0, 5020.0, 5030.0)).outcome is not Outcome.FAILURE
    )


def test_an_idle_gpu_beside_busy_ones_is_that_of_the_process_that_raised() -> None:
    busy = "".join(
        f"{gpu}, {0 if gpu == 6 else 100} %, {3 if gpu == 6 else 9870} MiB\n" for gpu in range(8)
    )
    raised = (
        'Traceback (most recent call last):\n  File "main.py", line 248, in <module>\n    main(args)\n'
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/coco/1.jpg'\n"
    )
    found = said(
        raised + "$ nvidia-smi --query-gpu=index,utilization.gpu,memory.used --format=csv\n" + busy
    )
    assert found.failure_type == "file_not_found" and found.suspects.ranks == [6]
