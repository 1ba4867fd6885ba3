"""Damages recorded jobs and diagnoses them: no traceback, no hang, bounded memory, and nothing readable is lost."""

from __future__ import annotations

import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from unittest.mock import patch

from rerail.assistant.pipeline import diagnose_paths
from rerail.errors import EvidenceError, UsageError
from rerail.evals.soak.damage import DAMAGES, VANISHED
from rerail.log_parsers import opening, survey
from rerail.log_parsers.sources import Source

LIMIT_S = 10.0
"""CPU seconds that a diagnosis may take."""

_WAIT = 6  # times as many seconds may pass, where others use the machine
MEMORY_MB = 300.0
"""How much the process may grow over all damages."""

_WARM = 50


@dataclass(slots=True)
class Report:
    """What a soak found; `faults` are its failures, one sentence each."""

    runs: int = 0
    by_damage: Counter[str] = field(default_factory=Counter)
    unreadable: int = 0
    slowest_s: float = 0.0
    grown_mb: float = 0.0
    faults: list[str] = field(default_factory=list)


class _Hang(BaseException):
    """The time of one diagnosis is over; nothing that catches exceptions may hold it."""


def soak(
    jobs: Path, count: int, *, seed: int = 1, on_run: Callable[[int], None] | None = None
) -> Report:
    """Damage and diagnose `count` times; a seed gives the same damages again.

    Raises:
        UsageError: when the folder holds no jobs.
    """
    folders = sorted(path for path in jobs.iterdir() if path.is_dir()) if jobs.is_dir() else []
    if not folders:
        raise UsageError(
            f"{jobs} holds no recorded jobs", subject=str(jobs), hint="name a folder of job folders"
        )
    _compile_rules()
    truth = {folder: _answer(folder) for folder in folders}
    report, start = Report(), 0.0
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        with tempfile.TemporaryDirectory() as temporary:
            folder = rng.choice(folders)
            work = Path(temporary) / folder.name
            shutil.copytree(folder, work)
            _one(work, truth[folder], rng, report, f"seed {seed}, run {number}, {folder.name}")
        if number == min(_WARM, count // 2):
            start = _peak_mb()
        if on_run is not None:
            on_run(number + 1)
    report.grown_mb = _peak_mb() - start
    if report.grown_mb > MEMORY_MB:
        report.faults.append(f"memory grew by {report.grown_mb:.0f} MB over {count} runs")
    return report


def _one(
    work: Path, truth: tuple[str, str | None], rng: random.Random, report: Report, name: str
) -> None:
    files = sorted(path for path in work.rglob("*") if path.is_file() and path.stat().st_size)
    harmless = True
    meanwhile: dict[Path, bytes | None] = {}
    done = []
    for path in rng.sample(files, min(len(files), rng.choice((1, 1, 2, 5)))):
        if rng.random() < 0.04:
            meanwhile[path], harmless = None, False
            done.append(VANISHED)
            continue
        damage = rng.choice(DAMAGES)
        done.append(damage.name)
        harmless = harmless and damage.lossless
        made = damage.make(path.read_bytes(), rng)
        if damage.meanwhile:
            meanwhile[path] = made
        else:
            path.write_bytes(made)
    report.runs += 1
    report.by_damage.update(done)
    told = f"{name}, {', '.join(done)}"
    started = time.perf_counter()
    try:
        with _limit(), _changed_when_opened(meanwhile):
            answer = _answer(work)
    except EvidenceError:
        report.unreadable += 1
        answer = truth if not harmless else ("nothing read", None)
    except _Hang:
        report.faults.append(f"{told}: not done within {LIMIT_S:g} s")
        return
    except Exception as error:
        report.faults.append(f"{told}: {type(error).__name__}: {error}")
        return
    finally:
        report.slowest_s = max(report.slowest_s, time.perf_counter() - started)
    if harmless and answer != truth:
        report.faults.append(f"{told}: {answer} instead of {truth}")


def _compile_rules() -> None:
    """What takes a minute once on a new machine is no hang of any file."""
    with tempfile.TemporaryDirectory() as temporary:
        large = Path(temporary) / "large.log"
        large.write_bytes(b"a line that tells nothing\n" * (1 << 16))
        diagnose_paths([large])


def _answer(folder: Path) -> tuple[str, str | None]:
    found = diagnose_paths([folder]).diagnosis
    return str(found.outcome), found.failure_type


@contextmanager
def _limit() -> Iterator[None]:
    def over(_signal: int, _frame: FrameType | None) -> None:
        raise _Hang

    # On a machine that is shared, work takes its time; a wait ends in any case.
    clocks = ((signal.ITIMER_PROF, signal.SIGPROF, 1), (signal.ITIMER_REAL, signal.SIGALRM, _WAIT))
    before = [(one, signal.signal(one, over)) for _, one, _ in clocks]
    for timer, _, times in clocks:
        signal.setitimer(timer, LIMIT_S * times)
    try:
        yield
    finally:
        for timer, _, _ in clocks:
            signal.setitimer(timer, 0)
        for one, handler in before:
            signal.signal(one, handler)


@contextmanager
def _changed_when_opened(changes: dict[Path, bytes | None]) -> Iterator[None]:
    """Let files change between being found and being read, as those of a running job do."""
    whole = opening.open_source

    def opened(source: Source) -> object:
        change = changes.pop(source.path, b"-") if source.path is not None else b"-"
        if change is None and source.path is not None:
            source.path.unlink()
        stream = whole(source)
        if change not in (None, b"-") and source.path is not None:
            with source.path.open("r+b") as file:  # the same file, not another one of its name
                file.truncate(0)
                file.write(change or b"")
        return stream

    with patch.object(survey, "open_source", opened):
        yield


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform != "darwin" else peak / 1024**2


def soak_command(jobs: Path, count: int, seed: int) -> int:
    """Run the soak, print what it found, and return 0 if nothing failed, else 1."""
    from rerail.assistant.cli.working import Working

    at = [0]

    def note(number: int) -> None:
        at[0] = number

    with Working(lambda: f"{at[0]} of {count} damages"):
        report = soak(jobs, count, seed=seed, on_run=note)
    for name, times in sorted(report.by_damage.items()):
        print(f"{times:7,}  {name}")
    print(
        f"{report.runs:,} damaged jobs; {report.unreadable:,} of them held nothing readable any more; slowest"
        f" {report.slowest_s:.1f} s; memory grew by {report.grown_mb:.0f} MB; {len(report.faults)} failures"
    )
    for fault in report.faults[:40]:
        print(f"  {fault}")
    return 1 if report.faults else 0
