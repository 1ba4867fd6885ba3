"""Reads a JSON-lines file of labelled cases.

One object a line: `id`, `log`, `label`, `root_line` (0-based or null), `action`, and optionally
`accept`, `accept_lines`, `accept_actions`, `rank`, `node`, `undecidable`, `category`, `difficulty`, and
`parts`: how `log` falls into files, as pairs of name and number of lines. In place of `label` and `action` a
case may give the `kind` of its cause (`kinds.yaml`): then every type of that kind is right, and every action.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.domain.diagnosis import Action
from rerail.errors import EvidenceError

_KINDS = Path(__file__).with_name("kinds.yaml")


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
    parts: tuple[tuple[str, int], ...] = ()

    @property
    def benign(self) -> bool:
        """Tell whether nothing is wrong in this case."""
        return self.label == "no_failure"

    def files(self) -> dict[str, str]:
        """Return the texts of the case by file name."""
        if not self.parts:
            return {"case.log": self.log}
        rows, at, found = self.log.splitlines(keepends=True), 0, {}
        for name, count in self.parts:
            found[name] = "".join(rows[at : at + count])
            at += count
        return found

    def place(self, file: str, line: int) -> int | None:
        """Return where in `log`, from 0, a line (from 1) of one of the files stands."""
        at = 0
        for name, count in self.parts:
            if name == file:
                return at + line - 1
            at += count
        return None if self.parts else line - 1


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
                hint="one JSON object a line: id, log, label, root_line (from 0, or null), action",
            ) from None
    return cases


@lru_cache(maxsize=1)
def _kinds() -> dict[str, list[str]]:
    found: dict[str, list[str]] = load_cached(_KINDS)["kinds"]
    return found


def _case(raw: dict[str, Any]) -> LabelledCase:
    if "label" not in raw:
        label, *accept = _kinds()[raw["kind"]]
        every = [str(action) for action in Action]
        raw = {**raw, "label": label, "accept": accept, "action": every[0], "accept_actions": every}
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
        parts=tuple((str(name), int(count)) for name, count in raw.get("parts") or ()),
    )
