"""A harness that takes its times and computes nothing: real processes, files and loads, idle CPUs.

Times come from the file RERAIL_SLEEPER. One load at a time and node comes from shared storage, with
what else loads there it takes longer; trials of the plan load there once per node and then from the
node's memory. `main` is a job of the other rules: load, infer, and hold the GPU during the metric.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def _times() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(os.environ["RERAIL_SLEEPER"]).read_text())
    return found


class Sleeper:
    """The harness; see `rerail.recovery.evaluation.harness`."""

    def __init__(self) -> None:
        self.times = _times()
        self.folder = Path(os.environ["RERAIL_SLEEPER"]).parent

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


def main(node: str, pieces: str, held: str) -> None:
    """Run one job of another rule: pieces as [[set, items], ...]; metric seconds on the held GPU."""
    times, folder = _times(), Path(os.environ["RERAIL_SLEEPER"]).parent
    mine = folder / f"loading-{node}-{os.getpid()}"
    mine.touch()
    together = len(list(folder.glob(f"loading-{node}-*")))
    time.sleep(times["load_s"] * (1.0 + times["contention"] * (together - 1)))
    mine.unlink()
    for name, items in json.loads(pieces):
        one = times["sets"][name]
        time.sleep(one["prepare_s"] + items * one["inference_s"] / one["items"])
    time.sleep(float(held))


if __name__ == "__main__":
    main(*sys.argv[1:4])
