"""What the results of a run folder depend on: model, harness and items, so that no other run's are taken.

A model's files, programs and tasks count by name, size and time of their last change; they are not read.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from rerail.errors import ConfigError
from rerail.recovery.safe_files import write_file
from rerail.tools.evaluation.spec import EvaluationSpec, Harness

_NAME = "identity.json"
_PROGRAMS = (".py", ".sh")


def files_digest(path: Path) -> str:
    """Return a digest of a file, or of all files below a folder; empty where there is none."""
    if not path.exists():
        return ""
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    rows = []
    for one in files:
        known = one.stat()
        rows.append([str(one.relative_to(path)), known.st_size, known.st_mtime_ns])
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


def identity_of(spec: EvaluationSpec) -> dict[str, Any]:
    """Return what results depend on, by the key of the spec that says so."""
    found: dict[str, Any] = {}
    if spec.model.path:
        path = Path(spec.model.path).resolve()
        found |= {"model.path": str(path), "files of model.path": files_digest(path)}
    if spec.harness is not None:
        fields = spec.harness.model_dump(mode="json")
        found |= {f"harness.{key}": value for key, value in fields.items()}
        found |= {f"file {one}": files_digest(Path(one)) for one in _programs(spec.harness)}
    return found | {f"datasets.{name}.items": one.items for name, one in spec.datasets.items()}


def hold_to(folder: Path, spec: EvaluationSpec) -> None:
    """Write down what the results in a run folder depend on; a folder of something else is refused.

    Raises:
        ConfigError: the folder has results of another model, harness or number of items.
    """
    path = folder / _NAME
    now = identity_of(spec)
    before = _read(path)
    for key, value in now.items():
        # A data set that is new to the folder has no results there yet.
        new_set = key.startswith("datasets.") and key not in before
        if before and not new_set and before.get(key, "") != value:
            raise ConfigError(
                f"{folder}: has results of another run: {_differs(key, before.get(key, ''), value)}",
                subject=str(folder),
                hint=f"--folder of a new run; or, if they are good all the same, rm {path}",
            )
    write_file(path, json.dumps(before | now, indent=1).encode())


def _differs(key: str, was: object, now: object) -> str:
    if key.startswith("file"):
        return f"{key} changed since"
    return f"{key} was {_told(was)}, is {_told(now)}"


def _told(value: object) -> str:
    text = " ".join(value) if isinstance(value, list) else str(value)
    return text[:200] or "not given"


def _programs(harness: Harness) -> list[str]:
    """Return the files and folders that a harness names as its own."""
    named = [*harness.infer, *harness.metric]
    found = [part for part in named if part.endswith(_PROGRAMS) and Path(part).is_file()]
    file, _, _ = harness.model.rpartition(":")
    if file.endswith(_PROGRAMS):
        found.append(file)
    if harness.tasks:
        found.append(harness.tasks)
    return list(dict.fromkeys(found))


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
