"""Makes what a locator found readable for a diagnosis: files stay where they lie, all else is copied.

A file is held open as it was judged, and read by a link to the open file: whoever swaps the name
afterwards changes nothing. Copies lie in a folder of this process, which is removed at its end.
"""

from __future__ import annotations

import os
import resource
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from rerail.assistant.locate.budget import Budget, TimeIsUp, in_words
from rerail.assistant.locate.job_name import JobName
from rerail.assistant.locate.locator import Found, Item, Locator, NothingYetError, locators_for
from rerail.domain.evidence import Stream
from rerail.errors import RerailError
from rerail.log_parsers.sources import Discovery, Problem, Source, source_at

MOST_COPIED_BYTES = 256 << 20
"""Of one item that is no file here."""
SIDE_BY_SIDE = 8
_OWN = __name__.rpartition(".")[0]
PIECE = 1 << 20


@dataclass
class Gathered:
    """The evidence of one job for as long as it is read; use it as a context manager."""

    job: str = ""
    attempt: int | None = None
    state: str = ""
    ended: bool = False
    evidence: Discovery = field(default_factory=Discovery)
    told: list[str] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    """Folders of files that the asking user owns: they may be looked at again later."""
    folders: tuple[Path, ...] | None = None
    """Of files here only those in these folders are read; None: all that the job's user owns."""
    _held: list[BinaryIO] = field(default_factory=list)
    _folder: Path | None = None
    _known: set[tuple[int, int]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Gathered:
        """Nothing is to be done."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let go of the files and remove the copies."""
        for stream in self._held:
            stream.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def take(self, locator: Locator, items: Iterable[Item], budget: Budget) -> None:
        """Open what was found; what cannot be opened, or not in time, is missing evidence."""
        self._folder = self._folder or Path(tempfile.mkdtemp(prefix="rerail-located-"))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        first = len(self.evidence.sources) + len(self._held)
        numbered = [(self._folder / str(first + n), item) for n, item in enumerate(items)]
        copied = [one for one in numbered if not one[1].file]
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            list(pool.map(lambda one: self._judged(locator, one[1], one[0], budget), copied))
        for place, item in numbered:
            if item.file:
                self._judged(locator, item, place, budget)
        order = {item.name: number for number, (_, item) in enumerate(numbered)}
        self.evidence.sources.sort(key=lambda one: order.get(one.name, -1))

    def _judged(self, locator: Locator, item: Item, place: Path, budget: Budget) -> None:
        try:
            if item.file:
                path = Path(item.name)
                stream = budget.on_files(lambda: locator.open(item), path)
                self._hold(stream, item, place)
            else:
                self._copy(locator, item, place, budget)
        except (RerailError, OSError) as error:
            why, hint = in_words(error)
            why = why.removeprefix(f"{item.name} ").removeprefix(": ")
            self._miss(item.name, why, hint, unread=item.stream is not Stream.KERNEL)

    def _hold(self, stream: BinaryIO, item: Item, place: Path) -> None:
        facts = os.fstat(stream.fileno())
        key = (facts.st_dev, facts.st_ino)
        if key in self._known or not stat.S_ISREG(facts.st_mode):
            stream.close()
            return
        self._known.add(key)
        if not item.by_site and not self._may_read(stream):
            stream.close()
            self._miss(
                item.name,
                "is not in a folder that this server reads",
                "start it with --logs FOLDER",
            )
            return
        if not facts.st_size:
            stream.close()
            self._miss(item.name, "the file is empty", "check that the job wrote to it")
            return
        self._held.append(stream)
        place.mkdir()
        link = place / Path(item.name).name
        link.symlink_to(f"/proc/{os.getpid()}/fd/{stream.fileno()}")
        self.evidence.sources.append(_source(link, item))
        if facts.st_uid == os.geteuid():
            self.paths.add(str(Path(item.name).parent))

    def _may_read(self, stream: BinaryIO) -> bool:
        """Tell whether an open file lies in a folder that may be read, whatever name led to it."""
        if self.folders is None:
            return True
        real = Path(f"/proc/self/fd/{stream.fileno()}").readlink()
        return any(real.is_relative_to(folder) for folder in self.folders)

    def _copy(self, locator: Locator, item: Item, place: Path, budget: Budget) -> None:
        place.mkdir()
        target = place / (Path(item.name).name or "item")
        stopped = threading.Event()
        cut: list[str] = []

        def copy() -> None:
            with locator.open(item) as stream, target.open("wb") as out:
                left = MOST_COPIED_BYTES
                while left > 0 and not stopped.is_set() and (piece := stream.read(PIECE)):
                    left -= out.write(piece[:left])
                if not left:
                    cut.append(f"only its first {MOST_COPIED_BYTES >> 20} MiB were read")

        try:
            budget.call(copy, item.name)
        except TimeIsUp as late:
            stopped.set()
            got = target.stat().st_size if target.exists() else 0
            if not got:
                raise
            cut.append(f"{late.message}; the {got:,} bytes that came are read")
        with self._lock:
            if cut:
                self._miss(item.name, cut[0], "--locate-budget SECONDS", cut=True)
            if target.stat().st_size:
                self.evidence.sources.append(_source(target, item))

    def _miss(
        self, what: str, why: str, hint: str, *, cut: bool = False, unread: bool = False
    ) -> None:
        self.evidence.problems.append(Problem(what, why, hint, cut=cut, unread=unread))


def _source(path: Path, item: Item) -> Source:
    found = source_at(path, item.name, item.node, item.stream)
    if item.attempt is None:
        return found
    return replace(found, origin=replace(found.origin, attempt=item.attempt))


def gather(
    name: JobName,
    seconds: float,
    attempt: int | None = None,
    *,
    folders: tuple[Path, ...] | None = None,
) -> Gathered:
    """Return the evidence of a job, found and opened within that many seconds.

    A server names the `folders` that it reads: of files here only those in them are opened, and those that the
    site's policy names.

    Raises:
        EvidenceError: There is no such job (UnknownJobError), nobody to ask, or nothing of it can be read (NothingYetError).
        UsageError: The name means several jobs.
        ClusterError: The scheduler does not answer.
    """
    budget = Budget(seconds)
    locators, broken = locators_for(name.scheme)
    gathered = Gathered(folders=folders)
    gathered.evidence.problems += broken
    try:
        for number, locator in enumerate(locators):
            found = _located(locator, name, attempt, budget, gathered, needed=not number)
            if found is not None:
                gathered.take(locator, found.items, budget)
        if not gathered.evidence.sources:
            first = next(iter(gathered.evidence.problems), None)
            raise NothingYetError(
                f"nothing of job {name.text} can be read"
                + (f": {first.subject}: {first.why}" if first else ""),
                subject=name.text,
                hint=(first.hint if first else "") or "rerail diagnose PATH_TO_LOGS",
            )
    except BaseException:
        gathered.__exit__(None, None, None)
        raise
    return gathered


def _located(
    locator: Locator,
    name: JobName,
    attempt: int | None,
    budget: Budget,
    gathered: Gathered,
    *,
    needed: bool,
) -> Found | None:
    """Return what one locator finds; the first one has to know the job, further ones may add to it."""
    try:
        if type(locator).__module__.startswith(_OWN):
            found = locator.locate(name.job, attempt, budget)  # it keeps the budget itself
        else:
            ask = partial(locator.locate, name.job, attempt, budget)
            found = budget.in_time(ask, f"locator {type(locator).__name__} of this site")
    except Exception as error:
        if needed and isinstance(error, RerailError):
            raise
        why, hint = in_words(error)
        kind = type(locator)
        hint = hint or f"mend {kind.__module__}.{kind.__name__}, or leave its entry point out"
        gathered.evidence.problems.append(Problem(kind.__name__, why, hint))
        return None
    if needed:
        gathered.job, gathered.attempt = found.job, found.attempt
        gathered.state, gathered.ended = found.state, found.ended
    gathered.told += found.told
    gathered.evidence.problems += found.missing
    return found
