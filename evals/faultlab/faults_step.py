"""Faults of one training step: signals, wrong tensors, exceptions, exits, restarts."""
# mypy: allow-untyped-calls

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import urllib.request
from pathlib import Path
from typing import Any

from rerail.evals.faultlab.faults import Hooks, State


class Throughput(Hooks):
    """A metric divides by zero on one rank."""

    window = 0

    def after_step(self, state: State, loss: float) -> None:
        """Report tokens per second."""
        if self.due(state):
            tokens_per_second = state.step * 8 * 32 / self.window
            state.log.info("tokens_per_second %.1f", tokens_per_second)


class ThroughputAlways(Throughput):
    """The same error after every restart, at the same step."""

    rank = 1
    at = 25


class Killed(Hooks):
    """The process gets SIGKILL from outside."""

    rank = 1

    def before_step(self, state: State, model: Any) -> None:
        """Die without a word."""
        if self.due(state):
            os.kill(os.getpid(), signal.SIGKILL)


class KilledOnce(Killed):
    """The process gets SIGKILL on the first attempt only."""

    rank = 2

    def due(self, state: State) -> bool:
        """Return whether this is the step of the first attempt."""
        return state.attempt == 0 and super().due(state)


class KilledInSave(Hooks):
    """The rank that writes the checkpoint gets SIGKILL when the save begins."""

    rank = 0
    at = 40

    def after_step(self, state: State, loss: float) -> None:
        """Announce the checkpoint as trainers do."""
        if self.due(state):
            state.log.info("saving checkpoint step_%06d", state.step)
            os.kill(os.getpid(), signal.SIGKILL)


class NullWrite(Hooks):
    """Native code writes to address zero."""

    rank = 3

    def before_step(self, state: State, model: Any) -> None:
        """Clear a buffer that was never allocated."""
        if self.due(state):
            ctypes.memset(0, 0, 64)


class DoubleFree(Hooks):
    """Native code frees a buffer twice; libc aborts the process."""

    rank = 1

    def before_step(self, state: State, model: Any) -> None:
        """Give the staging buffer back."""
        if self.due(state):
            release_twice()


class AbortAtExit(Hooks):
    """Native code aborts one rank after training is complete."""

    rank = 3

    def on_exit(self, state: State) -> None:
        """Give the staging buffer back."""
        if state.rank == self.rank:
            release_twice()


class SharedCache(Hooks):
    """A cache file in /dev/shm grows over the size of the file system: SIGBUS on write."""

    def before_step(self, state: State, model: Any) -> None:
        """Write the token cache of this rank."""
        if self.due(state):
            size = 64 << 20
            path = Path("/dev/shm") / f"token_cache_rank{state.rank}.bin"  # noqa: S108
            state.log.info("writing token cache %s (%d MB)", path, size >> 20)
            with path.open("w+b") as file:
                file.truncate(size)
                cache = mmap.mmap(file.fileno(), size)
                for offset in range(0, size, mmap.PAGESIZE):
                    cache[offset] = 1


class WideHead(Hooks):
    """The output layer of one rank has the wrong width."""

    rank = 1

    def before_step(self, state: State, model: Any) -> None:
        """Swap the head for the next curriculum stage."""
        if self.due(state):
            from torch import nn

            model.module[2] = nn.Linear(48, 128)


class DoubleHead(Hooks):
    """The output layer of one rank has the wrong type."""

    rank = 3

    def before_step(self, state: State, model: Any) -> None:
        """Raise the precision of the head."""
        if self.due(state):
            model.module[2].double()


class UnusedLayer(Hooks):
    """A layer without a place in the forward pass: DDP waits for its gradient."""

    def on_model(self, state: State, model: Any) -> None:
        """Add an auxiliary head that the loss does not use."""
        from torch import nn

        model[1].auxiliary = nn.Linear(8, 8)


class ExitCode(Hooks):
    """One rank exits with a code of its own and no trace."""

    rank = 1

    def before_step(self, state: State, model: Any) -> None:
        """Leave at once."""
        if self.due(state):
            sys.stdout.flush()
            os._exit(42)


class EarlyStop(Hooks):
    """One rank alone decides to stop, and leaves with exit code 0."""

    rank = 1

    def before_step(self, state: State, model: Any) -> None:
        """Stop when the loss no longer falls."""
        if self.due(state):
            state.stop = True


class MetricsRetry(Hooks):
    """A caught error with a full traceback, in a run that is well."""

    def before_step(self, state: State, model: Any) -> None:
        """Send metrics to a collector that is not there."""
        if self.due(state):
            try:
                urllib.request.urlopen("http://127.0.0.1:9/metrics", timeout=2)
            except OSError:
                state.log.exception("metrics upload failed, will retry at the next step")


def release_twice() -> None:
    """Free one block of memory twice."""
    libc = ctypes.CDLL("libc.so.6")
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    block = libc.malloc(64)
    libc.free(block)
    libc.free(block)


HOOKS: dict[str, type[Hooks]] = {
    "throughput": Throughput,
    "throughput_always": ThroughputAlways,
    "killed": Killed,
    "killed_once": KilledOnce,
    "killed_in_save": KilledInSave,
    "null_write": NullWrite,
    "double_free": DoubleFree,
    "abort_at_exit": AbortAtExit,
    "shared_cache": SharedCache,
    "wide_head": WideHead,
    "double_head": DoubleHead,
    "unused_layer": UnusedLayer,
    "exit_code": ExitCode,
    "early_stop": EarlyStop,
    "metrics_retry": MetricsRetry,
}
