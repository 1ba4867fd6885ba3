"""Looks at each kind of line once: only lines whose skeleton could match are scanned as text.

A training log of a gigabyte has a few thousand different skeletons. They are matched against the
images of all signatures (`skeleton_patterns`), and lines whose skeleton none of them finds need no
further look. Of the rest, those that come often (a step line that a rule about a loss of NaN has
to read every time) are scanned with the few signatures that their skeletons call for, compiled
into a set of their own; all others with the whole set. The candidates are the same as those of a
scan of every line, in a fraction of the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from rerail.log_parsers.far_gap import behind_far_gap
from rerail.log_parsers.piece import Piece, line_ends
from rerail.log_parsers.scan import searchable
from rerail.log_parsers.tallies import Tally
from rerail.log_parsers.text import clean

if TYPE_CHECKING:
    from rerail.log_parsers.scan import Scanner

Build = Callable[[Sequence[int], Sequence[str]], "Scanner"]
"""Compiles patterns that stand for the signatures of the given numbers into a scanner."""

_REMEMBERED = 150_000  # skeletons
_SETS_LEFT_OUT = 4  # of signatures, for which it is remembered which lines need a look
_LONGEST = 512  # bytes of a skeleton that is remembered
_OFTEN = 200  # lines with one skeleton that earn its signatures a set of their own
_REBUILD = 4 << 20  # bytes scanned with all signatures between two such sets
_REBUILDS = 6
_NEW = 4  # a piece in which every fourth skeleton is new gains nothing
_PATIENCE = 4  # such pieces in a row
_REST = 64  # pieces that are then scanned line by line
_ROUND, _TRIED, _LEARNING = 512, 4, 128  # pieces
_COLOUR = re.compile(rb"\x1b\[[:;<=>?]*(m)")

_NONE, _FEW, _ALL = 0, 1, 2
# Share of the lines of a piece above which it is scanned as it is: to cut a line out costs as much
# as to scan some 150 bytes with all signatures, or 1,500 with few.
_MOSTLY = {_ALL: 0.6, _FEW: 0.3}


class Sieve:
    """Finds candidates piece by piece; remembers skeletons between pieces and files."""

    def __init__(
        self,
        images: Sequence[str | None],
        patterns: Sequence[str],
        whole: Scanner,
        build: Build,
    ) -> None:
        self._patterns = patterns
        self._whole = whole
        self._build = build
        numbers = [at for at, image in enumerate(images) if image is not None]
        self._skeletons = build(numbers, [images[at] or "" for at in numbers])
        # A signature whose image says nothing is looked for in every line.
        self._always = frozenset(range(len(images))) - frozenset(numbers)
        self._few: frozenset[int] = frozenset()
        self._scanner_of_few: Scanner | None = None
        # What skeletons call for; None where their text is not known.
        self._needs: dict[bytes, frozenset[int] | None] = {}
        self._kinds: dict[frozenset[int], dict[bytes, int]] = {}
        self._often: dict[bytes, int] = {}
        self._scanned = 0
        self._rebuilds = 0
        self._useless = 0
        self._resting = 0
        self._pieces = 0
        self._sieved = self._direct = inf
        if self._always:
            self._set_few(self._always)

    def pays(self) -> bool:
        """Tell whether the sieve is the quicker way for the next piece; call it once for each.

        Which it is depends on the signatures, the log and the machine, so both are timed: a sieve
        that has not learned yet is slow, and is given time to.
        """
        self._pieces += 1
        if self._resting:
            self._resting -= 1
            return False
        turn = self._pieces % _ROUND
        if turn < _TRIED:
            return False
        if turn < 2 * _TRIED or self._pieces < _LEARNING:
            return True
        return self._sieved <= self._direct

    def took(self, sieved: bool, seconds: float) -> None:
        """Remember what a piece took, in seconds a byte."""
        if sieved:
            self._sieved = min(seconds, 1.1 * self._sieved)
        else:
            self._direct = min(seconds, 1.1 * self._direct)

    def pairs(self, piece: Piece, tally: Tally, skip: Iterable[int]) -> set[tuple[int, int]]:
        """Return (row of the line in the piece, signature) of all candidates.

        Args:
            piece: whole lines.
            tally: the skeletons of its raw bytes, with codes.
            skip: signatures that are not looked for.
        """
        import numpy as np

        left_out = frozenset(skip)
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
        lines: Any = None
        for kind, scanner in ((_ALL, self._whole), (_FEW, self._scanner_of_few)):
            every = kind == _FEW and not self._always <= left_out
            rows = np.flatnonzero(classes == kind) if not every else np.arange(len(classes))
            if scanner is None or not len(rows):
                continue
            if len(rows) > _MOSTLY[kind] * len(classes):
                text, stops, rows = piece.text, piece.text_ends, np.arange(len(classes))
            else:
                lines = lines_of(piece) if lines is None else lines
                text, stops = taken(lines, rows)
            if kind == _ALL:
                self._scanned += len(text)
            candidates = scanner.candidates(text, left_out)
            if candidates:
                at = np.fromiter((end for end, _ in candidates), np.int64, len(candidates)) - 1
                places = rows[np.searchsorted(stops, np.maximum(at, 0))].tolist()
                found.update(
                    (row, index) for row, (_, index) in zip(places, candidates, strict=True)
                )
        if self._scanned > _REBUILD and self._rebuilds < _REBUILDS:
            self._widen(tally, left_out)
        return found

    def _classes(self, tally: Tally, left_out: frozenset[int]) -> bytes:
        known = self._kinds_without(left_out)
        result, new = bytearray(len(tally.keys)), 0
        for at, key in enumerate(tally.keys):
            kind = known.get(key)
            if kind is None:
                if key not in self._needs:
                    new += 1
                kind = self._learn(key, left_out, known)
            if kind:
                result[at] = kind
                if kind == _ALL:
                    self._often[key] = self._often.get(key, 0) + tally.counts[at]
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
            texts = _texts(skeleton)
            found = (index for text in texts for _, index in self._skeletons.candidates(text))
            needs = frozenset(found) if texts else None
        kind = self._kind(needs, left_out)
        if len(skeleton) <= _LONGEST:
            if len(self._needs) >= _REMEMBERED:
                self._needs.clear()
                self._often.clear()
                for kinds in self._kinds.values():
                    kinds.clear()
            self._needs[skeleton] = needs
            known[skeleton] = kind
        return kind

    def _kind(self, needs: frozenset[int] | None, left_out: frozenset[int]) -> int:
        if needs is None:
            return _ALL
        needs -= left_out
        return _NONE if not needs else _FEW if needs <= self._few else _ALL

    def _widen(self, tally: Tally, left_out: frozenset[int]) -> None:
        """Give the signatures that common lines call for a set of their own."""
        common = (self._needs.get(key) for key, count in self._often.items() if count >= _OFTEN)
        wanted = self._few.union(*(needs - left_out for needs in common if needs))
        self._scanned = 0
        self._often.clear()
        if wanted == self._few:
            return
        self._rebuilds += 1
        lines = [
            (needs, clean(tally.raw(place)))
            for key, place in zip(tally.keys, tally.places, strict=True)
            if (needs := self._needs.get(key))
        ]
        self._set_few(wanted, lines)
        self._kinds.clear()

    def _set_few(
        self, wanted: frozenset[int], lines: Sequence[tuple[frozenset[int], str]] = ()
    ) -> None:
        numbers = sorted(wanted)
        self._few = wanted
        self._scanner_of_few = self._build(
            numbers,
            [_for_lines(self._patterns[at], (t for n, t in lines if at in n)) for at in numbers],
        )


def _for_lines(pattern: str, lines: Iterable[str]) -> str:
    """Return what to look for in lines like these, which come often and rarely match."""
    rest, common = behind_far_gap(pattern), list(lines)
    if rest is None or not common or any(re.search(rest, line) for line in common):
        return pattern
    return rest


def _texts(skeleton: bytes) -> tuple[bytes, ...]:
    """Return what the skeleton of a line may be without its escape sequences; none if unknown."""
    if b"\x1b" not in skeleton:
        return (skeleton,)
    # The final byte of a sequence may be among those that went; then the `m` is the line's own.
    bare = _COLOUR.sub(b"", skeleton)
    return () if b"\x1b" in bare else (bare, _COLOUR.sub(rb"\1", skeleton), skeleton)


def lines_of(piece: Piece) -> Any:
    """Return the lines of a piece as an Arrow array over its bytes, to take some of them out."""
    import numpy as np
    import pyarrow as pa

    ends = np.asarray(piece.ends)
    starts = np.empty(len(ends) + 1, np.int32)
    starts[0] = 0
    np.add(ends, 1, out=starts[1:], casting="unsafe")
    return pa.Array.from_buffers(
        pa.binary(), len(ends), [None, pa.py_buffer(starts), pa.py_buffer(piece.raw)]
    )


def taken(lines: Any, rows: Any) -> tuple[bytes, Any]:
    """Return some of the lines as one searchable text, and the offsets of its newlines."""
    import numpy as np
    import pyarrow as pa

    chosen = lines.take(pa.array(rows))
    _, offsets, values = chosen.buffers()
    raw = values.to_pybytes()
    text = searchable(raw)
    if text is not raw:
        return text, line_ends(text)
    return text, np.frombuffer(offsets, np.int32)[1 : len(rows) + 1] - 1
