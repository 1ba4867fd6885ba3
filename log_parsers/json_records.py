"""Who wrote a record in JSON, read by the fields that all records of its file have, in whatever objects they stand.

Collectors wrap a program's line, which may be a record itself: a record inside a string is read like one inside an
object. The names of fields are data (`json_records.yaml`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_local

FILE = Path(__file__).with_name("json_records.yaml")
_LONGEST, _FRONT = 16_000, 120
_DEEPEST = 6
_MOST_RANKS = 1 << 20
_NEARLY_ALL = 0.8
_LEAST, _LEAST_AMONG_OTHERS = 2, 8
"""Records of a file; of one in which what others print stands between them."""
_SIGNS = lazy(r"[^a-z0-9]+")
_HOST = lazy(r"[A-Za-z0-9][\w.-]{1,120}")

_Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Writer:
    """Who wrote a record, as far as its fields tell."""

    rank: int | None = None
    local: int | None = None
    node: str | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a file's records that tell who wrote them; None for what they do not tell."""

    rank: _Path | None = None
    local: _Path | None = None
    node: _Path | None = None
    place: _Path | None = None


def fields_of(lines: Iterable[str]) -> tuple[Fields | None, list[str]]:
    """Return the fields of a file's writers, None without any, and the messages inside its records.

    What a launcher or a library prints among the records of a program's logger takes nothing from them.
    """
    lines = [line for line in lines if line.strip()]
    records = [one for one in map(record_in, lines) if one is not None]
    if len(records) < (_LEAST if 2 * len(records) >= len(lines) else _LEAST_AMONG_OTHERS):
        return None, []
    seen = Counter(path for one in records for path in one)
    always = {path for path, count in seen.items() if count >= _NEARLY_ALL * len(records)}
    found: dict[str, _Path] = {}
    for kind in ("rank", "local", "node", "place"):
        paths = sorted(
            (order, len(path), path)
            for path in always
            if (order := _order(kind, path)) is not None
            and any(_value(kind, one.get(path)) is not None for one in records)
        )
        if paths:
            found[kind] = paths[0][-1]
    messages = [_message(one) for one in records]
    return (Fields(**found) if found else None), [one for one in messages if one]


def writer_of(text: str, fields: Fields) -> Writer | None:
    """Return who wrote a record, or None where a line is none."""
    record = record_in(text)
    if record is None:
        return None
    rank, local, node, place = (
        _value(kind, record.get(path)) if path is not None else None
        for kind, path in (
            ("rank", fields.rank), ("local", fields.local), ("node", fields.node), ("place", fields.place),
        )
    )  # fmt: skip
    return Writer(
        rank if isinstance(rank, int) else None,
        local if isinstance(local, int) else None,
        node if isinstance(node, str) else None,
        place if isinstance(place, str) else None,
    )


@lru_cache(maxsize=1024)
def record_in(text: str) -> Mapping[_Path, Any] | None:
    """Return the values of the record that a line is, by their paths; None for another line."""
    start = text.find("{")
    if not 0 <= start <= _FRONT or len(text) > _LONGEST or not text.rstrip().endswith("}"):
        return None
    held = _parsed(text[start:])
    return None if held is None else dict(_flat(held, ()))


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return held if isinstance(held, dict) else None


def _flat(held: Mapping[str, Any], above: _Path) -> Iterator[tuple[_Path, Any]]:
    for key, value in held.items():
        path = (*above, str(key).lower())
        inner = value
        if isinstance(value, str) and value.lstrip().startswith("{"):
            inner = _parsed(value.strip()) if value.rstrip().endswith("}") else None
        if isinstance(inner, dict) and len(path) < _DEEPEST:
            yield from _flat(inner, path)
        else:
            yield path, value


def _order(kind: str, path: _Path) -> int | None:
    """Return how sure a field tells what is asked, the surest 0; None where it does not."""
    data = load_cached(FILE)[kind]
    messages = set(load_cached(FILE)["message"])
    names = [word for part in path for word in part.split(".") if word]
    last, around = _plain(names[-1]), [_plain(name) for name in names[:-1]]
    around = [name for name in around if name not in messages]
    if set(around) & set(data["not_below"]):
        return None
    above = around[-1:]
    if last in data.get("nested", {}):
        return len(data["names"]) if set(above) & set(data["nested"][last]) else None
    if last not in data["names"]:
        return None
    inside = data.get("only_below", {}).get(last)
    if inside is not None and not set(above) & set(inside):
        return None
    return int(data["names"].index(last))


def _plain(name: str) -> str:
    return _SIGNS.sub("", name.lower())


def _value(kind: str, value: Any) -> int | str | None:
    if kind in ("rank", "local"):
        if isinstance(value, str) and value.isdecimal() and len(value) < 8:
            value = int(value)
        number = isinstance(value, int) and not isinstance(value, bool)
        return value if number and 0 <= value < _MOST_RANKS else None
    if not isinstance(value, str) or is_local(value) or value.isdigit():
        return None
    return value if _HOST.fullmatch(value) else None


def _message(record: Mapping[_Path, Any]) -> str:
    """Return the text that a record carries, without the record around it."""
    named = load_cached(FILE)["message"]
    found = [
        (len(path), value)
        for path, value in record.items()
        if isinstance(value, str) and _plain(path[-1]) in named
    ]
    return max(found)[1] if found else ""
