"""The lines of a stored incident: from its files while they lie there unchanged, else what was kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rerail.assistant.agent_tools.lines import SnapshotSource, as_snapshot
from rerail.domain.incident import Incident, SnapshotLine, SourceFile
from rerail.knowledge_base.store.clock import from_iso
from rerail.log_parsers.file_names import origin_of
from rerail.log_parsers.find_lines import between, find
from rerail.log_parsers.line_marks import Marks
from rerail.log_parsers.sources import STDIN, Source, leads_astray


class StoredSource:
    """The kept lines of an incident, and its files where they can still be read."""

    def __init__(self, incident: Incident) -> None:
        self._kept = SnapshotSource(incident.snapshot.lines)
        self._known = {one.name: one for one in incident.snapshot.sources}
        self._paths = {
            name: path
            for name, one in self._known.items()
            if (path := _path_of(one, incident)) is not None
        }
        self._year = int((incident.occurred_at or incident.recorded_at)[:4])
        self._count = len(incident.snapshot.lines)
        self._stopped = ""

    def files(self) -> list[str]:
        """Return the names of the files, those without a kept line too."""
        return list(dict.fromkeys([*self._kept.files(), *self._known]))

    def lying(self, file: str) -> Source | None:
        """Return a file that lies there unchanged, or None."""
        return self._source(file) if file in self._paths else None

    def marks(self, file: str) -> Marks:
        """Return where some lines of a large file begin."""
        return self._known[file].marks if file in self._known else ()

    def get(self, file: str, number: int) -> SnapshotLine | None:
        """Return one line, or None where it is not to be had."""
        kept = self._kept.get(file, number)
        return kept or next(iter(self._read(file, number, number)), None)

    def around(self, file: str, number: int, before: int, after: int) -> list[SnapshotLine]:
        """Return the lines around a number."""
        # The end of a file is asked for with a number behind every line; the kept lines hold it.
        if file in self._paths and before + after <= 400:
            found = self._read(file, max(1, number - before), number + after)
            if found:
                return found
        return self._kept.around(file, number, before, after)

    def search(self, words: Sequence[str], file: str | None) -> Iterator[SnapshotLine]:
        """Yield the lines that hold all words, whatever their case."""
        self._stopped = ""
        for name in self.files():
            if file is not None and name != file:
                continue
            if name not in self._paths:
                yield from self._kept.search(words, name)
                continue
            try:
                for line in find(self._source(name), words, year=self._year):
                    yield self._kept.get(name, line.number) or as_snapshot(line)
            except TimeoutError as error:
                self._stopped = str(error)
            except (OSError, EOFError, ValueError):
                del self._paths[name]
                yield from self._kept.search(words, name)

    def scope(self) -> str:
        """Say what a search looked through, where that is not every line."""
        if self._stopped:
            return self._stopped
        gone = [name for name in self._known if name not in self._paths]
        if not gone:
            return ""
        total = sum(self._known[name].lines or 0 for name in gone)
        kept = sum(len(self._kept.around(name, 0, 0, 1 << 60)) for name in gone)
        if total and kept >= total:
            return ""
        of = f" of their {total:,}" if total else ""
        which = gone[0] if len(gone) == 1 else f"{len(gone)} files"
        return f"{which}: gone or changed since; only the {kept:,} kept lines{of} were searched"

    def _source(self, name: str) -> Source:
        return Source(self._paths[name], name, origin_of(name))

    def _read(self, file: str, first: int, last: int) -> list[SnapshotLine]:
        if file not in self._paths:
            return []
        try:
            return [
                as_snapshot(x) for x in between(self._source(file), first, last, year=self._year)
            ]
        except (OSError, EOFError, ValueError):
            return []


_PACKED = (".gz", ".zst", ".xz", ".bz2")


def _path_of(one: SourceFile, incident: Incident) -> Path | None:
    """Return where a file lies, if it lies there as it was: a regular file of the same size.

    The size on record is that of what a file holds; of a packed one the time of its last change tells.
    """
    if one.name == STDIN:
        return None
    recorded = from_iso(incident.recorded_at).timestamp()
    for text in incident.paths:
        path = Path(text)
        for place in (path / one.name, path):
            try:
                fits = place.name == Path(one.name).name and place.is_file()
                if not fits or _was_swapped(place, path):
                    continue
                stat = place.stat()
                packed = place.suffix in _PACKED and stat.st_mtime <= recorded
                if packed or stat.st_size == one.size_bytes:
                    return place
            except OSError:
                continue
    return None


def _was_swapped(place: Path, named: Path) -> bool:
    """Tell whether a link on the way below a path that was diagnosed leads to somebody else's file by now."""
    below = [place, *place.parents]
    if named in below:
        below = below[: below.index(named) + (place == named)]
    return any(part.is_symlink() and leads_astray(part) for part in below)
