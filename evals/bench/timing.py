"""CPU seconds of functions and of programs, best of several interleaved runs.

CPU time, because a shared machine's wall clock measures the neighbours; the best of N, because
noise only ever adds; interleaved, because the machine itself changes speed over minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU (user and system) and wall seconds, and peak resident memory in MB of a program."""

    cpu_s: float
    wall_s: float
    peak_mb: float = 0.0


def cost_of_call(function: Callable[[], object]) -> Cost:
    """Return what one call in this process costs."""
    cpu, wall = time.process_time(), time.perf_counter()
    function()
    return Cost(time.process_time() - cpu, time.perf_counter() - wall)


def cost_of_program(
    arguments: Sequence[str], *, env: dict[str, str] | None = None, expect: Sequence[int] = (0,)
) -> Cost:
    """Run a program to its end, output thrown away, and return what it and its children cost.

    Raises:
        RuntimeError: when its exit code is not among `expect`.
    """
    wall = time.perf_counter()
    with subprocess.Popen(
        list(arguments),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C", **(env or {})},
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in expect:
        raise RuntimeError(f"{arguments[0]} ended with {process.returncode}, not with {expect}")
    scale = 1 / 1024 if sys.platform != "darwin" else 1 / 1024**2
    return Cost(
        usage.ru_utime + usage.ru_stime, time.perf_counter() - wall, usage.ru_maxrss * scale
    )


def best_interleaved(runs: int, *candidates: Callable[[], Cost]) -> list[Cost]:
    """Run all candidates in turn, `runs` times, and return the cheapest run of each by CPU time."""
    rounds = [[candidate() for candidate in candidates] for _ in range(runs)]
    return [min(column, key=lambda cost: cost.cpu_s) for column in zip(*rounds, strict=True)]
