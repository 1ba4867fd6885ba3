"""Exports as comma-separated values: the titles say which column is the host's or the rank's."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.log_parsers.comma_tables import columns_in_front

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
DATADOG = f"""Date,Host,Service,Message
2026-03-14T08:20:11.004Z,dgx-az1-04,ddp,"Initializing Distributed"
2026-03-14T08:20:11.107Z,dgx-az1-05,ddp,"Initializing Distributed"
2026-03-14T08:20:12.320Z,dgx-az1-04,ddp,"Done initializing, with a comma"
2026-03-14T08:24:08.455Z,dgx-az1-05,ddp,"{OOM}"
2026-03-14T08:24:09.455Z,dgx-az1-04,ddp,"Connection closed by remote peer dgx-az1-05<48010>"
"""


def test_the_host_column_is_the_writers() -> None:
    first = diagnose_texts({"export.csv": DATADOG}).diagnosis.first_fault
    assert first is not None
    assert (first.line, first.node) == (5, "dgx-az1-05")


def test_a_rank_column_is_the_writers() -> None:
    rows = "".join(f"2026-03-14T08:20:{s:02d}Z,{s % 4},step {s}\n" for s in range(8))
    text = f"timestamp,global_rank,message\n{rows}2026-03-14T08:21:00Z,3,{OOM}\n"
    first = diagnose_texts({"export.csv": text}).diagnosis.first_fault
    assert first is not None
    assert (first.line, first.rank) == (10, 3)


@pytest.mark.parametrize(
    "text",
    [
        "step,loss,time\n1,2.5,0.4\n2,2.4,0.4\n3,2.3,0.4\n",  # a table of numbers has no messages
        "Date,Message\n2026-03-14T08:20:11Z,a\n2026-03-14T08:20:12Z,b\n2026-03-14T08:20:13Z,c\n",
        "host, the message of the day is long\nnothing here\nis a row\nof a table\n",
        "Host,Message\n",
        "",
    ],
    ids=["no message", "nobody named", "a sentence", "no rows", "empty"],
)
def test_what_is_no_such_table_has_no_label(text: str) -> None:
    assert columns_in_front(text.splitlines(), year=2026) == ()
