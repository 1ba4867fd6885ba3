"""A signed-off incident as a labelled case: what a person vouched for must stay true."""

from __future__ import annotations

import json
import os
from itertools import groupby
from pathlib import Path
from typing import Any

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.incident import SnapshotLine
from rerail.errors import StoreError
from rerail.knowledge_base.store.engine import data_folder
from rerail.knowledge_base.store.incidents import IncidentFile
from rerail.knowledge_base.taxonomy import NO_FAILURE, leaves

FILE_NAME = "cases.jsonl"


def case_of(file: IncidentFile) -> dict[str, Any]:
    """Return the incident in the form that `rerail eval cases` reads; lines are 0-based.

    The log is the snapshot: bounded and redacted, files one after the other; `parts` says where each
    ends, since what a kernel log says means something else within a job's output.
    """
    lines = sorted(
        _kept(file), key=lambda x: x.file
    )  # stable: the lines of a file keep their order
    first = file.diagnosis.first_fault
    confirmed = file.confirmation()
    wanted = f"{first.file}:{first.line}" if first is not None else None
    if confirmed is not None and (confirmed.verdict != "right" or confirmed.first_fault):
        wanted = confirmed.first_fault
    root = next((i for i, x in enumerate(lines) if f"{x.file}:{x.number}" == wanted), None)
    label = file.row.true_type
    leaf = leaves().get(label or "")
    healthy = label == NO_FAILURE
    action = str(leaf.action) if leaf else "none" if healthy else "page_human"
    accept = {action}
    if label == file.row.failure_type:
        accept.add(str(file.diagnosis.recovery.action))
    return {
        "id": file.row.id,
        "source": "signed-off incident",
        "log": "".join(f"{line.text}\n" for line in lines),
        "label": label or "unknown",
        "category": leaf.category if leaf else "none" if healthy else "unknown",
        "parts": [[name, len(list(rows))] for name, rows in groupby(lines, key=lambda x: x.file)],
        "root_line": None if healthy else root,
        "action": action,
        "accept_actions": sorted(accept),
        "undecidable": label is None,
    }


def _kept(file: IncidentFile) -> list[SnapshotLine]:
    """Return the kept lines, with the one that a person named where the rules had not kept it."""
    lines = list(file.incident.snapshot.lines)
    confirmed = file.confirmation()
    named = confirmed.line if confirmed is not None else None
    if named is None or any((x.file, x.number) == (named.file, named.number) for x in lines):
        return lines
    at = next(
        (i for i, x in enumerate(lines) if x.file == named.file and x.number > named.number),
        len(lines),
    )
    return [*lines[:at], named, *lines[at:]]


def says_now(file: IncidentFile) -> str | None:
    """Return what the rules of today say of the kept lines alone; None where that is what it was."""
    texts: dict[str, str] = {}
    for line in _kept(file):
        texts[line.file] = texts.get(line.file, "") + f"{line.text}\n"
    if not texts:
        return "nothing: no line of it was kept"
    found = diagnose_texts(texts).diagnosis
    return None if found.failure_type == file.row.true_type else found.failure_type or "no verdict"


def write_case(file: IncidentFile) -> Path:
    """Put the case into the data folder, in place of an older one of the same incident.

    Raises:
        StoreError: when it cannot be written.
    """
    return _put(file.row.id, case_of(file))


def remove_case(name: str) -> None:
    """Take the case of an incident out again: nobody vouches for it any more.

    Raises:
        StoreError: when it cannot be written.
    """
    if (data_folder() / FILE_NAME).exists():
        _put(name, None)


def _name(row: str) -> str | None:
    """Return the id of a case; ValueError where a row is none."""
    case = json.loads(row)
    if not isinstance(case, dict):
        raise ValueError(f"{row[:40]} is no case")
    name: str | None = case.get("id")
    return name


def _put(name: str, case: dict[str, Any] | None) -> Path:
    path = data_folder() / FILE_NAME
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        old = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        rows = [row for row in old if row.strip() and _name(row) != name]
        if case is not None:
            rows.append(json.dumps(case))
        temporary.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        temporary.replace(path)
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{path}: {error}", subject=str(path), hint="move it aside; it is written anew"
        ) from None
    return path
