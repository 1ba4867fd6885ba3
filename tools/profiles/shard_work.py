"""Profiles as work for shards: each file becomes its summary, or the reason why it has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rerail.errors import EvidenceError
from rerail.tools.profiles.collect import read_profile
from rerail.tools.profiles.summary import Summary, summary_of, summary_row


@dataclass(frozen=True)
class ProfileWork:
    """Summarises traces; a file that cannot be read is a row of its own and no failure."""

    name: str = "profiles"

    def scan(self, files: Sequence[str]) -> list[Any]:
        """Return the summaries of the files as JSON values."""
        rows: list[Any] = []
        for file in files:
            try:
                rows.append(summary_row(read_profile(Path(file))))
            except EvidenceError as error:
                rows.append({"left_out": file, "why": str(error)})
        return rows

    def key(self, row: Any) -> Any:
        """Return rank and file; what was left out comes last."""
        return [1, 0, row["left_out"]] if "left_out" in row else [0, row["rank"], row["source"]]


def summaries_of(rows: Sequence[Any], where: str) -> tuple[list[Summary], list[str]]:
    """Return the summaries of merged rows, and sentences on the files without one."""
    found = [summary_of(row, where) for row in rows if "left_out" not in row]
    return found, [f"left out: {row['why']}" for row in rows if "left_out" in row]
