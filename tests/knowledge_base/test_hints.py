"""What could make a run slow is no failure of a run whose steps are as quick as ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis, Outcome

Run = Callable[[str | dict[str, str]], Diagnosis]

WARNING = (
    "UserWarning: This DataLoader will create 24 worker processes in total. Our suggested max number of worker in "
    "current system is 8, which is smaller than what this DataLoader is going to create.\n"
)


def steps(slow_from: int = 1_000) -> str:
    return "".join(
        f"[rank0]: step {s} loss {3 - s / 100:.3f} step_time {(1.0 if s < slow_from else 1.8) + 0.01 * (s % 3):.2f}s\n"
        for s in range(1, 120)
    )


@pytest.mark.parametrize(
    "hint",
    [
        WARNING,
        "CPU affinity failed: [Errno 22] Invalid argument\n",
        "h9: scaling_governor: powersave\n",
        "WARN python gc took 3.2 s on rank 9\n",
    ],
)
def test_steady_steps_reject_a_hint(diagnose: Run, hint: str) -> None:
    found = diagnose(hint + steps())
    assert found.outcome is Outcome.NO_FAILURE
    assert [r.failure_type for r in found.ruled_out] == ["slow_host_cpu"]


def test_slow_steps_bear_a_hint_out(diagnose: Run) -> None:
    assert diagnose(WARNING + steps(slow_from=60)).failure_type == "slow_host_cpu"
    assert diagnose("WARN process affinity wrong: all ranks on core 0\n").failure_type == (
        "slow_host_cpu"
    )


def test_a_hint_is_not_why_one_process_was_killed(diagnose: Run) -> None:
    killed = "mpirun noticed that process rank 6 with PID 30221 on node cn-2 exited on signal 9 (Killed).\n"
    found = diagnose("[1,4]<stderr>:" + WARNING + killed)
    assert found.failure_type == "process_killed_unexplained"
    assert (found.first_fault.rank, found.first_fault.node) == (6, "cn-2")
