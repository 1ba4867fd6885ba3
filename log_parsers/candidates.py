"""Which lines of a piece may match which signatures, by the quickest way for its size."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container
from time import thread_time

from rerail.log_parsers.scan import Scanner, sieve_of
from rerail.log_parsers.skeletons import SkeletonMiner
from rerail.log_parsers.tallies import arrow_pays, tally_arrow


class Candidates:
    """Proposes lines of one file piece by piece, and lets a miner count them on the way."""

    def __init__(self, scanner: Scanner, miner: SkeletonMiner | None = None) -> None:
        self._scanner = scanner
        self._miner = miner

    def of(
        self, view: bytes, first_line: int, settled: Container[int] = ()
    ) -> list[tuple[int, int]]:
        """Return (row of the line in the piece, signature) of all candidates, in order of rows.

        Args:
            view: the piece as `scan.searchable` returns it.
            first_line: the number of its first line in the file.
            settled: signatures that are not looked for.
        """
        miner = self._miner
        sieve, arrow = None, arrow_pays(len(view))
        # One skeleton says nothing of a piece that ends inside a line.
        if arrow and view.endswith(b"\n") and (miner is None or miner.between_lines):
            sieve = sieve_of(self._scanner)
        if sieve is None:
            if miner is not None:
                miner.feed(view, first_line, arrow=arrow)
            return self._directly(view, settled)
        started = thread_time()
        if miner is not None:
            tally = tally_arrow(view, first_line)
            miner.add(tally)
            started = thread_time()  # the tally is needed anyhow
        sieved = sieve.pays()
        if not sieved:
            pairs = self._directly(view, settled)
        else:
            if miner is None:
                tally = tally_arrow(view, first_line)
            pairs = sorted(sieve.pairs(view, tally, settled))
        sieve.took(sieved, (thread_time() - started) / len(view))
        return pairs

    def _directly(self, view: bytes, settled: Container[int]) -> list[tuple[int, int]]:
        found = self._scanner.candidates(view, settled)
        if not found:
            return []
        ends = line_ends(view)
        return sorted({(bisect_left(ends, end - 1), index) for end, index in found if end > 0})


def line_ends(view: bytes) -> list[int]:
    """Return the offset of every newline of `view`."""
    if len(view) > 65536:
        import numpy as np

        ends: list[int] = np.flatnonzero(np.frombuffer(view, dtype=np.uint8) == 10).tolist()
        return ends
    found, at = [], view.find(b"\n")
    while at >= 0:
        found.append(at)
        at = view.find(b"\n", at + 1)
    return found
