"""Lines without steps are looked at once, whatever their digits; lines with steps always."""

from __future__ import annotations

import pytest

from rerail.log_parsers import metrics, tallies
from rerail.log_parsers.barren_lines import BarrenKinds, BarrenLines
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


def _pieces(parts: list[bytes]) -> list[metrics.StepRow]:
    reader, line = metrics.StepReader(), 1
    for text in parts:
        piece = Piece(text)
        piece.tally(line)
        reader.feed(piece, line)
        line += text.count(b"\n")
    return list(reader.finish())


def test_steps_that_begin_behind_any_amount_of_other_text_are_found() -> None:
    other = b"gn-1:14:35 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read, Init x\n"
    piece = other * ((1 << 20) // len(other))
    steps = b"".join(b"iteration %d/ 99 | lm loss: 1.0 |\n" % n for n in range(30))
    found = _pieces([*[piece] * 10, piece + steps])
    assert [row.step for row in found] == list(range(30))
    late = b"".join(b"step %d loss 0.5\n" % n for n in range(30))  # another form than the first one
    assert len(_pieces([steps, *[piece] * 10, piece + late])) == 60


@pytest.mark.skipif(not tallies.vectors_at_hand(), reason="neither compiled loops nor pyarrow")
def test_of_a_kind_that_never_showed_anything_some_lines_of_each_piece_are_looked_at() -> None:
    kinds = BarrenKinds()
    piece = Piece(b"fetched shard 1 of batch 7\n" * 6_000 + b"step 1\n")
    tally = piece.tally(1)
    rows = np.arange(6_001)
    assert len(kinds.some(tally, rows)) == 6_001 and not kinds.left_out
    assert len(kinds.left([6_000])) == 0
    some = kinds.some(tally, rows)
    assert kinds.left_out and 32 < len(some) < 100 and some[-1] == 6_000
    left = kinds.left([int(some[3])])
    assert sorted([*some, *left]) == rows.tolist()
    assert len(kinds.some(tally, rows)) == 6_001
