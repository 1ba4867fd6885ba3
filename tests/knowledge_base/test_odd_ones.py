"""One row, one rank or one stretch of steps that differs from all others is what is slow; a lone row tells nothing."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Diagnosis, Outcome


def said(text: str) -> Diagnosis:
    return diagnose_texts({"job.log": text}).diagnosis


def host(found: Diagnosis) -> str | None:
    return found.first_fault.node if found.first_fault is not None else None


START = "+ torchrun --nnodes 1 --nproc_per_node 4 train.py\n"


def clocks(*mhz: int, busy: str = "100%") -> str:
    rows = "".join(
        f"{gpu}       {gpu + 2}     0x74a1,   28851  64.0C      318.0W    NPS1, SPX, 0        {one}Mhz  900Mhz   0%"
        f"   auto  750.0W  88%    {busy if one < 200 else '100%'}\n"
        for gpu, one in enumerate(mhz)
    )
    return f"{START}ops@mi-7:~$ rocm-smi\n{rows}"


def test_the_one_busy_gpu_with_a_clock_far_below_the_others_is_slow() -> None:
    found = said(clocks(2103, 2102, 2104, 64))
    assert found.failure_type == "slow_gpu"
    assert found.suspects.ranks == [3] and found.suspects.nodes == ["mi-7"]


def test_clocks_that_differ_stand_alone_or_are_of_an_idle_gpu_tell_nothing() -> None:
    assert said(clocks(2103, 900, 1300, 64)).failure_type != "slow_gpu"
    assert said(clocks(2103, 64)).failure_type != "slow_gpu"
    assert said(clocks(2103, 2102, 2104, 64, busy="0%")).failure_type != "slow_gpu"


STEPS = "".join(f"step {10 * one} loss 2.4{one} step_time 0.80{one % 3} s\n" for one in range(1, 9))


@pytest.mark.parametrize(
    "snapshot",
    [
        clocks(2103, 2102, 2104, 64),
        "Detected Stragglers: [3]\n",
        "WARNING:megatron.training.gpu_sniff_test:    OUTLIER rank 11 (gn-07): 431.02 (-32.8%)\n",
        '$ ibqueryerrors\nErrors for "gn-07 HCA-3"\n   GUID 0xb8 port 1: [SymbolErrorCounter == 65535]\n',
        3 * "pid 4180's current affinity list: 0\n",
        "ops@gn-7:~$ ps -eo pid,stat,wchan,cmd\n   1533 D    rpc_wait_bit_killable python train.py\n",
    ],
    ids=["clock", "straggler", "sniff test", "port errors", "affinity", "sleeping"],
)
def test_what_could_make_a_run_slow_is_no_fault_of_one_that_is_not(snapshot: str) -> None:
    assert said(STEPS + snapshot).outcome is not Outcome.FAILURE
    assert said(snapshot + STEPS).outcome is not Outcome.FAILURE


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


@pytest.mark.parametrize(
    "text",
    [
        parts(8, 5, rounds=1),
        parts(8, None),
        parts(8, 0),
        parts(8, 5) + "Training finished.\n",
        "".join(
            f"[rank{r}] epoch {n} data {5000 if r == 3 else 1200} loss 0.4\n"
            for n in (0, 1)
            for r in range(8)
        ),
        "".join(
            f"[rank{r}] step {n} data loss: {5.28 if r == 3 else 2.1}\n"
            for n in (0, 1)
            for r in range(8)
        ),
    ],
    ids=["one round", "none", "the first rank", "finished", "counts", "losses"],
)
def test_no_rank_is_slow_by_one_reading_by_its_own_duties_or_by_what_is_no_time(text: str) -> None:
    assert said(text).outcome is not Outcome.FAILURE


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


def test_larger_batches_or_the_end_of_a_run_are_no_slow_phase() -> None:
    grows = "".join(
        f" iteration {n:8d}/ 500 | elapsed time per iteration (ms): {1200.1 if n < 4 else 2390.4} | global batch size: {64 if n < 4 else 128} |"
        " lm loss: 2.411207E+00 |\n"
        for n in range(1, 8)
    )
    assert said(grows).outcome is not Outcome.FAILURE
    ended = (
        steps(5014.2, 5021.8, 5033.0, 9377.5, 9402.1, 9240.9)
        + "[after training is done] datetime: 2026-03-01\n"
    )
    assert said(ended).outcome is not Outcome.FAILURE


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
