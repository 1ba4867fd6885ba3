"""Who wrote a record in JSON or logfmt, read by the fields that all records of its file have, in whatever objects.

Collectors wrap a program's line, which may be a record itself: a record inside a string is read like one inside an
object. The names of fields are data (`json_records.yaml`). Of a record that was cut short the fields are looked for by
their own names.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.kept_patterns import kept_pattern
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_local

FILE = Path(__file__).with_name("json_records.yaml")
LABELS = Path(__file__).with_name("labels.yaml")
_LONGEST, _FRONT = 16_000, 120
_DEEPEST = 6
_MOST_RANKS = 1 << 20
_NEARLY_ALL = 0.8
_LEAST, _LEAST_AMONG_OTHERS = 2, 8
"""Records of a file; of one in which what others print stands between them."""
_LONGEST_NAME = 40
_KINDS = ("rank", "local", "node", "place")
_PAIR = lazy(r'(?P<name>[A-Za-z_@][\w.@/-]{0,60})=(?P<value>"(?:[^"\\]|\\.)*"|[^\s"]*)(?:\s+|$)')
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
    for kind in _KINDS:
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
    if record is None and not text.rstrip().endswith("}"):
        record = _values_in(text, fields)
    return None if record is None else _writer(record, fields)


def _writer(record: Mapping[_Path, Any], fields: Fields) -> Writer:
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
    if _begins_logfmt().match(text):
        return _pairs_in(text)
    start = text.find("{")
    if not 0 <= start <= _FRONT or len(text) > _LONGEST or not text.rstrip().endswith("}"):
        return None
    held = _parsed(text[start:])
    return None if held is None else dict(_flat(held, ()))


@lru_cache(maxsize=1)
def _begins_logfmt() -> re.Pattern[str]:
    return kept_pattern(f"(?:{'|'.join(map(re.escape, load_cached(FILE)['logfmt']))})=[^=]")


def is_like_a_record(line: bytes) -> bool:
    """Tell whether a line ends as a record in JSON does, or begins as one in logfmt."""
    line = line.strip()
    return (line.endswith(b"}") and b"{" in line) or (
        b"=" in line[:_LONGEST_NAME]
        and _begins_logfmt().match(line[:_LONGEST_NAME].decode("ascii", "replace")) is not None
    )


def _pairs_in(text: str) -> Mapping[_Path, Any] | None:
    """Return the values of a line that is nothing but pairs, by their names."""
    if len(text) > _LONGEST:
        return None
    at, text, found = 0, text.strip(), dict[_Path, Any]()
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None:
            return None
        value = pair["value"]
        found.setdefault((pair["name"].lower(),), value[1:-1] if value[:1] == '"' else value)
        at = pair.end()
    return found if len(found) >= load_cached(FILE)["least_pairs"] else None


@lru_cache(maxsize=16)
def _finder(fields: Fields) -> re.Pattern[bytes]:
    """Return what finds the fields of a writer by the last of their names, in whatever signs they stand."""
    paths = (fields.rank, fields.local, fields.node, fields.place)
    names = sorted({path[-1] for path in paths if path is not None}, key=len, reverse=True)
    named = "|".join(map(re.escape, names))
    return re.compile(
        rf'(?<![\w.@/-])(?i:(?P<name>{named}))(?:\\{{0,7}}"\s?:\s?\\{{0,7}}"?|="?)(?P<value>[A-Za-z0-9][\w.-]{{0,120}})'.encode()
    )


def writer_spans(line: bytes, fields: Fields) -> list[tuple[int, int]]:
    """Return where the first of each of the fields of a writer stands in a record, with name and value, in order."""
    if not line.lstrip()[:1] == b"{" and not is_like_a_record(line):
        return []
    first: dict[bytes, tuple[int, int]] = {}
    for match in _finder(fields).finditer(line):
        first.setdefault(match["name"].lower(), match.span())
    return sorted(first.values())


def fronts_of_values(line: bytes, fields: Fields) -> tuple[bytes, ...]:
    """Return what stands in front of the values of a writer's fields in a record, where all are strings of its own.

    A program writes all its records with the same signs between names and values, so these need not be looked for in
    all forms again.
    """
    fronts = []
    for start, _ in writer_spans(line, fields) if line[:1] == b"{" else ():
        match = _finder(fields).match(line, start)
        front = b"" if match is None else line[start - 1 : match.start("value")]
        if not (front[:1] == front[-1:] == b'"') or b"\\" in front:
            return ()
        fronts.append(front)
    return tuple(fronts)


def behind_fronts(line: bytes, fronts: Iterable[bytes]) -> list[bytes] | None:
    """Return the fields that begin so in a record, as `writer_spans` would cut them, or None where one is not there."""
    found = []
    for front in fronts:
        at = line.find(front)
        stop = line.find(b'"', at + len(front))
        if at < 0 or stop < 0:
            return None
        found.append(line[at + 1 : stop])
    return found or None


def _values_in(text: str, fields: Fields) -> Mapping[_Path, Any] | None:
    """Return the values of the fields in a record, by the last of their names alone."""
    line = text[:_LONGEST].encode("utf-8", "surrogateescape")
    told = {
        match["name"].decode().lower(): match["value"].decode()
        for start, stop in writer_spans(line, fields)
        if (match := _finder(fields).match(line, start)) is not None and match.end() <= stop
    }
    paths = (fields.rank, fields.local, fields.node, fields.place)
    found = {path: told[path[-1]] for path in paths if path is not None and path[-1] in told}
    return found or None


@lru_cache(maxsize=1)
def _begins_message() -> re.Pattern[bytes]:
    names = "|".join(load_cached(FILE)["message"])
    return kept_pattern(rf'(?<![\w.@/-])(?:{names})(?:\\{{0,7}}"\s?:|=)'.encode())


def message_in(front: bytes) -> bool:
    """Tell whether the message of a record begins in a part of it."""
    return _begins_message().search(front) is not None


def number_of_place(place: str) -> int | None:
    """Return the number in the name of a pod that an operator counts, or None."""
    match = _numbered().fullmatch(place)
    return None if match is None else int(match["number"])


@lru_cache(maxsize=1)
def _numbered() -> re.Pattern[str]:
    return kept_pattern(load_cached(FILE)["number_of_place"])


def ranks_behind_numbers(lines: Iterable[str], fields: Fields) -> int | None:
    """Return by how much the ranks of a file are above the numbers of the pods that wrote its records.

    None where no two pods tell a rank, one tells several, or they do not agree.
    """
    told: dict[str, int] = {}
    for line in lines:
        said = _said_number().search(line)
        writer = writer_of(line, fields) if said is not None else None
        if writer is None or writer.place is None or said is None:
            continue
        if told.setdefault(writer.place, int(said[1])) != int(said[1]):
            return None
    apart: set[int | None] = set()
    for place, rank in told.items():
        number = number_of_place(place)
        apart.add(None if number is None else rank - number)
    return apart.pop() if len(told) > 1 and len(apart) == 1 else None


@lru_cache(maxsize=1)
def _said_number() -> re.Pattern[str]:
    return kept_pattern(load_cached(LABELS)["says_its_number"])


def may_be_cut(lines: Iterable[str], fields: Fields) -> bool:
    """Tell whether the names of the fields alone tell the same of the writers of records as their places in them."""
    for line in lines:
        whole = record_in(line)
        if whole is not None:
            named = _values_in(line, fields)
            if named is None or _writer(named, fields) != _writer(whole, fields):
                return False
    return True


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


def kind_of_field(name: str) -> str | None:
    """Return what a field tells of its writer by its name alone: "rank", "local", "node" or "place", or None."""
    told = [(order, kind) for kind in _KINDS if (order := _order(kind, (name,))) is not None]
    return min(told)[1] if told else None


def tells_the_message(name: str) -> bool:
    """Tell whether a field of this name holds the program's own line."""
    return _plain(name) in load_cached(FILE)["message"]


def tells_the_time(name: str) -> bool:
    """Tell whether a field of this name holds when a line was written."""
    return _plain(name) in map(_plain, load_cached(FILE)["logfmt"])


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
