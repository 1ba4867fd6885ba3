"""The two lines for a training loop: a profiled window on all ranks, kept as one summary per rank.

    profiler = WindowProfiler("profiles/")
    for batch in loader:
        ...
        profiler.step()

Rank 0 writes the iteration at which all ranks begin into the folder, which they share; so no clocks
need to agree. Outside the window a step costs two readings of the clock. The trace itself is written
to local temporary storage, summarised by a process of low priority, and removed.
"""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from rerail.errors import UsageError
from rerail.tools.profiles.summary import REQUEST
from rerail.tools.profiling.trigger import SlowTrigger

_LOOK_EVERY = 10
_LEAD = 2 * _LOOK_EVERY
_WAIT_S = 120.0


class WindowProfiler:
    """Profiles `steps` iterations when the job turns slow, when asked to, or at iteration `first`.

    `every` repeats the window after so many iterations. `role` names the stage, expert or node type
    of this rank, `job` the run. `stacks` records Python frames, so that a slow function has a name.

    Raises:
        UsageError: torch is not installed, or `steps` is below one.
    """

    def __init__(
        self, folder: str | Path, *, steps: int = 6, first: int | None = None, every: int = 0,
        role: str = "", job: str = "", stacks: bool = True,
    ) -> None:  # fmt: skip
        if steps < 1:
            raise UsageError(f"a window of {steps} steps", hint="steps=6")
        try:
            import torch
        except ImportError:
            raise UsageError(
                "profiling needs PyTorch, which is not installed", hint="pip install torch"
            ) from None
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.rank, self.world = _place(torch)
        self.iteration = 0
        self.window_cost_s = self.outside_s = self.loop_s = 0.0
        self._steps, self._every, self._role, self._job = steps, every, role, job
        self._stacks = stacks
        self._begin = first
        self._trigger = SlowTrigger()
        self._asked = False
        self._torch = torch
        self._profiler: Any = None
        self._annotation: Any = None
        self._pause: Any = None
        self._cost: dict[str, float] = {}
        self._waits: list[float] = []
        self._jobs: list[subprocess.Popen[bytes]] = []
        self._at = time.perf_counter()

    def step(self) -> None:
        """Say that an iteration has ended."""
        now = time.perf_counter()
        self.iteration += 1
        if self._profiler is not None:
            self._inside()
            return
        took = now - self._at
        slow = self._trigger.iteration(took)
        if slow and self.rank == 0 and self._begin is None and not self._asked:
            # Once: who reads later must not read another iteration.
            self._asked = True
            self.request(self.iteration + _LEAD)
        if self.iteration % _LOOK_EVERY == 0 and self._begin is None:
            self._begin = _requested(self.folder, self.iteration)
        if self._begin is not None and self.iteration >= self._begin:
            self._start()
            return
        self._at = time.perf_counter()
        self.loop_s += took
        self.outside_s += self._at - now

    def request(self, iteration: int) -> None:
        """Ask all ranks to profile from this iteration on."""
        part = self.folder / f"{REQUEST}.part"
        part.write_text(json.dumps({"first": iteration}))
        part.replace(self.folder / REQUEST)

    def stalled(self, since_s: float) -> bool:
        """Tell whether `since_s` seconds without a sign of life are five average iterations or more."""
        return self._profiler is None and self._trigger.stalled(since_s)

    @property
    def outside_share(self) -> float:
        """Return the share of the loop's time that this object took outside the window."""
        return self.outside_s / self.loop_s if self.loop_s else 0.0

    def close(self) -> None:
        """End a window that is open and wait, two minutes at most, for the summaries."""
        if self._profiler is not None:
            self._stop()
        for job in self._jobs:
            with suppress(subprocess.TimeoutExpired):
                job.wait(_WAIT_S)
        self._jobs.clear()

    def _start(self) -> None:
        begin = time.perf_counter()
        torch = self._torch
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(activities=activities, with_stack=self._stacks)
        self._profiler.start()
        gc.callbacks.append(self._collected)
        self._first = self.iteration
        self._waits = [_waited_s()]
        self._annotate()
        self._cost = {"start_s": time.perf_counter() - begin}

    def _inside(self) -> None:
        self._annotation.__exit__(None, None, None)
        self._annotation = None
        self._waits.append(_waited_s())
        if self.iteration - self._first >= self._steps:
            self._stop()
        else:
            self._annotate()

    def _annotate(self) -> None:
        self._annotation = self._torch.profiler.record_function(f"ProfilerStep#{self.iteration}")
        self._annotation.__enter__()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        """Make garbage collections visible in the trace."""
        if phase == "start":
            name = f"gc.collect generation {info['generation']}"
            self._pause = self._torch.profiler.record_function(name)
            self._pause.__enter__()
        elif self._pause is not None:
            self._pause.__exit__(None, None, None)
            self._pause = None

    def _stop(self) -> None:
        begin = time.perf_counter()
        if self._annotation is not None:
            self._annotation.__exit__(None, None, None)
            self._annotation = None
        gc.callbacks.remove(self._collected)
        self._profiler.stop()
        stopped = time.perf_counter()
        handle, name = tempfile.mkstemp(prefix=f"rerail-rank{self.rank}-", suffix=".json")
        os.close(handle)
        self._profiler.export_chrome_trace(name)
        self._profiler = None
        end = time.perf_counter()
        self._cost |= {"stop_s": stopped - begin, "export_s": end - stopped}
        self._cost["outside_share"] = self.outside_share
        self.window_cost_s += self._cost["start_s"] + end - begin
        self._summarise(name)
        self._begin = self.iteration + self._every if self._every else None
        if self.rank == 0:
            (self.folder / REQUEST).unlink(missing_ok=True)
        # What is slow is known now; from here on it is slower than this that counts.
        self._trigger, self._asked = SlowTrigger(), False
        self._at = time.perf_counter()

    def _summarise(self, trace: str) -> None:
        request = {
            "trace": trace, "folder": str(self.folder), "rank": self.rank, "world": self.world,
            "role": self._role, "job": self._job, "cost": self._cost, "cpu_wait_s": self._per_step(),
        }  # fmt: skip
        # Another process: summarising in this one would hold the interpreter's lock.
        command = [
            sys.executable,
            "-m",
            "rerail.tools.profiling.summarise_trace",
            json.dumps(request),
        ]
        self._jobs = [job for job in self._jobs if job.poll() is None]
        self._jobs.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))

    def _per_step(self) -> list[float]:
        """Return the seconds of each step in which this thread had no core, [] where Linux does not say."""
        waits = [after - before for before, after in pairwise(self._waits)]
        return waits if all(wait >= 0 for wait in waits) else []


def _waited_s() -> float:
    """Return how long this thread has been ready without a core, NaN where Linux does not count it."""
    try:
        text = Path("/proc/thread-self/schedstat").read_text()
        return int(text.split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return math.nan


def _place(torch: Any) -> tuple[int, int]:
    """Return rank and world size of this process."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank()), int(torch.distributed.get_world_size())
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _requested(folder: Path, now: int) -> int | None:
    """Return the iteration that rank 0 asked for, if it is still to come."""
    try:
        first = int(json.loads((folder / REQUEST).read_text())["first"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return first if first >= now else None
