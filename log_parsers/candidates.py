"""Which lines of a piece may match which signatures, by the quickest way for its size."""

from __future__ import annotations

from collections.abc import Collection
from time import thread_time

from rerail.log_parsers.known_lines import Seen
from rerail.log_parsers.piece import Piece, rows_of
from rerail.log_parsers.scan import Scanner, sieve_of
from rerail.log_parsers.skeletons import SkeletonMiner


class Candidates:
    """Proposes lines of one file piece by piece, and lets a miner count them on the way."""

    def __init__(self, scanner: Scanner, miner: SkeletonMiner | None = None) -> None:
        self._scanner = scanner
        self._miner = miner

    def of(
        self, piece: Piece, first_line: int, settled: Collection[int] = (), *, bulk: bool
    ) -> tuple[list[tuple[int, int]], Seen | None]:
        """Return (row of the line in the piece, signature) of candidates, in order of rows, and known lines.

        Args:
            piece: the next piece of the file.
            first_line: the number of its first line in the file.
            settled: signatures that are not looked for.
            bulk: what `tallies.vectors_pay` said of the piece.
        """
        miner, raw, sieve = self._miner, piece.raw, None
        # One skeleton says nothing of a piece that ends inside a line.
        if bulk and raw.endswith(b"\n") and (miner is None or miner.between_lines):
            sieve = sieve_of(self._scanner)
        if sieve is None:
            if miner is not None:
                miner.feed(raw, first_line, bulk=bulk)
            return self._directly(piece, settled), None
        sieved, timed, seen = *sieve.pays(), None
        if miner is not None:
            tally = piece.tally(first_line)
            miner.add(tally)
        # Asking for the time costs up to a millisecond where a sandbox answers.
        started = thread_time() if timed else 0.0
        if not sieved:
            pairs = self._directly(piece, settled)
        else:
            if miner is None:
                tally = piece.tally(first_line)
            found, seen = sieve.look(piece, tally, settled)
            pairs = sorted(found)
        if timed:
            sieve.took(sieved, (thread_time() - started) / len(raw))
        return pairs, seen

    def _directly(self, piece: Piece, settled: Collection[int]) -> list[tuple[int, int]]:
        found = [one for one in self._scanner.candidates(piece.text, settled) if one[0] > 0]
        if not found:
            return []
        rows = rows_of([end - 1 for end, _ in found], piece.text_ends)
        return sorted({(row, index) for row, (_, index) in zip(rows, found, strict=True)})
