"""The accepted rules of a site: one YAML file in the data folder, loaded with the shipped ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rerail.cached_yaml import parse_yaml
from rerail.errors import StoreError
from rerail.knowledge_base.learning.candidate import Candidate
from rerail.knowledge_base.learning.shelf import Shelved
from rerail.knowledge_base.store.clock import now_iso
from rerail.settings import load_settings

FILE_NAME = "learned.yaml"
FILTERS = "filters.yaml"


def learned_folder() -> Path:
    """Return the folder of accepted rules; it may not exist yet."""
    return load_settings().data_dir.expanduser() / "rules"


def filters_file() -> Path:
    """Return the file of accepted filters; it may not exist yet."""
    return load_settings().data_dir.expanduser() / FILTERS


def write_rule(one: Shelved, by: str) -> Path:
    """Add an accepted candidate to its file, in place of one with the same id.

    Raises:
        StoreError: when the file cannot be written.
    """
    return _put(one.candidate, _entry(one.candidate, one, by))


def remove_rule(candidate: Candidate) -> Path:
    """Take an accepted candidate out of its file again.

    Raises:
        StoreError: when the file cannot be written.
    """
    return _put(candidate, None)


def _put(candidate: Candidate, entry: dict[str, Any] | None) -> Path:
    path = filters_file() if candidate.kind == "filter" else learned_folder() / FILE_NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        content: dict[str, Any] = (
            parse_yaml(path) if path.exists() else {"schema_version": 1, "rules": []}
        )
        kept = [r for r in content["rules"] if r["id"] != candidate.id]
        _write(path, {**content, "rules": kept if entry is None else [*kept, entry]})
    except (OSError, KeyError, TypeError) as error:
        raise StoreError(
            f"{path}: {error}", subject=str(path), hint="look at the file; rerail kb lint"
        ) from None
    return path


def _entry(candidate: Candidate, one: Shelved, by: str) -> dict[str, Any]:
    entry = candidate.yaml()
    seen = f", seen in {', '.join(one.support[:8])}" if one.support else ""
    return {**entry, "source": f"{entry['source']}{seen}; accepted by {by} on {now_iso()[:10]}"}


def _write(path: Path, content: dict[str, Any]) -> None:
    import yaml

    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(
        yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=10_000), encoding="utf-8"
    )
    temporary.replace(path)


def filter_patterns() -> list[str]:
    """Return the patterns of accepted filters."""
    path = filters_file()
    if not path.is_file():
        return []
    return [str(rule["pattern"]) for rule in parse_yaml(path).get("rules", [])]
