"""Faults between the ranks: hangs, collectives that do not match, ranks that are late."""
# mypy: allow-untyped-calls

from __future__ import annotations

import fcntl
import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from rerail.evals.faultlab.faults import Hooks, State


class LockHeld(Hooks):
    """One rank waits for a file lock that another process holds."""

    def before_step(self, state: State, model: Any) -> None:
        """Take the lock of the shared index."""
        if self.due(state):
            wait_for_lock(state.root / "index.lock")


class LockHeldBeforeInit(Hooks):
    """One rank waits for the lock before it joins the group."""

    def before_init(self, state: State) -> None:
        """Take the lock of the shared index."""
        if state.rank == self.rank:
            wait_for_lock(state.root / "index.lock")


class MonitoredBarrier(LockHeld):
    """The others meet at a monitored barrier that the hanging rank does not reach."""

    def before_step(self, state: State, model: Any) -> None:
        """Synchronise before the evaluation."""
        super().before_step(state, model)
        if state.step == self.at:
            import torch.distributed as dist

            dist.monitored_barrier(timeout=timedelta(seconds=6), wait_all_ranks=True)


class ExtraReduce(Hooks):
    """One rank reduces a statistic that the others do not reduce."""

    rank = 3

    def before_step(self, state: State, model: Any) -> None:
        """Average the number of skipped samples."""
        if self.due(state):
            import torch
            import torch.distributed as dist

            skipped = torch.ones(1)
            dist.all_reduce(skipped)
            state.log.info("skipped %d", int(skipped))


class WaitForPeer(Hooks):
    """One rank waits for a message that nobody sends while the others reduce gradients."""

    rank = 1

    def before_step(self, state: State, model: Any) -> None:
        """Fetch the curriculum from rank 0."""
        if self.due(state):
            import torch
            import torch.distributed as dist

            stage = torch.zeros(1)
            dist.recv(stage, src=0)
            state.log.info("curriculum stage %d", int(stage))


class LongEvaluation(Hooks):
    """Rank 0 evaluates for longer than the others are ready to wait."""

    rank = 0

    def before_step(self, state: State, model: Any) -> None:
        """Evaluate on the validation set."""
        if self.due(state):
            import torch

            state.log.info("evaluating on 4000 validation batches")
            with torch.no_grad():
                ended = time.monotonic() + 25
                batch = 0
                while time.monotonic() < ended:
                    model.module(torch.randint(0, 128, (64, 32)))
                    batch += 1
                    if batch % 100 == 0:
                        state.log.info("evaluated %d of 4000 validation batches", batch)


class WorkerKilled(Hooks):
    """A data loader worker gets SIGKILL."""

    rank = 1

    def before_step(self, state: State, model: Any) -> None:
        """Kill the worker from outside the loader."""
        if self.due(state):
            os.kill(state.workers[0], signal.SIGKILL)


class WorkerStalled(Hooks):
    """A data loader worker waits for its storage longer than the loader waits for it."""

    rank = 3

    def on_sample(self, rank: int, index: int) -> None:
        """Read the blob of the sample."""
        if rank == self.rank and index == 8 * self.at:
            time.sleep(60)


class CpuQuota(Hooks):
    """One rank loses most of its CPU from some step on (a real CFS quota)."""

    at = 100

    def before_step(self, state: State, model: Any) -> None:
        """Move this process into the small group."""
        if self.due(state):
            Path(os.environ["JOB_CPU_CGROUP"], "cgroup.procs").write_text(str(os.getpid()))


def wait_for_lock(path: Path) -> None:
    """Block on an exclusive lock that a child process took first."""
    ready, held = os.pipe()
    if os.fork() == 0:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.write(held, b".")
            time.sleep(120)
        os._exit(0)
    os.read(ready, 1)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


HOOKS: dict[str, type[Hooks]] = {
    "lock_held": LockHeld,
    "lock_held_before_init": LockHeldBeforeInit,
    "monitored_barrier": MonitoredBarrier,
    "extra_reduce": ExtraReduce,
    "wait_for_peer": WaitForPeer,
    "long_evaluation": LongEvaluation,
    "worker_killed": WorkerKilled,
    "worker_stalled": WorkerStalled,
    "cpu_quota": CpuQuota,
}
