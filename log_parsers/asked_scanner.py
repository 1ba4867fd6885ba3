"""Scans lines with only those signatures that their skeletons call for, while these are few."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rerail.log_parsers.scan import Scanner

Build = Callable[[Sequence[int], Sequence[str]], "Scanner"]
"""Compiles patterns that stand for the signatures of the given numbers into a scanner."""

_FEW = 48  # signatures; a set of more is hardly quicker than all of them
_PAYS = 8 << 20
"""Bytes that are scanned with all signatures before the first set is compiled; twice as many before each next."""


class AskedScanner:
    """One set of signatures that grows with what is asked for.

    Step lines of a framework call for a handful of hundreds of signatures, and a set of a handful is
    scanned many times as fast. Compiling takes tenths of a second, so it waits until it pays, and ever
    longer where what is asked for keeps changing.
    """

    def __init__(self, patterns: Sequence[str], build: Build) -> None:
        self._patterns, self._build = patterns, build
        self._held: frozenset[int] = frozenset()
        self._scanner: Scanner | None = None
        self._bytes, self._pays = 0, _PAYS

    def of(self, asked: frozenset[int], size: int) -> Scanner | None:
        """Return a scanner that holds these signatures, and maybe others; None where all of them serve better.

        Args:
            asked: numbers of signatures.
            size: bytes of the text that is to be scanned.
        """
        if self._scanner is not None and asked <= self._held:
            return self._scanner
        self._bytes += size
        if not asked or len(asked) > _FEW or self._bytes < self._pays:
            return None
        grown = self._held | asked
        self._held = grown if len(grown) <= _FEW else asked
        numbers = sorted(self._held)
        self._scanner = self._build(numbers, [self._patterns[at] for at in numbers])
        self._bytes, self._pays = 0, 2 * self._pays
        return self._scanner
