"""The shipped rules, kept as they came out of the check: reading and checking 1,200 of them is a tenth of a diagnosis.

Column by column, which JSON reads fastest. The name of the file says of which rule files and of which code
it was made; nothing but what they say is in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerail.cached_yaml import cache_folder, write_whole
from rerail.domain.diagnosis import Action
from rerail.domain.evidence import Blames, Role, Stream, Tier
from rerail.log_parsers.compiled_cache import keep_newest

if TYPE_CHECKING:
    from rerail.knowledge_base.rules import Rule

_KEPT = 4
_ENUMS: dict[str, type[Enum]] = {"role": Role, "tier": Tier, "blames": Blames, "action": Action}
_TUPLES = ("cleared_by", "matches", "must_not_match")
_PAIRS = ("columns", "column_fields")


def prepared(
    kind: type[Rule], sources: Iterable[Path], make: Callable[[], Sequence[Rule]]
) -> Sequence[Rule]:
    """Return the rules that `make` reads and checks from files, as it left them where no file has changed."""
    path = cache_folder() / f"rules-{_state(sources)}.json"
    names = [one.name for one in fields(kind)]
    try:
        columns = json.loads(path.read_bytes())
        return [kind(*row) for row in zip(*(_read(n, columns[n]) for n in names), strict=True)]
    except (OSError, ValueError, KeyError, TypeError):
        rules = make()
    columns = {name: [_written(getattr(rule, name)) for rule in rules] for name in names}
    if write_whole(path, json.dumps(columns).encode()):
        keep_newest(path, "rules-*.json", _KEPT)
    return rules


def _state(sources: Iterable[Path]) -> str:
    digest = sha256()
    for path in sources:
        stat = os.stat(path)
        digest.update(f"{path}|{stat.st_size}|{stat.st_mtime_ns}\0".encode())
    return digest.hexdigest()[:24]


def _read(name: str, column: list[Any]) -> Iterable[Any]:
    if name in _ENUMS:
        members: dict[str | None, Any] = {one.value: one for one in _ENUMS[name]}
        return map({None: None, **members}.__getitem__, column)
    if name == "marks":
        return map(frozenset, column)
    if name == "stream":
        return (tuple(map(Stream, one)) for one in column)
    if name in _PAIRS:
        return (tuple(map(tuple, one)) for one in column)
    return map(tuple, column) if name in _TUPLES else column


def _written(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value
