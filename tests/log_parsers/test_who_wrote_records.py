"""Who wrote the lines of one file: fields of records in JSON, names of files in front of lines and alone on one."""

from __future__ import annotations

import json

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.log_parsers.json_records import fields_of

FAULT = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB"
STEP = "step 3 loss 2.1"
RECORDS = {
    "an object within another": lambda rank, text: {"msg": text, "ctx": {"dist": {"rank": rank}}},
    "attributes as text": lambda rank, text: {
        "body": text,
        "attributes": {"global_rank": str(rank)},
    },
    "a record within a string": lambda rank, text: {
        "log": json.dumps({"message": text, "rank": rank})
    },
    "names with dots": lambda rank, text: {"message": text, "torch.rank": rank},
}


def ranks(log):
    return diagnose_texts({"job.log": log}).diagnosis.suspects.ranks


@pytest.mark.parametrize("form", RECORDS)
def test_a_field_that_all_records_have_tells_the_rank_of_their_writer(form):
    make = RECORDS[form]
    rows = [make(rank, STEP) for rank in range(10)] + [make(9, FAULT), make(2, STEP)]
    assert ranks("\n".join(map(json.dumps, rows))) == [9]


def test_a_field_that_one_record_alone_has_is_of_somebody_else():
    rows = [{"msg": STEP, "host": {"name": "gn-2"}} for _ in range(9)]
    rows.append({"msg": FAULT, "ctx": {"rank": 9}, "host": {"name": "gn-2"}})
    fields, messages = fields_of(map(json.dumps, rows))
    assert (fields.rank, fields.node, messages[-1]) == (None, ("host", "name"), FAULT)


def test_ranks_within_a_part_of_the_job_are_no_ranks_of_records():
    fields, _ = fields_of(json.dumps({"msg": STEP, "tp": {"rank": rank}}) for rank in range(6))
    assert fields is None


@pytest.mark.parametrize(
    "name", ["out/trainer-%d.log:", "run/rank_%02d.txt:118:", "n/global_rank%d.out:"]
)
def test_the_name_of_a_file_in_front_of_lines_tells_the_rank(name):
    lines = [name % rank + (FAULT if rank == 5 else STEP) for rank in range(8)]
    assert ranks("$ grep -H . *\n" + "\n".join(lines)) == [5]


@pytest.mark.parametrize(
    "name", ["# out/trainer-%d.log", "File: logs/rank-%02d.err", "[run/rank_%d.log]"]
)
def test_the_name_of_a_file_alone_on_a_line_heads_its_lines(name):
    parts = [f"{name % rank}\n{STEP}\n{FAULT if rank == 5 else STEP}\n" for rank in (0, 5, 6)]
    assert ranks("".join(parts)) == [5]


def test_a_listing_of_files_heads_nothing():
    assert ranks("$ ls logs\nrank_3.log\nrank_4.log\n" + FAULT + "\n") == []


@pytest.mark.parametrize("name", ["global_rank", "globalRank", "SLURM_PROCID", "process_index"])
def test_records_of_a_large_file_tell_their_writers_by_any_name_of_a_rank(name):
    """What many lines say is only counted; the silent rank is known all the same, on its host."""
    timeout = (
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=8, "
        "NumelOut=8, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
    )
    said = [(rank, f"step {step} loss 2.{step}") for step in range(1, 7) for rank in range(160)]
    said += [(rank, timeout) for rank in range(160) if rank != 77]
    rows = [{"host": f"gn-{r // 8:02d}", name: r, "msg": text} for r, text in said]
    found = diagnose_texts({"job.log": "\n".join(map(json.dumps, rows))}).diagnosis.suspects
    assert (found.ranks, found.nodes) == ([77], ["gn-09"])
