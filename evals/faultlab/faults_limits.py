"""Faults at the limits of the host: memory, open files, threads."""
# mypy: allow-untyped-calls

from __future__ import annotations

import threading
from typing import Any

from rerail.evals.faultlab.faults import Hooks, State


class HistoryLeak(Hooks):
    """One rank keeps every activation until the memory cgroup is full."""

    def __init__(self) -> None:
        self.history: list[Any] = []

    def before_step(self, state: State, model: Any) -> None:
        """Keep the activations of this step."""
        if state.rank == self.rank and state.step >= self.at:
            import torch

            for _ in range(4):
                self.history.append(torch.ones(16 << 20))


class BigBuffer(Hooks):
    """One rank asks for more than the address space limit allows."""

    rank = 3

    def __init__(self) -> None:
        self.buffers: list[Any] = []

    def before_step(self, state: State, model: Any) -> None:
        """Reserve staging buffers."""
        if state.rank == self.rank and state.step >= self.at:
            import torch

            self.buffers.append(torch.empty(512 << 20))


class BigList(Hooks):
    """One rank reads everything into Python objects under the same limit."""

    rank = 0

    def __init__(self) -> None:
        self.records: list[bytearray] = []

    def before_step(self, state: State, model: Any) -> None:
        """Keep raw records for the evaluation."""
        if state.rank == self.rank and state.step >= self.at:
            self.records.append(bytearray(1 << 29))


class OpenShards(Hooks):
    """One rank opens files and does not close them."""

    rank = 1

    def __init__(self) -> None:
        self.files: list[Any] = []

    def before_step(self, state: State, model: Any) -> None:
        """Open every shard ahead of time."""
        if self.due(state):
            shards = sorted((state.root / "data").glob("shard_*.jsonl"))
            for epoch in range(5000):
                self.files.append(shards[epoch % len(shards)].open())


class PrefetchThreads(Hooks):
    """One rank starts more threads than the limit of processes allows."""

    def before_step(self, state: State, model: Any) -> None:
        """Start one prefetch thread for each shard."""
        if self.due(state):
            done = threading.Event()
            for number in range(5000):
                threading.Thread(
                    target=done.wait, args=(60,), daemon=True, name=f"prefetch-{number}"
                ).start()


class TensorQueue(Hooks):
    """A tensor moves to shared memory, and /dev/shm is too small for it."""

    rank = 1

    def before_step(self, state: State, model: Any) -> None:
        """Share the token statistics with the workers."""
        if self.due(state):
            import torch

            torch.zeros(32 << 20).share_memory_()


class Predictions(Hooks):
    """One rank writes its predictions beside the checkpoints, and the file system is full."""

    def before_step(self, state: State, model: Any) -> None:
        """Write the predictions of the validation set."""
        if self.due(state):
            path = state.root / "ckpt" / f"predictions_rank{state.rank}.jsonl"
            with path.open("w") as file:
                for sample in range(50_000):
                    file.write(f'{{"sample": {sample}, "prediction": {sample % 128}}}\n')


HOOKS: dict[str, type[Hooks]] = {
    "history_leak": HistoryLeak,
    "big_buffer": BigBuffer,
    "big_list": BigList,
    "open_shards": OpenShards,
    "prefetch_threads": PrefetchThreads,
    "tensor_queue": TensorQueue,
    "predictions": Predictions,
}
