"""Reads everything that was asked for: finds files, surveys them side by side, sorts out dumps."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path

from rerail.errors import EvidenceError
from rerail.late_dataclass import dataclass
from rerail.log_parsers.compiled_cache import tell_nobody
from rerail.log_parsers.file_origins import content_origins
from rerail.log_parsers.room import Room
from rerail.log_parsers.rotated import joined
from rerail.log_parsers.scan import SMALL, Scanner, Signature, is_compiled, make_scanner
from rerail.log_parsers.scanned import Scanned
from rerail.log_parsers.series_files.forms import FORMS
from rerail.log_parsers.series_files.recognise import kind_of
from rerail.log_parsers.shared_front import behind_shared_front, told_apart
from rerail.log_parsers.sources import (
    STDIN,
    Discovery,
    Problem,
    Source,
    discover,
    join,
    reading_order,
)
from rerail.log_parsers.survey import FileSurvey, survey
from rerail.log_parsers.timestamps import latest_year
from rerail.log_parsers.view import LogView

_FIRST_YEAR = 1990
PARALLEL_FROM = 48 << 20
"""Below this many bytes a second process costs more than it saves."""


@dataclass(slots=True)
class Collection:
    """Everything that was read: text as views, binary files apart, and what is missing.

    `profiles` lie beside the logs and were not read; of `missing_shards` nothing is known.
    """

    views: list[LogView] = field(default_factory=list)
    binaries: list[FileSurvey] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    profiles: list[Path] = field(default_factory=list)
    missing_shards: int = 0
    size: int = 0
    lines: int = 0
    year: int = 1970


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What to scan for and how; small enough to send to a worker process."""

    signatures: tuple[Signature, ...]
    cache: Path | None = None
    engine: str | None = None
    mine: bool = False
    room: Room = field(default_factory=Room)


def plan_for(plan: ScanPlan, files: int) -> ScanPlan:
    """Return the plan for so many files."""
    return replace(plan, room=plan.room.among(files))


def collect(
    arguments: Iterable[str | Path],
    plan: ScanPlan,
    *,
    workers: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
    located: Discovery | None = None,
    read_scanned: Callable[[Sequence[Path]], Scanned] | None = None,
) -> Collection:
    """Read all sources.

    Args:
        arguments: files, folders, globs, `-`.
        plan: the signatures.
        located: further sources, found by the name of their job.
        workers: processes; 0 takes one per core.
        on_progress: called with (bytes done, bytes in all; 0 when unknown).
        read_scanned: brings back the files of shards (`rerail scan --logs`) that are among the sources.

    Raises:
        EvidenceError: when nothing at all could be read, or shards are not of these rules.
    """
    found = discover(arguments)
    if located is not None:
        found = join(found, located)
    if not found.sources and not (found.scanned and read_scanned):
        raise _nothing(found)
    scanned = read_scanned(found.scanned) if read_scanned and found.scanned else Scanned()
    if scanned.surveys and plan.mine:
        raise EvidenceError(
            "a digest counts all lines, and of scanned logs only those that matter were kept",
            subject=str(found.scanned[0]), hint="rerail diagnose --digest FILE LOGS",
        )  # fmt: skip
    found.sources = joined(found.sources)
    total = sum(source.size for source in found.sources)
    plan = plan_for(plan, len(found.sources))
    kinds = [(source, kind_of(source)) for source in found.sources]
    logs = [source for source, kind in kinds if kind is None]
    surveys = _survey_all(logs, plan, workers, total, on_progress) if logs else []
    series = [*scanned.series, *((source, kind) for source, kind in kinds if kind)]
    if series:
        from rerail.log_parsers.series_files.read import read_series_files

        surveys += read_series_files(series)
    collection = assemble([*scanned.surveys, *surveys], [*found.problems, *scanned.problems])
    collection.profiles = [*found.profiles, *scanned.profiles]
    collection.missing_shards = scanned.missing
    if not collection.size and not collection.binaries:
        raise _unread(collection)
    return collection


def assemble(surveys: Sequence[FileSurvey], problems: Sequence[Problem] = ()) -> Collection:
    """Turn surveys into views, with one year for stamps that carry none."""
    collection = Collection(problems=list(problems))
    texts: list[FileSurvey] = []
    # Lines say more than numbers do: of a job that left both the log is judged first.
    for one in sorted(surveys, key=lambda one: (_no_log(one), reading_order(one.source.name))):
        collection.problems += one.problems
        collection.size += one.size
        collection.lines += one.lines
        if one.binary:
            collection.binaries.append(one)
        elif _is_a_hole(one):
            why = "not a text file, but NUL bytes alone: what was written is lost"
            hint = "name the job's log, as text"
            collection.problems.append(Problem(one.source.name, why, hint, unread=True))
        elif one.kept:
            texts.append(one)
    year = collection.year = _year(texts)
    behind = told_apart([behind_shared_front(one, year=year) for one in texts])
    texts = [
        one if found is None else found.survey for one, found in zip(texts, behind, strict=True)
    ]
    origins = content_origins(texts, year=year)
    for index, (one, found) in enumerate(zip(texts, behind, strict=True)):
        origin = origins.get(one.source.name)
        originals = None if found is None else found.originals
        collection.views.append(LogView(one, index, year=year, origin=origin, originals=originals))
    return collection


def _is_a_hole(one: FileSurvey) -> bool:
    """Tell whether a file is one line of NUL bytes, which a writer leaves whose file was truncated under it."""
    told = one.problems or one.steps  # a file of numbers keeps no lines
    empty = not told and one.lines <= 1 and one.size > _HOLE
    return empty and not b"".join(one.kept.values()).strip(b"\0")


def _no_log(one: FileSurvey) -> bool:
    return bool(one.steps) and one.steps[0].form in FORMS


def _unread(collection: Collection) -> EvidenceError:
    """Nothing came out of any source: say what stood in the way of the first."""
    if collection.problems:
        first = collection.problems[0]
        return EvidenceError(
            f"{first.subject}: {first.why}", subject=first.subject, hint=first.hint
        )
    return EvidenceError(
        "nothing could be read: the input is empty",
        subject="",
        hint="check that the job wrote to it",
    )


def _nothing(found: Discovery) -> EvidenceError:
    if found.problems:
        first = found.problems[0]
        return EvidenceError(
            f"{first.subject}: {first.why}", subject=first.subject, hint=first.hint
        )
    if found.profiles:
        folder = str(found.profiles[0].parent)
        return EvidenceError(
            f"{folder} holds profiles and no logs", subject=folder, hint=f"rerail localize {folder}"
        )
    return EvidenceError(
        "the folder holds no log files",
        subject="",
        hint="name the log files, or the job's log folder",
    )


def _survey_all(
    sources: list[Source],
    plan: ScanPlan,
    workers: int,
    total: int,
    on_progress: Callable[[int, int], None] | None,
) -> list[FileSurvey]:
    count = workers or os.cpu_count() or 1
    piped = any(s.name == STDIN for s in sources)
    names = (part.name for s in sources for part in s.parts or [s])
    known = not piped and not any(name.endswith(_PACKED) for name in names)
    scanner = scanner_for(plan, total if known else None)
    if count > 1 and len(sources) > 1 and total > PARALLEL_FROM and not piped:
        surveyed = _in_parallel(sources, plan, count, total, on_progress)
        if surveyed is not None:
            return surveyed
    done = 0
    surveys = []
    for source in sources:
        base = done
        read = 0

        def advance(count: int, base: int = base, source: Source = source) -> None:
            nonlocal read
            read += count
            if on_progress is not None:
                on_progress(base + min(read, source.size or read), total)

        surveys.append(
            survey(
                source,
                plan.signatures,
                scanner,
                on_bytes=advance,
                mine=plan.mine,
                room=plan.room,
            )
        )
        done += source.size
    return surveys


_HOLE = 64  # bytes
_PACKED = (".gz", ".zst", ".xz", ".bz2")  # how much is in them is not known
_of_thread = threading.local()


def scanner_for(plan: ScanPlan, size: int | None) -> Scanner:
    """Return the scanner of this thread, built once for as long as the rules stay the same.

    A daemon diagnoses many jobs, and loading the compiled rules takes longer than a small log. A
    scanner's scratch space serves one thread. One that was built for a small log serves small logs.
    """
    wanted = (plan.signatures, plan.cache, plan.engine)
    held = getattr(_of_thread, "held", None)
    if held is None or held[0] != wanted or not (held[1] or (size is not None and size <= SMALL)):
        made = make_scanner(plan.signatures, cache=plan.cache, engine=plan.engine, size=size)
        large = size is None or size > SMALL or plan.engine is not None or is_compiled(made)
        held = _of_thread.held = (wanted, large, made)
    scanner: Scanner = held[2]
    return scanner


_worker_scanner: tuple[ScanPlan, Scanner] | None = None


def _start_worker(plan: ScanPlan) -> None:
    global _worker_scanner
    tell_nobody()  # the process that began the reading has told it, and waits as well
    _worker_scanner = (plan, make_scanner(plan.signatures, cache=plan.cache, engine=plan.engine))


def _survey_one(source: Source) -> FileSurvey:
    assert _worker_scanner is not None
    plan, scanner = _worker_scanner
    return survey(source, plan.signatures, scanner, mine=plan.mine, room=plan.room)


def _in_parallel(
    sources: list[Source],
    plan: ScanPlan,
    count: int,
    total: int,
    on_progress: Callable[[int, int], None] | None,
) -> list[FileSurvey] | None:
    """Survey in `count` processes; None when there are no more to be had (a limit, no memory)."""
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    done = 0
    surveys: list[FileSurvey] = []
    try:
        with ProcessPoolExecutor(count, initializer=partial(_start_worker, plan)) as pool:
            for source, result in zip(
                sources, pool.map(_survey_one, sources, chunksize=1), strict=True
            ):
                surveys.append(result)
                done += source.size
                if on_progress is not None:
                    on_progress(done, total)
    except (BrokenProcessPool, OSError):
        return None
    return surveys


def _year(surveys: Sequence[FileSurvey]) -> int:
    """The latest year any line names, else that of the youngest file."""
    latest = _FIRST_YEAR
    for one in surveys:
        numbers = sorted(one.kept)
        heads = [one.kept[number][:300] for number in numbers[:200] + numbers[-200:]]
        latest = latest_year(heads, latest)
    if latest > _FIRST_YEAR:
        return latest
    import time

    stamps = [
        s.source.path.stat().st_mtime for s in surveys if s.source.path and s.source.path.exists()
    ]
    return time.gmtime(max(stamps) if stamps else None).tm_year
