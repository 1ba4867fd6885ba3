"""Which lines of known kinds need no look: all of their hits are counted, and none of them is kept any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rerail.log_parsers.hit_room import HitRoom
from rerail.log_parsers.known_lines import KnownLines, Seen

# What is to be done with the lines of a kind: to look at each, to count those of known writers, to look at the
# first few since they are harmless, and to count them all.
_LOOK, _COUNT, _FEW, _COUNT_ALL = range(4)


class KnownHits:
    """Tells the lines of one file that are only counted from those that are to be looked at."""

    def __init__(self, room: HitRoom, few: int) -> None:
        self._room = room
        self._few = few
        self._table: KnownLines | None = None
        self._ways: Any = None
        self._shown: dict[tuple[int, ...], Any] = {}

    def counted(
        self, seen: Seen, streams: Any, presence: Callable[[int], bool]
    ) -> tuple[dict[tuple[int, ...], Any], list[tuple[int, int]]]:
        """Return the rows that are only counted, by what they show, and the candidates of all others.

        Args:
            seen: the lines of a piece that are of known kinds.
            streams: the stream of each line of the piece.
            presence: tells whether a signature is of the kind that only one line is wanted of.
        """
        import numpy as np

        table = seen.table
        if table is not self._table:
            self._table, self._ways = table, np.zeros(0, np.int8)
        if len(self._ways) < len(table.sets):
            more = np.zeros(len(table.sets) - len(self._ways), np.int8)
            self._ways = np.concatenate((self._ways, more))
        sets = np.frombuffer(table.sets, np.int32)[seen.kinds]
        some, pairs = self._light_ones(table, seen.rows, sets)
        if not len(some):
            return {}, pairs
        rows, kinds, sets = seen.rows[some], seen.kinds[some], sets[some]
        for kind in _distinct(kinds, len(self._ways)):
            if self._ways[kind] in (_LOOK, _FEW):
                self._ways[kind] = self._way(table, kind)
        ways = self._ways[kinds]
        counted = ways == _COUNT_ALL
        few = np.flatnonzero(ways == _FEW)
        counted[few[_turns(kinds[few]) >= self._few]] = True
        known = counted | (ways == _COUNT)
        found: dict[tuple[int, ...], Any] = {}
        for number in _distinct(sets, len(table.members)):
            at = np.flatnonzero(sets == number)
            members, there = table.judged[number], known[at]
            some = np.flatnonzero(there & ~counted[at])
            if len(some):
                there[some] = self._in_streams(members, np.asarray(streams)[rows[at[some]]])
            if there.any():
                found[members] = np.concatenate((found.get(members, rows[:0]), rows[at[there]]))
            listed = rows[at[~there]].tolist()
            for index in table.members[number] if listed else ():
                pairs += [(row, index) for row in (listed[:1] if presence(index) else listed)]
        return found, pairs

    def _light_ones(
        self, table: KnownLines, rows: Any, sets: Any
    ) -> tuple[Any, list[tuple[int, int]]]:
        """Return the places of the lines that show more than what one line is wanted of, and candidates of the others."""
        import numpy as np

        pairs: list[tuple[int, int]] = []
        for number in _distinct(sets, len(table.members)):
            members = table.members[number]
            # One line is enough to say that there are such lines.
            if table.light[number] and not all(
                self._room.only_counted(index, b"") for index in members
            ):
                row = int(rows[(sets == number).argmax()])
                pairs += [(row, index) for index in members]
        return np.flatnonzero(np.frombuffer(table.light, np.int8)[sets] == 0), pairs

    def _way(self, table: KnownLines, kind: int) -> int:
        number, text = table.sets[kind], table.texts[kind]
        full = all(self._room.only_counted(index, text) for index in table.members[number])
        if self._ways[kind] == _FEW or self._room.harmless(table.judged[number], text):
            return _COUNT_ALL if full else _FEW
        return _COUNT if full else _LOOK

    def _in_streams(self, members: tuple[int, ...], streams: Any) -> Any:
        """Tell of each stream whether all of the signatures were seen in it before."""
        import numpy as np

        shown = self._shown.get(members)
        most = int(streams.max(initial=0)) + 1
        if shown is None or len(shown) < most:
            wider = np.zeros(2 * most, np.bool_)
            if shown is not None:
                wider[: len(shown)] = shown
            shown = self._shown[members] = wider
        there = shown[streams]
        if not there.all():
            for stream in set(streams[~there].tolist()):
                shown[stream] = all(stream in self._room.streams[index] for index in members)
            there = shown[streams]
        return there


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
