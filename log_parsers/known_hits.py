"""Which lines of known kinds need no look: all of their hits are counted, and none of them is kept any more."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from rerail.log_parsers.known_lines import KnownLines, Seen

Settled = Callable[[int, bytes], bool]
"""Tells whether a signature in lines of this text is only counted from now on, but for new streams."""


class KnownHits:
    """Tells the lines of one file that are only counted from those that are to be looked at."""

    def __init__(self, settled: Settled, streams: Callable[[int], Container[int]]) -> None:
        self._settled = settled
        self._streams = streams
        self._table: KnownLines | None = None
        self._counted: Any = None
        self._sets: dict[int, tuple[int, ...]] = {}
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
            self._table, self._sets = table, {}
            self._counted = np.zeros(0, np.bool_)
        if len(self._counted) < len(table.sets):
            more = np.zeros(len(table.sets) - len(self._counted), np.bool_)
            self._counted = np.concatenate((self._counted, more))
        sets = np.frombuffer(table.sets, np.int32)[seen.kinds]
        some = np.flatnonzero(sets)
        rows, kinds, sets = seen.rows[some], seen.kinds[some], sets[some]
        known = self._counted[kinds]
        for kind in np.unique(kinds[~known]).tolist():
            members, text = table.members[table.sets[kind]], table.texts[kind]
            self._counted[kind] = all(self._settled(index, text) for index in members)
        known = self._counted[kinds]
        found: dict[tuple[int, ...], Any] = {}
        left = [~known]
        for number in np.unique(sets[known]).tolist():
            members = self._sets.get(number)
            if members is None:
                members = tuple(at for at in table.members[number] if not presence(at))
                self._sets[number] = members
            at = np.flatnonzero(known & (sets == number))
            if not members:
                continue
            there = self._in_streams(members, streams[rows[at]])
            found[members] = np.concatenate((found.get(members, rows[:0]), rows[at[there]]))
            left.append(_at(at[~there], len(rows)))
        others = np.flatnonzero(np.logical_or.reduce(left))
        rows, sets = rows[others], sets[others]
        pairs: list[tuple[int, int]] = []
        for number in np.unique(sets).tolist():
            at = rows[sets == number].tolist()
            for index in table.members[number]:
                # One line is enough to say that there are such lines.
                pairs += [(row, index) for row in (at[:1] if presence(index) else at)]
        return found, pairs

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
            for stream in np.unique(streams[~there]).tolist():
                shown[stream] = all(stream in self._streams(index) for index in members)
            there = shown[streams]
        return there


def in_order(rows: Any, more: Sequence[int]) -> Any:
    """Return two sets of rows as one array in order."""
    import numpy as np

    return np.sort(np.concatenate((rows, np.asarray(more, rows.dtype))))


def _at(places: Any, count: int) -> Any:
    import numpy as np

    mask = np.zeros(count, np.bool_)
    mask[places] = True
    return mask
