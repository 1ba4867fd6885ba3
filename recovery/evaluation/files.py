"""The run folder: what is asked of each task, outputs by piece, metrics by set; all written whole."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from rerail.recovery.safe_files import write_file

_PIECE = re.compile(r"(\d+)-(\d+)\.json")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]|^\.")


def safe_name(dataset: str) -> str:
    """Return a data set's name as a file name: as it is, or made plain with a digest behind it."""
    plain = _UNSAFE.sub("_", dataset)
    if plain == dataset:
        return plain
    return f"{plain[:80]}-{hashlib.sha256(dataset.encode()).hexdigest()[:8]}"


def claim(folder: Path, piece: int) -> bool:
    """Take a piece of a task, by its number: true for the first who asks, task or coordinator.

    The task begins what it could claim; what the coordinator could claim was never begun.
    """
    try:
        (folder / f"claim-{piece}").open("x").close()
    except FileExistsError:
        return False
    return True


class RunFolder:
    """Where a run keeps everything; a run that is started anew goes on from what is there."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def prepare(self) -> None:
        """Make the folders."""
        for name in ("tasks", "outputs", "metrics"):
            (self.root / name).mkdir(parents=True, exist_ok=True)

    def task(self, name: str) -> Path:
        """Return the folder of a task."""
        return self.root / "tasks" / name

    def last_task(self) -> int:
        """Return the number that the last task's name begins with; 0 where there is none.

        What a task of an earlier run has claimed stays claimed, so names are never used again.
        """
        begins = [path.name.partition("-")[0] for path in (self.root / "tasks").iterdir()]
        return max((int(one) for one in begins if one.isdecimal()), default=0)

    def _dataset(self, dataset: str) -> Path:
        return self.root / "outputs" / safe_name(dataset)

    def write_output(self, dataset: str, first: int, last: int, outputs: list[Any]) -> None:
        """Keep the outputs of items `first` to `last`."""
        self._dataset(dataset).mkdir(parents=True, exist_ok=True)
        path = self._dataset(dataset) / f"{first}-{last}.json"
        write_file(path, json.dumps(outputs).encode())

    def inferred(self, dataset: str) -> list[tuple[int, int]]:
        """Return the item ranges that have outputs, in order."""
        folder = self._dataset(dataset)
        if not folder.is_dir():
            return []
        found = [_PIECE.fullmatch(path.name) for path in folder.iterdir()]
        return sorted((int(one[1]), int(one[2])) for one in found if one is not None)

    def outputs(self, dataset: str, items: int) -> list[Any]:
        """Return the outputs of all items in order; where ranges overlap the first counts."""
        out: list[Any] = []
        for first, last in self.inferred(dataset):
            if first <= len(out) < last:
                path = self._dataset(dataset) / f"{first}-{last}.json"
                out += json.loads(path.read_text())[len(out) - first :]
        return out[:items]

    def write_metric(self, dataset: str, values: dict[str, float]) -> None:
        """Keep the metrics of a set."""
        path = self.root / "metrics" / f"{safe_name(dataset)}.json"
        write_file(path, json.dumps(values).encode())

    def metric(self, dataset: str) -> dict[str, float] | None:
        """Return the metrics of a set, or None while there are none."""
        path = self.root / "metrics" / f"{safe_name(dataset)}.json"
        return json.loads(path.read_text()) if path.is_file() else None

    def missing(self, dataset: str, items: int) -> list[tuple[int, int]]:
        """Return the item ranges without outputs."""
        gaps = []
        at = 0
        for first, last in self.inferred(dataset):
            if first > at:
                gaps.append((at, first))
            at = max(at, last)
        return [*gaps, (at, items)] if at < items else gaps
