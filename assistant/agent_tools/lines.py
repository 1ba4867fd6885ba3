"""Log lines by file and number: from the logs just read, or from the snapshot of an incident."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from rerail.domain.evidence import LogLine
from rerail.domain.incident import SnapshotLine
from rerail.log_parsers.find_lines import find
from rerail.log_parsers.view import LogView

MOST_HITS = 400


class LineSource(Protocol):
    """Where lines come from; every text is cleaned and redacted."""

    def files(self) -> list[str]:
        """Return the names of the files, in the order they were read."""
        ...

    def get(self, file: str, number: int) -> SnapshotLine | None:
        """Return one line, or None where it was not kept."""
        ...

    def around(self, file: str, number: int, before: int, after: int) -> list[SnapshotLine]:
        """Return the kept lines around a number."""
        ...

    def search(self, words: Sequence[str], file: str | None) -> Iterator[SnapshotLine]:
        """Yield the lines that hold all words, whatever their case."""
        ...

    def scope(self) -> str:
        """Say what the last search looked through, where that was not every line; else empty."""
        ...


class SnapshotSource:
    """The lines that an incident kept."""

    def __init__(self, lines: Iterable[SnapshotLine]) -> None:
        self._by_file: dict[str, dict[int, SnapshotLine]] = {}
        for line in lines:
            self._by_file.setdefault(line.file, {})[line.number] = line
        self._numbers = {file: sorted(lines) for file, lines in self._by_file.items()}

    def files(self) -> list[str]:
        """Return the names of the files."""
        return list(self._by_file)

    def get(self, file: str, number: int) -> SnapshotLine | None:
        """Return one line, or None where it was not kept."""
        return self._by_file.get(file, {}).get(number)

    def around(self, file: str, number: int, before: int, after: int) -> list[SnapshotLine]:
        """Return the kept lines around a number."""
        numbers = self._numbers.get(file, [])
        chosen = numbers[
            bisect_left(numbers, number - before) : bisect_right(numbers, number + after)
        ]
        return [self._by_file[file][n] for n in chosen]

    def search(self, words: Sequence[str], file: str | None) -> Iterator[SnapshotLine]:
        """Yield the lines that hold all words, whatever their case."""
        wanted = [word.lower() for word in words]
        for name, numbers in self._numbers.items():
            if file is not None and name != file:
                continue
            for number in numbers:
                line = self._by_file[name][number]
                if all(word in line.text.lower() for word in wanted):
                    yield line

    def scope(self) -> str:
        """Say that only kept lines are searched."""
        kept = sum(map(len, self._numbers.values()))
        return f"only the {kept:,} kept lines were searched"


class ViewSource:
    """The lines of logs that were just read; of a large file the rest is looked up where it lies."""

    def __init__(self, views: Sequence[LogView]) -> None:
        self._views = {view.name: view for view in views}
        self._missed = ""

    def files(self) -> list[str]:
        """Return the names of the files."""
        return list(self._views)

    def get(self, file: str, number: int) -> SnapshotLine | None:
        """Return one line, or None where it was not kept."""
        view = self._views.get(file)
        line = view.line(number) if view is not None else None
        return None if line is None else as_snapshot(line)

    def around(self, file: str, number: int, before: int, after: int) -> list[SnapshotLine]:
        """Return the kept lines around a number."""
        view = self._views.get(file)
        if view is None:
            return []
        lines = (view.line(n) for n in view.between(number - before, number + after))
        return [as_snapshot(line) for line in lines if line is not None]

    def search(self, words: Sequence[str], file: str | None) -> Iterator[SnapshotLine]:
        """Yield the lines that hold all words, whatever their case."""
        wanted = [word.lower() for word in words]
        for view in self._views.values():
            if file is not None and view.name != file:
                continue
            if not view.survey.whole and view.survey.source.path is not None:
                yield from self._in_file(view, words)
                continue
            for number in view.numbers:
                text = (view.text(number) or "").lower()
                if all(word in text for word in wanted) and (line := view.line(number)) is not None:
                    yield as_snapshot(line)

    def _in_file(self, view: LogView, words: Sequence[str]) -> Iterator[SnapshotLine]:
        try:
            for line in find(view.survey.source, words, year=view.year):
                yield as_snapshot(view.line(line.number) or line)
        except (OSError, EOFError, ValueError) as error:  # TimeoutError is one of the first
            self._missed = str(error) if isinstance(error, TimeoutError) else ""
            self._missed = self._missed or f"{view.name} cannot be read any more"

    def scope(self) -> str:
        """Say what the last search looked through, where that was not every line; else empty."""
        if self._missed:
            return self._missed
        part = [
            v for v in self._views.values() if not v.survey.whole and v.survey.source.path is None
        ]
        kept, total = sum(len(v.numbers) for v in part), sum(v.survey.lines for v in part)
        return f"only the {kept:,} kept lines of {total:,} were searched" if part else ""


def as_snapshot(line: LogLine) -> SnapshotLine:
    """Return a line that was read in the form that is stored."""
    return SnapshotLine(
        file=line.file,
        number=line.number,
        text=line.text,
        rank=line.rank,
        node=line.node,
        stream=str(line.stream),
    )
