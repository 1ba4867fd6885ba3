"""A harness that takes its times and computes nothing: real processes, files and loads, idle CPUs.

Times come from the file RERAIL_SLEEPER. A trial of the plan loads from shared storage once per node
and then from the node's memory; a job of the other rules loads from shared storage each time, longer
where others of its node load as well.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Sleeper:
    """The harness; see `rerail.recovery.evaluation.harness`."""

    def __init__(self) -> None:
        path = Path(os.environ["RERAIL_SLEEPER"])
        self.times: dict[str, Any] = json.loads(path.read_text())
        self.folder = path.parent

    def load(self, model: Path | None) -> None:
        """Load: the first trial of a node from shared storage, the others wait for its copy."""
        del model
        node = int(os.environ["RERAIL_EVALUATION_SLOT"]) // self.times["gpus_per_node"]
        with (self.folder / f"copy{node}").open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.seek(0)
            if not lock.read():
                time.sleep(self.times["load_s"])
                lock.write("there")
        time.sleep(self.times["local_load_s"])

    def load_shared(self, node: int) -> None:
        """Load from shared storage, beside whatever else of this node loads there now."""
        mine = self.folder / f"loading-{node}-{os.getpid()}"
        mine.touch()
        together = len(list(self.folder.glob(f"loading-{node}-*")))
        time.sleep(self.times["load_s"] * (1.0 + self.times["contention"] * (together - 1)))
        mine.unlink()

    def infer(self, dataset: str, first: int, last: int) -> list[Any]:
        """Take the time of these items."""
        one = self.times["sets"][dataset]
        time.sleep(one["prepare_s"] + (last - first) * one["inference_s"] / one["items"])
        return [0] * (last - first)

    def score(self, dataset: str, outputs: Sequence[Any]) -> dict[str, float]:
        """Take the time of the metric."""
        time.sleep(self.times["sets"][dataset]["metric_s"])
        return {"items": float(len(outputs))}


def make() -> Sleeper:
    """Return the harness."""
    return Sleeper()
