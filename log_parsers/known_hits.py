"""Which lines of known kinds need no look: all of their hits are counted, and none of them is kept any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rerail.late_dataclass import dataclass
from rerail.log_parsers.hit_room import HitRoom
from rerail.log_parsers.known_lines import KnownLines, Seen

# What is to be done with the lines of a kind: to look at each, to count those of known writers, to look at the
# first few since they are harmless, and to count them all.
_LOOK, _COUNT, _FEW, _COUNT_ALL = range(4)
_MOST_TOLD = 1 << 24  # bytes of what is remembered of sets and streams


@dataclass(frozen=True, slots=True)
class OnlyCounted:
    """Rows of which nothing is kept, in order, and the set of `members` that each shows; both numpy arrays."""

    rows: Any
    sets: Any
    members: Sequence[tuple[int, ...]]

    def by_members(self) -> dict[tuple[int, ...], Any]:
        """Return the rows that show the same, in order."""
        import numpy as np

        found: dict[tuple[int, ...], Any] = {}
        for number in _distinct(self.sets, len(self.members)):
            members, rows = self.members[number], self.rows[self.sets == number]
            if members in found:
                rows = np.sort(np.concatenate((found[members], rows)))
            found[members] = rows
        return found


class KnownHits:
    """Tells the lines of one file that are only counted from those that are to be looked at."""

    def __init__(self, room: HitRoom, few: int) -> None:
        self._room = room
        self._few = few
        self._table: KnownLines | None = None
        self._ways: Any = None
        self._told = _Told(room)

    def counted(self, seen: Seen, streams: Any) -> tuple[OnlyCounted | None, list[tuple[int, int]]]:
        """Return the rows that are only counted, and the candidates of all others.

        Args:
            seen: the lines of a piece that are of known kinds.
            streams: the stream of each line of the piece.
        """
        import numpy as np

        table = seen.table
        if table is not self._table:
            self._table, self._ways, self._told = table, np.zeros(0, np.int8), _Told(self._room)
        if len(self._ways) < len(table.sets):
            more = np.zeros(len(table.sets) - len(self._ways), np.int8)
            self._ways = np.concatenate((self._ways, more))
        sets = np.frombuffer(table.sets, np.int32)[seen.kinds]
        self._note_present(table, sets)
        self._room.present.update(index for _, index in seen.present)
        some = np.flatnonzero(np.frombuffer(table.light, np.int8)[sets] == 0)
        if not len(some):
            return None, []
        rows, kinds, sets = seen.rows[some], seen.kinds[some], sets[some]
        counted = self._need_no_look(table, kinds)
        known = np.flatnonzero(self._ways[kinds] == _COUNT)
        if len(known):
            here = np.asarray(streams)[rows[known]]
            counted[known] = self._told.all_in(table.judged, sets[known], here)
        left = np.flatnonzero(~counted)
        pairs = [
            (row, index)
            for row, number in zip(rows[left].tolist(), sets[left].tolist(), strict=True)
            for index in table.judged[number]
        ]
        if len(left) == len(rows):
            return None, pairs
        return OnlyCounted(rows[counted], sets[counted], table.judged), pairs

    def _need_no_look(self, table: KnownLines, kinds: Any) -> Any:
        """Tell which lines of a piece are harmless and no longer kept, an array of one byte for each."""
        import numpy as np

        for kind in _distinct(kinds, len(self._ways)):
            if self._ways[kind] in (_LOOK, _FEW):
                self._ways[kind] = self._way(table, kind)
        ways = self._ways[kinds]
        counted = ways == _COUNT_ALL
        few = np.flatnonzero(ways == _FEW)
        if len(few):
            counted[few[_turns(kinds[few]) >= self._few]] = True
        return counted

    def _note_present(self, table: KnownLines, sets: Any) -> None:
        """Note which signatures of which one line is wanted are shown."""
        for number in _distinct(sets, len(table.members)):
            members, judged = table.members[number], table.judged[number]
            if len(members) > len(judged):
                self._room.present.update(index for index in members if index not in judged)

    def _way(self, table: KnownLines, kind: int) -> int:
        number, text = table.sets[kind], table.texts[kind]
        members = table.judged[number]
        full = all(self._room.only_counted(index, text) for index in members)
        if self._ways[kind] == _FEW or self._room.harmless(members, text):
            return _COUNT_ALL if full else _FEW
        return _COUNT if full else _LOOK


class _Told:
    """Remembers of sets of signatures in which streams all of them were seen."""

    def __init__(self, room: HitRoom) -> None:
        self._room = room
        self._rows: dict[int, int] = {}
        self._there: Any = None

    def all_in(self, members: Sequence[tuple[int, ...]], sets: Any, streams: Any) -> Any:
        """Tell of each line, by its set and stream, whether all signatures of the set were seen in the stream."""
        import numpy as np

        width = int(streams.max()) + 1
        present = _distinct(sets, len(members))
        if self._there is None or width > self._there.shape[1]:
            self._rows, self._there = {}, np.zeros((16, 2 * width), np.bool_)
        if len(self._rows) + len(present) > len(self._there):
            if self._there.size > _MOST_TOLD:
                self._rows = {}
            more = np.zeros((len(present) + len(self._rows), self._there.shape[1]), np.bool_)
            self._there = np.concatenate((self._there[: len(self._rows)], more))
        place = np.zeros(len(members), np.int64)
        place[present] = [self._rows.setdefault(number, len(self._rows)) for number in present]
        places = place[sets]
        there = self._there[places, streams]
        for number, stream in set(
            zip(sets[~there].tolist(), streams[~there].tolist(), strict=True)
        ):
            streams_of = self._room.streams
            if all(stream in streams_of[index] for index in members[number]):
                self._there[self._rows[number], stream] = True
        return self._there[places, streams]


def in_order(rows: Any, more: Sequence[int]) -> Any:
    """Return two sets of rows as one array in order."""
    import numpy as np

    return np.sort(np.concatenate((rows, np.asarray(more, rows.dtype))))


def _distinct(numbers: Any, most: int) -> list[int]:
    """Return which numbers there are, all of them below `most`, in order."""
    import numpy as np

    there = np.zeros(most, np.bool_)
    there[numbers] = True
    listed: list[int] = np.flatnonzero(there).tolist()
    return listed


def _turns(kinds: Any) -> Any:
    """Return for each line how many of its kind stand above it."""
    import numpy as np

    order = kinds.argsort(kind="stable")
    ordered = kinds[order]
    turns = np.empty(len(kinds), np.int64)
    turns[order] = np.arange(len(kinds)) - ordered.searchsorted(ordered)
    return turns
