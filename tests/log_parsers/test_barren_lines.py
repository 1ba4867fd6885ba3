"""Lines without steps are looked at once, whatever their digits; lines with steps always."""

from __future__ import annotations

import pytest

from rerail.log_parsers import metrics, tallies
from rerail.log_parsers.barren_lines import BarrenLines
from rerail.log_parsers.piece import Piece

np = pytest.importorskip("numpy")


def test_a_line_in_which_nothing_was_found_is_not_asked_for_again() -> None:
    known = BarrenLines()
    first = Piece(b"step 1 of the warm-up\nstep 2 loss 3\nstep 9 of the warm-up\n")
    assert known.others(first, np.arange(3)).tolist() == [0, 1, 2]
    known.found([1])
    again = Piece(b"step 7 loss 1\nstep 4 of the warm-up\nstep 44 of the warm-up\n")
    assert known.others(again, np.arange(3)).tolist() == [0, 2]
    known.found([0])
    assert known.others(again, np.arange(1, 3)).tolist() == []


@pytest.mark.skipif(not tallies.vectors_at_hand(), reason="neither compiled loops nor pyarrow")
def test_the_steps_among_them_are_read_in_every_piece() -> None:
    reader, line = metrics.StepReader(), 1
    for begin in range(0, 3_000, 1_000):
        text = b"".join(
            b"step %d of the warm-up\n" % n + (b"step %d loss 0.5\n" % n if n % 10 == 0 else b"")
            for n in range(begin, begin + 1_000)
        )
        piece = Piece(text)
        piece.tally(line)
        reader.feed(piece, line)
        line += text.count(b"\n")
    assert [row.step for row in reader.finish()] == list(range(0, 3_000, 10))
