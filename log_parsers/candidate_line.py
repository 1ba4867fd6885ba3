"""A line that a signature may match, and what makes it the same as another one."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter

from rerail.late_dataclass import dataclass
from rerail.log_parsers.digit_blind import digit_blind
from rerail.log_parsers.known_lines import compiled
from rerail.log_parsers.scan import Signature
from rerail.log_parsers.text import MAX_LINE, ZERO, clean

_VARIES = b"0123456789abcdef"  # deleted, lines of one wording are equal; see skeletons
_ORDER = attrgetter("order")
_PAYS, _REMEMBERED = 64, 20_000  # questions, lines


@dataclass(slots=True)
class CandidateLine:
    """A line whose candidates are looked at; `cut` are those that it shows although only a part of it is kept."""

    raw: bytes
    stem: bytes
    stream: int
    number: int
    text: str | None = None
    cut: Sequence[int] = ()


def stem(raw: bytes) -> bytes:
    """Return the beginning of a line without what varies from line to line of one wording."""
    return raw[:400].translate(None, _VARIES)


class Harmless:
    """Tells of lines whether what counts of all that they show is harmless; one serves all files of a thread.

    Programs print the same warnings on all ranks, so most answers are known by the line with its digits zeroed.
    """

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self.signatures = signatures
        self._first: dict[tuple[int, ...], Signature] = {}
        self._asked: Counter[str] = Counter()
        self._known: dict[tuple[str, bytes], bool] = {}

    def of(self, shown: tuple[int, ...], line: CandidateLine) -> bool:
        """Tell it of a line that shows these signatures."""
        first = self._counts_of(shown)
        if not first.harmless or not first.unless:
            return first.harmless
        unless = first.unless
        self._asked[unless] += 1
        # To find out whether digits matter costs as much as some dozens of answers.
        if self._asked[unless] <= _PAYS or len(line.raw) > MAX_LINE or not _blind(unless):
            return compiled(unless).search(line.text or clean(line.raw)) is None
        key = unless, line.raw.translate(ZERO)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = compiled(unless).search(line.text or clean(line.raw)) is None
            self._known[key] = known
        return known

    def mostly(self, shown: tuple[int, ...]) -> bool:
        """Tell whether lines that show these signatures are harmless, but for what else they may say."""
        return self._counts_of(shown).harmless

    def of_text(self, shown: tuple[int, ...], text: bytes) -> bool:
        """Tell whether it is sure of all lines with this zeroed text that show these signatures."""
        first = self._counts_of(shown)
        if not first.harmless or not first.unless:
            return first.harmless
        if len(text) > MAX_LINE or not _blind(first.unless):
            return False
        key = first.unless, text
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[key] = compiled(first.unless).search(clean(text)) is None
        return known

    def _counts_of(self, shown: tuple[int, ...]) -> Signature:
        """Return what counts of all that a line shows."""
        first = self._first.get(shown)
        if first is None:
            first = min(map(self.signatures.__getitem__, shown), key=_ORDER)
            self._first[shown] = first
        return first


_blind = lru_cache(maxsize=4_096)(digit_blind)
_of_thread = threading.local()


def harmless_of(signatures: Sequence[Signature]) -> Harmless:
    """Return what this thread knows of these signatures."""
    held: Harmless | None = getattr(_of_thread, "held", None)
    if held is None or held.signatures is not signatures:
        held = _of_thread.held = Harmless(signatures)
    return held


LONGEST_KEPT = 65_536
"""Bytes of a line that is kept as it is."""


def bounded(raw: bytes) -> bytes:
    """Return a line, or head and end of one that is longer than 64 KB."""
    half = LONGEST_KEPT // 2
    return raw if len(raw) <= LONGEST_KEPT else raw[:half] + raw[-half:]
