"""Reads the series files of a job and turns each into a survey like that of a log.

A row stands on a line of its file; of an event file, which has none, on the number of its record.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from rerail.lazy_patterns import lazy
from rerail.log_parsers.opening import open_source
from rerail.log_parsers.redaction import redact_line
from rerail.log_parsers.series_files.event_file import EventFile, read_events
from rerail.log_parsers.series_files.forms import EVENT_FILE, METRICS_CSV, TRAINER_STATE
from rerail.log_parsers.series_files.metrics_csv import read_metrics_csv
from rerail.log_parsers.series_files.points import MOST_POINTS, Points
from rerail.log_parsers.series_files.trainer_state import read_state
from rerail.log_parsers.sources import Problem, Readable, Source, reading_order
from rerail.log_parsers.step_numbers import StepRow
from rerail.log_parsers.survey import FileSurvey

_MOST_BYTES = 128 << 20  # of a JSON or CSV file; a million steps take some 60 MB
_LATEST_S = 4e9  # seconds since the epoch
_LINE = 400
_CHECKPOINT = lazy(r"(?:^|/)checkpoint-\d+$")
# Numbers and one name, as loggers write them: nothing in it can be a secret.
_PLAIN = lazy(rb"[\s\d.,;eE+\-naifNAIF\"]*|\s*\"[\w/ .()-]{1,80}\": [-\d.eE+naifNAIFty]{1,40},?\s*")


@dataclass(slots=True)
class _Run:
    """One file as it was read: its points, and of an event file what else is known."""

    source: Source
    points: Points
    lines: int
    size: int
    damage: list[str]
    events: EventFile | None = None
    text: dict[int, bytes] = field(default_factory=dict)


def read_series_files(found: Sequence[tuple[Source, str]]) -> list[FileSurvey]:
    """Read the series files of a job, each given with its kind, and return their surveys."""
    surveys: list[FileSurvey] = []
    events: dict[str, list[_Run]] = defaultdict(list)
    states: dict[str, list[_Run]] = defaultdict(list)
    for source, kind in found:
        folder = source.name.rpartition("/")[0]
        if kind == EVENT_FILE:
            events[str(source.path.parent) if source.path else folder].append(_events_of(source))
        elif kind == TRAINER_STATE:
            run = _text_of(source, read_state)
            states[_job_of(source, folder)].append(run)
        elif kind == METRICS_CSV:
            surveys.append(_survey(_text_of(source, read_metrics_csv), METRICS_CSV))
    for runs in events.values():
        surveys += [_survey(run, EVENT_FILE) for run in _joined(runs)]
    # Each checkpoint holds the history up to itself: the last one says it all.
    for runs in states.values():
        read = [_survey(run, TRAINER_STATE) for run in runs]
        surveys.append(max(read, key=lambda one: (_last_step(one), reading_order(one.source.name))))
    return surveys


def _job_of(source: Source, folder: str) -> str:
    where = str(source.path.parent) if source.path else folder
    return str(Path(where).parent) if _CHECKPOINT.search(where) else where


def _last_step(one: FileSurvey) -> int:
    return max((row.step or 0 for row in one.steps), default=-1)


def _events_of(source: Source) -> _Run:
    points, seen, damage = Points(), EventFile(), []
    size = source.size
    try:
        with open_source(source) as stream:
            seen = read_events(stream, points)
    except (OSError, EOFError, ValueError) as error:
        damage.append(f"reading stopped: {error or type(error).__name__}")
    return _Run(source, points, seen.records, size, seen.damage + damage, seen)


def _text_of(source: Source, read: Callable[[bytes, Points], list[str]]) -> _Run:
    points, damage = Points(), []
    data = b""
    try:
        with open_source(source) as stream:
            data = _whole(stream)
    except (OSError, EOFError, ValueError) as error:
        damage.append(f"reading stopped: {error or type(error).__name__}")
    if len(data) > _MOST_BYTES:
        data = data[: data.rfind(b"\n", 0, _MOST_BYTES) + 1]
        damage.append(f"only the first {_MOST_BYTES >> 20} MB were read")
    damage += read(data, points)
    return _Run(source, points, data.count(b"\n") + (not data.endswith(b"\n")), len(data), damage,
                text=dict(enumerate(data.split(b"\n"), 1)))  # fmt: skip


def _whole(stream: Readable) -> bytes:
    parts, size = [], 0
    while size <= _MOST_BYTES and (block := stream.read(1 << 20)):
        parts.append(block)
        size += len(block)
    return b"".join(parts)


def _joined(runs: list[_Run]) -> Iterable[_Run]:
    """Join the event files of one folder that follow each other, or that hold different names.

    Files that were written at the same time under the same names are those of several ranks.
    """
    joined: list[list[_Run]] = []
    ordered = sorted(
        runs, key=lambda run: (run.events.first_time if run.events else math.inf, run.source.name)
    )
    for run in ordered:
        for group in joined:
            if all(_fits(run, other) for other in group):
                group.append(run)
                break
        else:
            joined.append([run])
    for group in joined:
        yield group[0] if len(group) == 1 else _join(group)


def _fits(run: _Run, other: _Run) -> bool:
    mine, theirs = run.events, other.events
    if mine is None or theirs is None:
        return False
    return mine.first_time >= theirs.last_time or not mine.tags & theirs.tags


def _join(group: list[_Run]) -> _Run:
    first = group[0]
    joined = _Run(first.source, Points(), 0, sum(run.size for run in group), [], first.events)
    for run in group:
        file = run.source.name.rpartition("/")[2]
        joined.points.append(run.points, joined.lines)
        joined.text[joined.lines + 1] = file.encode()
        joined.damage += [f"{file}: {one}" for one in run.damage]
        joined.lines += run.lines
    folder = first.source.name.rpartition("/")[0]
    name = f"{folder}/events.out.tfevents.*" if folder else "events.out.tfevents.*"
    joined.source = replace(first.source, path=None, name=name, size=joined.size)
    return joined


def _survey(run: _Run, form: str) -> FileSurvey:
    result = FileSurvey(run.source, lines=run.lines, size=run.size)
    result.steps = run.points.rows(form)
    if run.points.full:
        run.damage.append(
            f"a name has more than {MOST_POINTS} values; what follows them was not read"
        )
    if not result.steps and not run.damage:
        names = (
            ", ".join(sorted(name for name, _ in run.points.names())[:8])
            or "none that rerail knows"
        )
        run.damage.append(
            f"it holds no loss, step time or throughput under a known name (known: {names})"
        )
    result.problems = [Problem(run.source.name, why, _hint(form)) for why in run.damage]
    if form == EVENT_FILE:
        result.kept = _record_lines(run, result.steps)
    else:
        result.kept = {
            row.line: _shown(run.text[row.line]) for row in result.steps if row.line in run.text
        }
    result.last_nonempty = max(result.kept, default=0)
    return result


def _hint(form: str) -> str:
    if form == EVENT_FILE:
        return "tensorboard --inspect --event_file FILE lists what is in it"
    return "copy the file again, or give the job's own log"


def _shown(raw: bytes) -> bytes:
    raw = raw[:_LINE].rstrip(b"\r")
    return raw if _PLAIN.fullmatch(raw) else redact_line(raw)


def _record_lines(run: _Run, rows: list[StepRow]) -> dict[int, bytes]:
    """Return what each row says in words, for an event file has no text of its own."""
    starts = sorted(run.text)
    kept = {}
    for row in rows:
        start = starts[bisect_right(starts, row.line) - 1] if starts else 1
        file = run.text[start].decode() + ", " if starts else ""
        said = ", ".join(
            f"{name.replace('_', ' ')} {value:.6g}"
            for name in ("loss", "grad_norm", "step_time", "throughput", "learning_rate")
            if (value := getattr(row, name)) is not None
        )
        number = row.line - start + 1
        kept[row.line] = f"{file}record {number}: {_when(row)}step {row.step}, {said}".encode()
    return kept


def _when(row: StepRow) -> str:
    """Return the time at which a record was written, by which it is compared with the lines of logs."""
    if row.time is None or not 0 < row.time < _LATEST_S:
        return ""
    return f"{datetime.fromtimestamp(row.time, UTC):%Y-%m-%dT%H:%M:%SZ} "
