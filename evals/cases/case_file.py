"""Reads a JSON-lines file of labelled cases.

One object a line: `id`, `log`, `label`, `root_line` (0-based or null), `action`, and optionally
`accept`, `accept_lines`, `accept_actions`, `rank`, `node`, `undecidable`, `category`, `difficulty`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rerail.errors import EvidenceError


@dataclass(frozen=True, slots=True)
class LabelledCase:
    """One case with every answer that an expert would accept. Lines are 0-based."""

    id: str
    log: str
    label: str
    category: str
    labels: frozenset[str]
    lines: frozenset[int]
    actions: frozenset[str]
    rank: int | None
    node: str | None
    undecidable: bool
    difficulty: str

    @property
    def benign(self) -> bool:
        """Tell whether nothing is wrong in this case."""
        return self.label == "no_failure"


def load_cases(path: Path) -> list[LabelledCase]:
    """Read all cases.

    Raises:
        EvidenceError: naming file and line of what is not a case.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise EvidenceError(
            f"{path}: {error.strerror}", subject=str(path), hint="rerail eval cases FILE.jsonl"
        ) from None
    cases = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            cases.append(_case(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise EvidenceError(
                f"{path}:{number}: not a labelled case ({error!r})",
                subject=f"{path}:{number}",
                hint="see evals/README.md",
            ) from None
    return cases


def _case(raw: dict[str, Any]) -> LabelledCase:
    lines = set(raw.get("accept_lines") or ())
    if raw.get("root_line") is not None:
        lines.add(raw["root_line"])
    return LabelledCase(
        id=raw["id"],
        log=raw["log"],
        label=raw["label"],
        category=raw.get("category") or "",
        labels=frozenset({raw["label"], *(raw.get("accept") or ())}),
        lines=frozenset(lines) if raw.get("root_line") is not None else frozenset(),
        actions=frozenset({raw["action"], *(raw.get("accept_actions") or ())}),
        rank=raw.get("rank"),
        node=raw.get("node"),
        undecidable=bool(raw.get("undecidable")),
        difficulty=raw.get("difficulty") or "normal",
    )
