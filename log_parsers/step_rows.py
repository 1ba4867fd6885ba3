"""The step rows of a file: those that were read in bulk stay columns of numbers until somebody looks at them.

A log of gigabytes has hundreds of thousands of steps, and an object for each takes most of the time of the pass
that reads it, and longer still to send to another process.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, overload

from rerail.late_dataclass import dataclass
from rerail.log_parsers.step_layouts import FIELDS, INTEGERS, LARGEST
from rerail.log_parsers.step_numbers import StepRow

_LOOKED_AT = 16


@dataclass(frozen=True, slots=True)
class Columns:
    """Steps that were read by their layouts; `values` holds the numbers of each in the order of `FIELDS`, NaN for none."""

    lines: Sequence[int]
    forms: tuple[str, ...]
    which: array[int]
    """The place in `forms` of each row's form."""
    values: array[float]

    def __len__(self) -> int:
        return len(self.which)

    def column(self, name: str, first: int = 0, last: int | None = None) -> Sequence[Any]:
        """Return one number of every row, or of those from `first` up to `last`, None where it has none."""
        width = len(FIELDS)
        end = None if last is None else last * width
        known = self.values[first * width + FIELDS.index(name) : end : width].tolist()
        if name in INTEGERS:
            return [int(value) if abs(value) < LARGEST else None for value in known]
        return [None if value != value else value for value in known]

    def rows(self) -> Iterator[StepRow]:
        """Yield the rows one by one; who looks at a few of them alone pays for a few."""
        for first, last in ((0, _LOOKED_AT), (_LOOKED_AT, len(self))):
            forms = map(self.forms.__getitem__, self.which[first:last])
            columns = (self.column(name, first, last) for name in FIELDS)
            yield from map(StepRow, self.lines[first:last], forms, *columns)


class StepRows(Sequence[StepRow]):
    """Step rows in order of lines, once `sorted`; those in columns are made into rows when they are first asked for."""

    def __init__(self, parts: Iterable[Columns | list[StepRow]] = ()) -> None:
        self._parts = list(parts)
        self._count = sum(map(len, self._parts))
        self._rows: list[StepRow] | None = None

    def add(self, row: StepRow) -> None:
        """Take one row."""
        self._rows = None
        if not self._parts or isinstance(self._parts[-1], Columns):
            self._parts.append([])
        last = self._parts[-1]
        assert isinstance(last, list)
        last.append(row)
        self._count += 1

    def take(self, part: Columns | list[StepRow]) -> None:
        """Take many rows."""
        self._rows = None
        self._parts.append(part)
        self._count += len(part)

    def changed(self) -> None:
        """Numbers of the parts were set anew."""
        self._rows = None

    def parts(self) -> Sequence[Columns | list[StepRow]]:
        """Return the rows as they came."""
        return self._parts

    def copy(self) -> StepRows:
        """Return rows that do not grow with these."""
        return StepRows(part if isinstance(part, Columns) else list(part) for part in self._parts)

    def unread(self) -> Iterator[StepRow]:
        """Yield all rows as they came, without keeping them."""
        for part in self._parts:
            yield from part.rows() if isinstance(part, Columns) else part

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[StepRow]:
        return iter(self._all())

    @overload
    def __getitem__(self, at: int) -> StepRow: ...
    @overload
    def __getitem__(self, at: slice) -> list[StepRow]: ...
    def __getitem__(self, at: int | slice) -> StepRow | list[StepRow]:
        return self._all()[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._all())

    def __getstate__(self) -> list[Columns | list[StepRow]]:
        return self._parts

    def __setstate__(self, parts: list[Columns | list[StepRow]]) -> None:
        self.__init__(parts)  # type: ignore[misc]

    def _all(self) -> list[StepRow]:
        if self._rows is None:
            self._rows = sorted(self.unread(), key=attrgetter("line"))
        return self._rows
