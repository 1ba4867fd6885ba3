"""Which of many patterns occur in a piece at all, and on which lines.

One pass of the scan engine instead of one search for each; or, of a piece whose skeletons are known, what
their images (`skeleton_patterns`) find in each skeleton, which is looked at once.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

from rerail.cached_yaml import cache_folder
from rerail.log_parsers.by_skeleton import BySkeleton
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.scan import Scanner, Signature, compiled_at_hand, make_scanner
from rerail.log_parsers.sieve import texts_of
from rerail.log_parsers.skeleton_patterns import skeleton_pattern

_REMEMBERED = 20_000  # skeletons
_HALF, _LOW = 30, (1 << 30) - 1  # so many patterns to a column
_LARGE = 1 << 17  # bytes of a piece for which it pays


class Presence:
    """Tells which patterns are worth a search in a piece; one serves all files of a process."""

    def __init__(self, patterns: Sequence[re.Pattern[bytes]]) -> None:
        self._signatures = [
            Signature(pattern.pattern.decode("ascii"), presence=True, loose=True)
            for pattern in patterns
        ]
        self._of_thread = threading.local()  # a scanner's scratch space serves one thread
        self._patterns = patterns
        self._images: list[re.Pattern[bytes] | None] | None = None
        self._in: dict[bytes, int] = {}

    def places(self, chunk: bytes) -> set[int] | None:
        """Return the places of the patterns that may occur; None where it is not worth the question."""
        scanner: Scanner | None = getattr(self._of_thread, "scanner", None)
        if scanner is None:
            if len(chunk) < _LARGE and not compiled_at_hand(self._signatures, cache_folder()):
                return None
            scanner = make_scanner(self._signatures, cache=cache_folder())
            self._of_thread.scanner = scanner
        return {place for _, place in scanner.candidates(chunk)}

    def lines(self, piece: Piece, wanted: int) -> tuple[int, Any] | None:
        """Return which patterns may occur in a piece, and on which rows, a numpy array; None if that is not known.

        Args:
            piece: whole lines.
            wanted: one bit for each pattern that is looked for, by its place.
        """
        tally = piece.known_tally
        if tally is None or tally.codes is None:
            return None
        import numpy as np

        known: BySkeleton | None = getattr(self._of_thread, "known", None)
        if known is None:
            known = self._of_thread.known = BySkeleton(2)

        def ask(place: int) -> tuple[int, int]:
            bits = self._bits(tally.keys[place])
            return bits & _LOW, bits >> _HALF

        found = known.of(tally, ask) & (wanted & _LOW, wanted >> _HALF)
        low, high = np.bitwise_or.reduce(found, axis=0, initial=0).tolist()
        present = low | high << _HALF
        frames = np.flatnonzero(found.any(axis=1)[tally.codes])
        if tally.lines is None:
            return present, frames
        lines = tally.lines[frames]  # in order
        return present, lines[np.diff(lines, prepend=-1) != 0]

    def _bits(self, skeleton: bytes) -> int:
        bits = self._in.get(skeleton)
        if bits is None:
            if self._images is None:
                images = (skeleton_pattern(p.pattern.decode("ascii")) for p in self._patterns)
                self._images = [None if i is None else re.compile(i.encode()) for i in images]
            texts, bits = [text + b"\n" for text in texts_of(skeleton)], 0
            for place, image in enumerate(self._images):
                if image is None or not texts or any(image.search(text) for text in texts):
                    bits |= 1 << place
            if len(self._in) >= _REMEMBERED:
                self._in.clear()
            self._in[skeleton] = bits
        return bits
