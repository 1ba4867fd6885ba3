"""Runs tasks as processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rerail.recovery.evaluation.runner import Task

_NODE = "localhost"
_GPU = Path("/dev/nvidia0")


class LocalRunner:
    """One process per task, in a process group of its own; trials share the GPUs in turn."""

    poll_s = 0.05

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.slot_of: dict[str, int] = {}

    def nodes(self, count: int) -> list[str]:
        """Return this machine."""
        return [_NODE][:count]

    def start(self, task: Task) -> str:
        """Start the process; its output goes to output.log of its folder."""
        environment = dict(os.environ) | {"RERAIL_EVALUATION_NODE": _NODE}
        if task.needs_gpu:
            taken = set(self.slot_of.values())
            # A try-out beside as many trials as there are GPUs shares the first.
            slot = next((i for i in range(self.gpus) if i not in taken), 0)
            self.slot_of[task.name] = slot
            environment["RERAIL_EVALUATION_SLOT"] = str(slot)
            if _GPU.exists():
                environment["CUDA_VISIBLE_DEVICES"] = str(slot)
        with (task.folder / "output.log").open("ab") as out:
            self.running[task.name] = subprocess.Popen(
                task.command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=environment, start_new_session=True,
            )  # fmt: skip
        return task.name

    def ended(self, handles: Sequence[str]) -> set[str]:
        """Return the handles whose process has ended."""
        found = {one for one in handles if self.running[one].poll() is not None}
        for one in found:
            self.slot_of.pop(one, None)
        return found

    def node_of(self, handle: str) -> str:
        """Return this machine."""
        return _NODE

    def cancel(self, handles: Sequence[str]) -> None:
        """End the process groups, first politely."""
        alive = [self.running[one] for one in handles if self.running[one].poll() is None]
        for ending in (signal.SIGTERM, signal.SIGKILL):
            for process in alive:
                if process.poll() is None:
                    os.killpg(process.pid, ending)
            for process in alive:
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    continue
