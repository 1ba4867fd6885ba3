"""A survey as a JSON value and back, so that what one machine read can be judged on another.

Bytes that are no UTF-8 travel as lone surrogates, numbers of streams and signatures as packed columns.
The same file gives the same value, whichever way (plain or Arrow) it was read. The head of a binary
file is not written: it may hold anything, and is read again from its path.
"""

from __future__ import annotations

import base64
import binascii
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from rerail.domain.evidence import Stream
from rerail.errors import EvidenceError
from rerail.log_parsers.facts import SHIFT, Facts
from rerail.log_parsers.last_steps import LastSteps
from rerail.log_parsers.line_marks import LineMarks
from rerail.log_parsers.line_tails import Tail
from rerail.log_parsers.opening import Part
from rerail.log_parsers.prefixes import Origin
from rerail.log_parsers.sources import Problem, Source
from rerail.log_parsers.step_numbers import StepRow
from rerail.log_parsers.streams import NOBODY, WINDOW
from rerail.log_parsers.survey import FileSurvey, Hit

_HEAD = 65536
_COLUMNS = ("keys", "counts", "firsts", "lasts")
_PLACE = ("rank", "local_rank", "node", "pid", "place", "attempt")


def problem_row(problem: Problem) -> list[object]:
    """Return a problem as a row of JSON."""
    return [problem.subject, problem.why, problem.hint, problem.cut, problem.unread]


def problem_of(row: Sequence[object]) -> Problem:
    """Return the problem of such a row.

    Raises:
        ValueError, TypeError: when the row is none.
    """
    subject, why, hint, *marks = row
    cut, unread = (*map(bool, marks), False, False)[:2]
    return Problem(str(subject), str(why), str(hint), cut=cut, unread=unread)


def source_row(source: Source) -> dict[str, Any]:
    """Return a file as a JSON value: its path, name and size, and what its name tells of its writer."""
    origin = source.origin
    told = {key: getattr(origin, key) for key in _PLACE if getattr(origin, key) is not None}
    parts = {"parts": [source_row(part) for part in source.parts]} if source.parts else {}
    return {
        **parts,
        "path": None if source.path is None else _text(bytes(source.path)),
        "name": source.name, "size": source.size, "origin": told,
        "stream": None if origin.stream is None else origin.stream.value,
    }  # fmt: skip


def source_of(row: dict[str, Any]) -> Source:
    """Return the file that a JSON value names."""
    stream = None if row["stream"] is None else Stream(row["stream"])
    path = None if row["path"] is None else Path(row["path"])
    place = {key: value for key, value in row["origin"].items() if key in _PLACE}
    parts = tuple(map(source_of, row.get("parts", ())))
    return Source(path, str(row["name"]), Origin(**place, stream=stream), int(row["size"]), parts)


def survey_row(survey: FileSurvey) -> dict[str, Any]:
    """Return a survey as a JSON value; templates of all lines (`miner`) are not part of it."""
    return {
        "source": source_row(survey.source), "lines": survey.lines, "size": survey.size,
        "whole": survey.whole, "binary": survey.binary,
        "kept": [[number, _text(survey.kept[number])] for number in sorted(survey.kept)],
        "hits": [[hit.line, hit.signature] for hit in survey.hits],
        "counts": sorted(survey.counts.items()),
        "steps": [_short(astuple(row)) for row in survey.steps],
        "counted": [_short(astuple(row)) for row in survey.counted],
        "last_nonempty": survey.last_nonempty, "ends_with_newline": survey.ends_with_newline,
        "problems": [problem_row(one) for one in survey.problems],
        "facts": _facts_row(survey.facts), "marks": survey.marks.kept(),
        "parts": [[part.above, part.first, part.size, part.ends] for part in survey.parts],
    }  # fmt: skip


def survey_of(row: Any, where: str) -> FileSurvey:
    """Return the survey that a JSON value holds.

    Raises:
        EvidenceError: a part of it is missing or of a wrong type.
    """
    try:
        source = source_of(row["source"])
        survey = FileSurvey(
            source, int(row["lines"]), int(row["size"]), bool(row["whole"]),
            {int(number): _bytes(text) for number, text in row["kept"]},
            [Hit(int(line), int(signature)) for line, signature in row["hits"]],
            {int(signature): int(count) for signature, count in row["counts"]},
            [StepRow(*values) for values in row["steps"]],
            int(row["last_nonempty"]), bool(row["ends_with_newline"]),
            [problem_of(one) for one in row["problems"]], bool(row["binary"]),
            counted=[StepRow(*values) for values in row["counted"]],
            facts=_facts_of(row["facts"]),
            marks=LineMarks((int(line), int(at)) for line, at in row.get("marks", ())),
            parts=[
                Part(part, int(above), int(first), int(size), bool(ends))
                for part, (above, first, size, ends) in zip(
                    source.parts, row.get("parts", ()), strict=True
                )
            ],
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise EvidenceError(
            f"{where}: what was scanned is damaged ({type(error).__name__}: {error})",
            subject=where, hint="scan the logs again: rerail scan --logs LOGS --out FOLDER",
        ) from None  # fmt: skip
    if survey.binary:
        _read_head(survey)
    return survey


def _read_head(survey: FileSurvey) -> None:
    path = survey.source.path
    try:
        if path is not None and path.is_file():
            with path.open("rb") as stream:
                survey.head = stream.read(_HEAD)
            return
        why = "not to be found where it was scanned"
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
    survey.problems.append(Problem(survey.source.name, why, "diagnose where the logs lie"))


def _short(values: tuple[Any, ...]) -> list[Any]:
    """Return the fields of a step row without those at the end that say nothing."""
    kept = list(values)
    while kept and kept[-1] is None:
        kept.pop()
    return kept


def _facts_row(facts: Facts) -> dict[str, Any]:
    """Return facts with sets and streams in an order of their own: sets sorted, streams by first line."""
    order = sorted(range(len(facts.sets)), key=lambda at: facts.sets[at])
    set_at = {old: new for new, old in enumerate(order)}
    mask = (1 << SHIFT) - 1
    first: dict[int, int] = {}
    for key, line in zip(facts.keys, facts.firsts, strict=True):
        stream = key & mask
        first[stream] = min(line, first.get(stream, line))
    streams = sorted(
        range(len(facts.examples)), key=lambda s: (s != NOBODY, first.get(s, sys.maxsize), s)
    )
    stream_at = {old: new for new, old in enumerate(streams)}
    keys = [set_at[key >> SHIFT] << SHIFT | stream_at[key & mask] for key in facts.keys]
    rows = sorted(range(len(keys)), key=keys.__getitem__)
    columns = {
        "keys": [keys[at] for at in rows],
        **{name: [getattr(facts, name)[at] for at in rows] for name in _COLUMNS[1:]},
    }
    windows = {
        name: b"".join(_window(getattr(facts, name), at) for at in rows)
        for name in ("first_windows", "last_windows")
    }
    return {
        "sets": [list(facts.sets[at]) for at in order],
        "examples": [_text(facts.examples[at]) for at in streams],
        "ends": [facts.ends[at] for at in streams],
        **{name: _packed(values) for name, values in columns.items()},
        **{name: base64.b64encode(value).decode() for name, value in windows.items()},
        "last_stamped": _text(facts.last_stamped),
        "by_records": facts.by_records,
        "tail": None if facts.tail is None else [facts.tail.before, facts.tail.after],
        "last_steps": [
            _packed([stream_at[stream] for stream in facts.last_steps.streams]),
            _packed(facts.last_steps.lines),
            _packed(facts.last_steps.steps),
        ],
    }


def _window(windows: bytes, at: int) -> bytes:
    """Return the bytes around a time as far as its line goes; read with Arrow they hold more."""
    line = windows[at * WINDOW : (at + 1) * WINDOW].partition(b"\n")[0]
    return line.rstrip(b"\0").ljust(WINDOW, b"\0")


def _facts_of(row: dict[str, Any]) -> Facts:
    keys, counts, firsts, lasts = (_unpacked(row[name]) for name in _COLUMNS)
    facts = Facts(
        [_bytes(one) for one in row["examples"]], array("i", row["ends"]),
        [tuple(map(int, one)) for one in row["sets"]], keys, counts, firsts, lasts,
        base64.b64decode(row["first_windows"]), base64.b64decode(row["last_windows"]),
        _bytes(row.get("last_stamped", "")), LastSteps(*map(_unpacked, row.get("last_steps", ()))),
        bool(row.get("by_records", False)), _tail_of(row.get("tail")),
    )  # fmt: skip
    rows = len(facts.keys)
    whole = len(facts.examples) == len(facts.ends) and all(
        len(getattr(facts, name)) == rows for name in _COLUMNS[1:]
    )
    if len({len(facts.last_steps.lines), len(facts.last_steps.steps), len(facts.last_steps)}) > 1:
        raise ValueError("columns of different lengths")
    if not whole or {len(facts.first_windows), len(facts.last_windows)} != {rows * WINDOW}:
        raise ValueError("columns of different lengths")
    streams = (*(key & ((1 << SHIFT) - 1) for key in facts.keys), *facts.last_steps.streams)
    if any(stream >= len(facts.examples) for stream in streams):
        raise ValueError("a stream that is not there")
    return facts


def _tail_of(parts: Any) -> Tail | None:
    return None if parts is None else Tail(*map(str, parts))


def _packed(values: Iterable[int]) -> str:
    column = array("q", values)
    if sys.byteorder == "big":
        column.byteswap()
    return base64.b64encode(column.tobytes()).decode()


def _unpacked(text: str) -> array[int]:
    column = array("q")
    column.frombytes(base64.b64decode(text))
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
