"""Steps in columns are the rows that they stand for, whenever somebody looks at them."""

from __future__ import annotations

import math
import pickle
from array import array

from rerail.log_parsers.metrics import StepReader
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.step_layouts import FIELDS
from rerail.log_parsers.step_numbers import StepRow
from rerail.log_parsers.step_rows import Columns, StepRows


def columns(*lines: int) -> Columns:
    values = array("d", [math.nan] * len(FIELDS) * len(lines))
    for at, line in enumerate(lines):
        values[at * len(FIELDS) + FIELDS.index("step")] = line
        values[at * len(FIELDS) + FIELDS.index("loss")] = line / 8
    return Columns(array("q", lines), ("step", "iter"), array("i", [1] * len(lines)), values)


def test_rows_of_both_kinds_come_in_order_of_lines() -> None:
    rows = StepRows()
    rows.take(columns(3, 9))
    rows.add(StepRow(4, "step", 4))
    assert [row.line for row in rows] == [3, 4, 9]
    rows.add(StepRow(1, "step", 1))  # what was looked at may grow
    assert rows == [
        StepRow(1, "step", 1),
        StepRow(3, "iter", 3, 3 / 8),
        StepRow(4, "step", 4),
        StepRow(9, "iter", 9, 9 / 8),
    ]
    assert isinstance(rows[1].step, int) and rows[1].rank is None


def test_a_copy_does_not_grow_and_travels_between_processes() -> None:
    rows = StepRows([columns(3), [StepRow(4, "step", 4)]])
    copy = rows.copy()
    rows.add(StepRow(5, "step", 5))
    assert (len(copy), len(rows)) == (2, 3)
    assert pickle.loads(pickle.dumps(copy)) == copy == list(rows)[:2]


def test_lines_of_mlperfs_logger_are_read_by_their_layout_as_without() -> None:
    def text(key: str, value: str) -> bytes:
        line = ':::MLLOG {"time_ms": 17473355%d, "key": "train_loss", "value": 0.%d, "metadata": {%s"%s": %s}}\n'
        return b"".join(
            (line % (n, n, '"step": 1.5, ' if n % 3 == 0 else "", key, value % n)).encode()
            for n in range(1000, 1400)
        )

    for key, value in (("samples_count", "%d"), ("step_num", "%d.0"), ("epoch_num", "%d")):
        whole = text(key, value)
        reader, alone = StepReader(), []
        reader.feed(Piece(whole), 1)
        for number, raw in enumerate(whole.splitlines(keepends=True), 1):
            one = StepReader()
            one._layouts._layouts.clear()
            one.feed(Piece(raw), number)
            alone += one.rows
        assert list(reader.finish()) == alone and len(alone) == 400
