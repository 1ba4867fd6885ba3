"""Tables with a row of titles: which rank, process, pod or address a row puts on which host.

Whoever prints it, a column titled RANK holds ranks and one titled NODE holds hosts. The titles are
data (`column_tables.yaml`), and a command may give its own; a row of other cells than there are titles ends the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.domain.evidence import LogLine
from rerail.kept_patterns import kept_pattern
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_local
from rerail.log_parsers.text import without_digits
from rerail.log_parsers.view import LogView

FILE = Path(__file__).with_name("column_tables.yaml")
_NUMBERS = frozenset({"rank", "task", "local", "pid", "gpu"})
_RUNS = frozenset({"rank", "ranks", "task", "pod", "address"})
_WIDE = lazy(r"\s*[|│┃]\s*|\s{2,}|\t|,\s*")
_RULE = lazy(r"[\s|│┃+=:─━┼╋├┤┡┩┏┓└┘╇-]*")
_HOST = lazy(r"[A-Za-z0-9](?:[\w.-]{0,120}[A-Za-z0-9])?")
_IN_BRACKETS = lazy(r"\(([\w ]{8,200})\) ?:\s*$")
_NUMBER = lazy(r"\d+")
_LONGEST, _MOST_ROWS, _MOST_TABLES = 400, 20_000, 64
_STAMP = rb"(?:\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[\d.,]{0,10}Z?\]?)?"
_TITLE_FIRST = lazy(_STAMP + rb"[|\s#\xe2]{0,8}(?:[A-Za-z][\w ()./-]{0,40})")


@dataclass(frozen=True, slots=True)
class Row:
    """What one row of a table ties together, by the kinds of its columns, and its line."""

    cells: dict[str, str]
    line: LogLine

    def number(self, kind: str) -> int | None:
        """Return a cell as a number, or None."""
        text = self.cells.get(kind, "")
        return int(text) if text.isdigit() and len(text) < 9 else None


@dataclass(frozen=True, slots=True)
class _Data:
    titles: dict[str, str]
    beside: tuple[tuple[str, str, str], ...]
    fields: dict[str, str]
    asked: re.Pattern[str]
    asks: tuple[bytes, ...]
    picked: re.Pattern[str]
    picked_from: tuple[tuple[re.Pattern[str], list[str]], ...]
    empty: frozenset[str]
    no_tasks: re.Pattern[str]
    sieve: re.Pattern[bytes]


@lru_cache(maxsize=1)
def _data() -> _Data:
    raw = load_cached(FILE)
    titles = {title: kind for kind, listed in raw["columns"].items() for title in listed}
    beside = tuple((one["title"], one["means"], one["beside"]) for one in raw["with"])
    words = "|".join(
        sorted({re.escape(title.split()[-1]) for title in [*titles, *(t for t, _, _ in beside)]})
    )
    sieve = kept_pattern(rf"(?i)(?:^|[\s|_,(-])(?:{words})(?=[\s|,)]|$)".encode())
    asked, picked, no_tasks = map(lazy, (raw["asked"], raw["picked"], raw["no_tasks"]))
    taken = raw["picked_from"]
    of = map(lazy, (one["of"] for one in taken))
    return _Data(
        titles,
        beside,
        raw["fields"],
        asked,
        tuple(one.encode() for one in raw["asks"]),
        picked,
        tuple(zip(of, (one["titles"] for one in taken), strict=True)),
        frozenset(raw["empty"]),
        no_tasks,
        sieve,
    )


def rows(view: LogView) -> Iterator[Row]:
    """Yield the rows of the tables of a file that tie a host or a process to what runs there."""
    data = _data()
    kept, until, tables = view.survey.kept, -1, 0
    for number in view.numbers:
        if tables >= _MOST_TABLES:
            return
        if number <= until:
            continue
        raw = kept[number]
        if any(one in raw[:_LONGEST] for one in data.asks):
            line = view.line(number)
            asked = _asked_for(line.text) if line is not None else ()
            kinds = [kind for _, kind in asked]
            if line is not None and _tells(kinds):
                tables += 1
                for row in _below(view, line, kinds, " ".join(title for title, _ in asked)):
                    until = row.line.number
                    yield row
            continue
        if raw[:1] == b"\x1b":
            raw = (view.text(number) or "").encode()
        if len(raw) > _LONGEST or _TITLE_FIRST.match(raw) is None:
            continue
        if len(set(data.sieve.findall(raw))) < 2:
            continue
        line = view.line(number)
        kinds = _titles(words(line, line)) if line is not None else []
        if line is None or not _tells(kinds):
            continue
        tables += 1
        for row in _below(view, line, kinds, words(line, line)):
            until = row.line.number
            yield row


def words(line: LogLine, head: LogLine) -> str:
    """Return what stands in a row, behind the time that all rows of its table begin with.

    Where the titles have no label, what looks like one is a cell.
    """
    if head.label:
        return line.message
    front = head.text.removesuffix(head.message).rstrip() if head.time is not None else ""
    if front and without_digits(line.text[: len(front)]) == without_digits(front):
        return line.text[len(front) :]
    return line.text


def _asked_for(text: str) -> list[tuple[str, str | None]]:
    """Return the titles that a command asks for, and what each column holds: by the field that it shows, or by its title."""
    match = _data().asked.search(text)
    if match is None:
        return _picked(text)
    pairs = [one.partition(":") for one in match["columns"].split(",")]
    kinds = _kinds([title for title, _, _ in pairs])
    fields = _data().fields
    return [
        (title, fields.get(field.strip("'\"{}"), kind))
        for (title, _, field), kind in zip(pairs, kinds, strict=True)
    ]


def _picked(text: str) -> list[tuple[str, str | None]]:
    """Return the titles of the columns that a command takes out of a table by their numbers, and what each holds."""
    data = _data()
    match = data.picked.search(text)
    if match is None:
        return []
    numbers = [int(one) for one in _NUMBER.findall(match["numbers"])]
    for of, titles in data.picked_from:
        if of.search(text) and all(0 < number <= len(titles) for number in numbers):
            kinds = _kinds(titles)
            return [(titles[n - 1], kinds[n - 1]) for n in numbers]
    return []


def _below(view: LogView, head: LogLine, kinds: Sequence[str | None], named: str) -> Iterator[Row]:
    data = _data()
    titles = set(named.lower().split())
    starts = [match.start() for match in re.finditer(r"\S+(?: \S+)*", named)]
    for number in range(head.number + 1, head.number + 1 + _MOST_ROWS):
        line = view.line(number)
        if line is None:
            return
        text = words(line, head)
        if _RULE.fullmatch(text):
            if not text.strip():
                return
            continue
        cells = _row(text, len(kinds), starts)
        if cells is None:
            return
        if [cell.lower() for cell in cells] == named.lower().split():
            continue  # the titles of a command, as its answer repeats them
        told = {
            kind: cell
            for kind, cell in zip(kinds, cells, strict=True)
            if kind is not None
            and cell.lower() not in data.empty
            and not (kind == "gpu" and not cell.isdigit() and "rank" in kinds)
        }
        if data.no_tasks.match(text):
            continue
        if any(kind in _NUMBERS and not cell.isdigit() for kind, cell in told.items()):
            return
        if any(cell.lower() in titles for cell in told.values()):
            return  # two sentences that are alike, and no titles with a row
        node = told.get("node")
        if node is not None and (_HOST.fullmatch(node) is None or node.isdigit() or is_local(node)):
            return
        yield Row(told, line)


def _cells(text: str) -> list[str]:
    wide = [cell.strip() for cell in _WIDE.split(text.strip(" \t|│┃"))]
    if len(wide) > 1:
        return wide
    return text.split()


def _row(text: str, count: int, starts: Sequence[int]) -> list[str] | None:
    """Return the cells of a row: between wide gaps or bars, between any, or below their titles."""
    between_bars = [cell.strip() for cell in text.split("|")]
    for cells in (_cells(text), text.split(), between_bars):
        if len(cells) == count:
            return cells
    if len(starts) != count or len(text) < starts[-1] or any(
        at and text[at - 1 : at].strip() for at in starts
    ):  # fmt: skip
        return None
    ends = [*starts[1:], len(text)]
    return [text[a:b].strip() for a, b in zip(starts, ends, strict=True)]


def _titles(text: str) -> list[str | None]:
    """Return what the columns hold; titles of one word each may stand close together."""
    text = _told_in_brackets(text).lstrip("# ")
    if text.rstrip().endswith("."):
        return []  # a sentence
    wide, close = _kinds(_cells(text)), _kinds(text.split())
    return close if sum(map(bool, close)) > sum(map(bool, wide)) else wide


def _told_in_brackets(text: str) -> str:
    """Return the titles that a sentence gives in brackets before a colon, else the text itself."""
    match = _IN_BRACKETS.search(text)
    return match[1] if match else text


def _kinds(titles: Sequence[str]) -> list[str | None]:
    data = _data()
    plain = [re.sub(r"[\s_-]+", " ", title).strip("# ").lower() for title in titles]
    found: list[str | None] = [data.titles.get(title) for title in plain]
    for title, means, beside in data.beside:
        if title in plain and beside in plain:
            found[plain.index(title)] = means
    return found


def _tells(kinds: Sequence[str | None]) -> bool:
    known = {kind for kind in kinds if kind is not None}
    once = len(known) == sum(kind is not None for kind in kinds)
    runs = "node" in known and bool(known & _RUNS)
    return once and (runs or {"rank", "pid"} <= known or {"gpu", "pci"} <= known)
