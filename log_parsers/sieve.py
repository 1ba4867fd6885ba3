"""Looks at each kind of line once: only lines whose skeleton could match are looked at as text.

A training log of a gigabyte has a few thousand different skeletons. They are matched against the
images of all signatures (`skeleton_patterns`), and lines whose skeleton none of them finds need no
further look. What the rest show is remembered by their text (`known_lines`); lines that never come
back are scanned each time with the signatures that their skeletons call for, where these are few, and
those of several frames with all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerail.lazy_patterns import lazy
from rerail.log_parsers.asked_scanner import AskedScanner, Build
from rerail.log_parsers.known_lines import KnownLines, Seen
from rerail.log_parsers.line_tables import taken
from rerail.log_parsers.piece import Piece, line_ends
from rerail.log_parsers.scan import searchable
from rerail.log_parsers.streams import codes_of_lines
from rerail.log_parsers.tallies import Tally

if TYPE_CHECKING:
    from rerail.log_parsers.scan import Scanner

_REMEMBERED = 150_000  # skeletons
_SETS_LEFT_OUT = 4  # of signatures, for which it is remembered which lines need a look
_LONGEST = 2_048  # bytes of a skeleton that is remembered
_NEW = 4  # a piece in which every fourth skeleton is new gains nothing
_PATIENCE = 4  # such pieces in a row
_REST = 32  # pieces that are then scanned line by line
_ROUND, _TRIED, _LEARNING, _TIMED = 256, 2, 64, 8  # pieces
_FAR_SLOWER = 4  # times; what was so much slower is not tried again
_COLOUR = lazy(rb"\x1b\[[:;<=>?]*(m)")
# Lines of one skeleton of which so many were new, and so large a share, are not remembered.
_NEW_LINES, _NEW_SHARE = 3_000, 4
_MOSTLY = 0.6
"""Share of the lines of a piece above which it is scanned as it is: cutting lines out costs as much."""

# No look; all signatures; those that the skeleton calls for; by the zeroed text; and word for word for
# those that tell digits apart; and with a scanner for those.
_NONE, _ALL, _ASKED, _ZEROED, _EXACT, _DIGITS = range(6)


class Sieve:
    """Finds candidates piece by piece; remembers skeletons between pieces and files."""

    def __init__(
        self,
        images: Sequence[str | None],
        patterns: Sequence[str],
        whole: Scanner,
        build: Build,
        build_few: Build,
        once: frozenset[int] = frozenset(),
        cache: Path | None = None,
    ) -> None:
        self._patterns = patterns
        self._whole = whole
        self._build = build
        self._once = once
        numbers = [at for at, image in enumerate(images) if image is not None]
        self._skeletons = build(numbers, [images[at] or "" for at in numbers])
        # A signature whose image says nothing is looked for in every line.
        self._always = frozenset(range(len(images))) - frozenset(numbers)
        # What skeletons call for; None where their text is not known.
        self._needs: dict[bytes, frozenset[int] | None] = {}
        self._kinds: dict[frozenset[int], dict[bytes, int]] = {}
        self._few = AskedScanner(patterns, build_few)
        self._lines = KnownLines(patterns, whole, build, build_few, once, cache)
        self._met: Counter[tuple[bytes, int]] = Counter()
        self._new: Counter[tuple[bytes, int]] = Counter()
        self._fleeting: set[tuple[bytes, int]] = set()
        self._useless = 0
        self._resting = 0
        self._pieces = 0
        self._sieved = self._direct = inf

    def pays(self) -> tuple[bool, bool]:
        """Tell whether the sieve is the quicker way for the next piece, and whether that is to be timed.

        To be called once for each piece. Which way is quicker depends on the signatures, the log and the
        machine, so both are timed now and then: a sieve that has not learned yet is slow, and is given time to.
        """
        self._pieces += 1
        if self._resting:
            self._resting -= 1
            return False, False
        turn = self._pieces % _ROUND
        timed = turn < 2 * _TRIED or self._pieces % _TIMED == 0
        untried = self._direct == inf
        if turn < _TRIED and (untried or self._direct < _FAR_SLOWER * self._sieved):
            return False, timed
        if turn < 2 * _TRIED or self._pieces < _LEARNING:
            return True, timed
        return self._sieved <= self._direct, timed

    def took(self, sieved: bool, seconds: float) -> None:
        """Remember what a piece took, in seconds a byte."""
        if sieved:
            self._sieved = min(seconds, 1.1 * self._sieved)
        else:
            self._direct = min(seconds, 1.1 * self._direct)

    def look(
        self, piece: Piece, tally: Tally, skip: Iterable[int]
    ) -> tuple[set[tuple[int, int]], Seen | None]:
        """Return (row of the line in the piece, signature) of candidates, and the lines that are known.

        Args:
            piece: whole lines.
            tally: the skeletons of its raw bytes, with codes.
            skip: signatures that are not looked for.
        """
        import numpy as np

        left_out = frozenset(skip)
        present: list[tuple[int, int]] = []
        if not left_out and tally.lines is None:
            present = self._first_of_each(piece, tally)
            left_out = frozenset(index for _, index in present)
        classes = np.frombuffer(self._classes(tally, left_out), np.uint8)[tally.codes]
        if tally.lines is not None:
            # A match may reach over the frames of a progress bar, and no skeleton does.
            frames = np.bincount(tally.lines)
            whole = np.zeros(len(frames), np.uint8)
            alone = frames[tally.lines] == 1
            whole[tally.lines[alone]] = classes[alone]
            whole[frames > 1] = _ALL
            classes = whole
        found: set[tuple[int, int]] = set()
        rows = np.flatnonzero(classes == _ALL)
        if len(rows):
            if len(rows) > _MOSTLY * len(classes):
                text, stops, rows = piece.text, piece.text_ends, np.arange(len(classes))
            else:
                text, stops = searchable_lines(piece, rows)
            found.update(_in_rows(self._whole.candidates(text, left_out), rows, stops))
        rows = np.flatnonzero(classes == _ASKED)
        if len(rows):
            text, stops = searchable_lines(piece, rows)
            asked = self._asked(tally, rows)
            few = self._few.of(asked - left_out, len(text)) if asked is not None else None
            scanner = few or self._whole
            found.update(_in_rows(scanner.candidates(text, left_out), rows, stops))
        rows = np.flatnonzero(classes > _ASKED)
        if not len(rows) and not present:
            return found, None
        seen = self._known(piece, rows, classes[rows], tally, left_out)
        return found, replace(seen, present=present) if present else seen

    def _first_of_each(self, piece: Piece, tally: Tally) -> list[tuple[int, int]]:
        """Return lines that show signatures of which one line is wanted: (row, signature).

        Of each skeleton that calls for one the first line is looked at. Mostly it shows it, and then none of the
        others needs a look.
        """
        import numpy as np

        self._empty_if_full()
        wanted = sorted(
            (place, needs)
            for key, place in zip(tally.keys, tally.places, strict=True)
            if (needs := self._needs.get(key)) is not None and not needs.isdisjoint(self._once)
        )
        if not wanted:
            return []
        table, rows = self._lines, np.fromiter((place for place, _ in wanted), np.int64)
        kinds, _, _ = table.kinds_of(piece, rows, lambda at: wanted[at][1] | self._always)
        found: dict[int, int] = {}
        for row, kind in zip(rows.tolist(), kinds.tolist(), strict=True):
            for index in self._once.intersection(table.members[table.sets[kind]]):
                found.setdefault(index, row)
        return [(row, index) for index, row in found.items()]

    def _empty_if_full(self) -> None:
        if self._lines.full:
            self._lines = self._lines.emptied()

    def _asked(self, tally: Tally, rows: Any) -> frozenset[int] | None:
        """Return what the skeletons of some lines call for; None where that of one was forgotten since, for want of room."""
        asked = set(self._always)
        for code in set(codes_of_lines(tally)[rows].tolist()):
            needs = self._needs.get(tally.keys[code])
            if needs is None:
                return None
            asked.update(needs)
        return frozenset(asked)

    def _known(
        self, piece: Piece, rows: Any, classes: Any, tally: Tally, left_out: frozenset[int]
    ) -> Seen:
        import numpy as np

        self._empty_if_full()
        table = self._lines
        skeletons = codes_of_lines(tally)

        def asks(place: int) -> Iterable[int]:
            needs = self._needs.get(tally.keys[skeletons[rows[place]]])
            return table.telling if needs is None else needs | self._always

        kinds, told, new = table.kinds_of(piece, rows, asks)
        self._note(tally, rows[new], _ZEROED)
        by_digits = table.told(left_out)
        classes = np.where(np.array([bool(one) for one in by_digits])[told], classes, _ZEROED)
        at = np.flatnonzero(classes == _EXACT)
        if len(at):
            new = table.with_digits(kinds, at, piece, rows[at])
            self._note(tally, rows[at[new]], _EXACT)
        at = np.flatnonzero(classes == _DIGITS)
        if len(at):
            asked = frozenset().union(*(by_digits[one] for one in np.unique(told[at]).tolist()))
            table.with_scanned(kinds, at, piece, rows[at], asked)
        return Seen(rows, kinds, table)

    def _note(self, tally: Tally, rows: Any, way: int) -> None:
        """Note of which skeletons lines were new, and give those up whose lines never come back."""
        for code, count in Counter(codes_of_lines(tally)[rows].tolist()).items():
            key = tally.keys[code], way
            self._new[key] += count
            self._met[key] += tally.counts[code]
            if self._new[key] > max(_NEW_LINES, self._met[key] // _NEW_SHARE):
                self._fleeting.add(key)
                self._kinds.clear()
                del self._new[key], self._met[key]

    def _classes(self, tally: Tally, left_out: frozenset[int]) -> bytes:
        known = self._kinds_without(left_out)
        result, new = bytearray(len(tally.keys)), 0
        for at, key in enumerate(tally.keys):
            kind = known.get(key)
            if kind is None:
                if key not in self._needs:
                    new += 1
                kind = self._learn(key, left_out, known)
            result[at] = kind
        self._useless = self._useless + 1 if new * _NEW > tally.frames else 0
        if self._useless >= _PATIENCE:
            self._useless, self._resting = 0, _REST
        return bytes(result)

    def _kinds_without(self, left_out: frozenset[int]) -> dict[bytes, int]:
        """Return what is known of skeletons where these signatures are not looked for any more.

        Most lines of a log call for a signature that asks only whether the log holds such a line;
        once it is answered, they need no further look.
        """
        known = self._kinds.get(left_out)
        if known is None:
            if len(self._kinds) >= _SETS_LEFT_OUT:
                del self._kinds[next(iter(self._kinds))]
            known = self._kinds[left_out] = {}
        return known

    def _learn(self, skeleton: bytes, left_out: frozenset[int], known: dict[bytes, int]) -> int:
        if skeleton in self._needs:
            needs = self._needs[skeleton]
        else:
            texts = texts_of(skeleton)
            found = (index for text in texts for _, index in self._skeletons.candidates(text))
            needs = frozenset(found) if texts else None
        kind = self._kind(skeleton, needs, left_out)
        if len(skeleton) <= _LONGEST:
            if len(self._needs) >= _REMEMBERED:
                self._needs.clear()
                self._fleeting.clear()
                for kinds in self._kinds.values():
                    kinds.clear()
            self._needs[skeleton] = needs
            known[skeleton] = kind
        return kind

    def _kind(self, skeleton: bytes, needs: frozenset[int] | None, left_out: frozenset[int]) -> int:
        if needs is None or len(skeleton) > _LONGEST:
            return _ALL
        needs = (needs | self._always) - left_out
        if not needs:
            return _NONE
        if (skeleton, _ZEROED) in self._fleeting:
            return _ASKED
        if not needs & self._lines.telling:
            return _ZEROED
        return _DIGITS if (skeleton, _EXACT) in self._fleeting else _EXACT


def _in_rows(
    candidates: Sequence[tuple[int, int]], rows: Any, stops: Any
) -> Iterable[tuple[int, int]]:
    """Return (row of the line, signature) of candidates in a text of these lines that end at `stops`."""
    import numpy as np

    if not candidates:
        return ()
    at = np.fromiter((end for end, _ in candidates), np.int64, len(candidates)) - 1
    places = rows[np.searchsorted(stops, np.maximum(at, 0))].tolist()
    return ((row, index) for row, (_, index) in zip(places, candidates, strict=True))


def texts_of(skeleton: bytes) -> tuple[bytes, ...]:
    """Return what the skeleton of a line may be without its escape sequences; none if unknown."""
    if b"\x1b" not in skeleton:
        return (skeleton,)
    # The final byte of a sequence may be among those that went; then the `m` is the line's own.
    bare = _COLOUR.sub(b"", skeleton)
    return () if b"\x1b" in bare else (bare, _COLOUR.sub(rb"\1", skeleton), skeleton)


def searchable_lines(piece: Piece, rows: Any) -> tuple[bytes, Any]:
    """Return some of the lines as one searchable text, and the offsets of its newlines."""
    raw, stops = taken(piece, rows)
    text = searchable(raw)
    return text, stops if text is raw else line_ends(text)
