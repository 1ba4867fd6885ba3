"""Lines whose writers no known label tells are counted by writer, however many there are: records and labels of a file's own."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.log_parsers import facts
from rerail.log_parsers.early_origin import with_records
from rerail.log_parsers.file_origins import content_origins
from rerail.log_parsers.json_records import fields_of, may_be_cut, writer_of
from rerail.log_parsers.prefixes import NOWHERE
from rerail.log_parsers.room import Room
from rerail.log_parsers.scan import Signature, make_scanner
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import FileSurvey, survey

RANKS, SILENT = 300, 211
TIME = "2026-03-04T01:00:00Z"
FORMS: dict[str, Callable[[int, str], str]] = {
    "rank in front": lambda rank, text: json.dumps({"ts": TIME, "rank": rank, "level": "INFO", "msg": text}),
    "rank behind": lambda rank, text: json.dumps({"ts": TIME, "msg": text, "rank": rank, "level": "INFO"}),
    "host and rank behind": lambda rank, text: json.dumps({"msg": text, "host": f"n{rank // 8:04d}", "rank": rank}),
    "far behind": lambda rank, text: json.dumps({"msg": text + " and so on" * 60, "dist": {"global_rank": rank}}),
    "in a string": lambda rank, text: json.dumps({"log": json.dumps({"message": text, "rank": rank}), "n": 3}),
    "logfmt": lambda rank, text: f'time="{TIME}" level=info msg="{text}" rank={rank} host=n{rank // 8:04d}',
    "logfmt in front": lambda rank, text: f'ts={TIME} lvl=INFO caller=a.py:7 rank={rank} msg="{text}"',
    "zap": lambda rank, text: f't={TIME} level=info logger=train caller=a.py:7 rank={rank} msg="{text}"',
    "structlog": lambda rank, text: f'timestamp={TIME} level=info event="{text}" rank={rank}',
    "pairs": lambda rank, text: f"global_rank={rank} local_rank={rank % 8} host=n{rank // 8:04d} {TIME} {text}",
    "behind in brackets": lambda rank, text: f"{TIME} {text} (rank={rank})",
    "behind, a word in brackets": lambda rank, text: f"{TIME} [info] {text} [rank {rank}]",
    "behind as a pair": lambda rank, text: f"{TIME} [info     ] {text:60} rank={rank}",
    "behind as JSON": lambda rank, text: f'{TIME} INFO {text} {{"rank": {rank}}}',
    "behind, with blanks": lambda rank, text: f"{TIME} {text} (rank={rank}) \r",
    "host in front, rank behind": lambda rank, text: f"n{rank // 8:04d}: {TIME} {text} (rank={rank})",
    "own label": lambda rank, text: f"R{rank:05d}| {TIME} {text}",
}  # fmt: skip


def log(form: Callable[[int, str], str]) -> str:
    chance, lines = random.Random(2), []
    for number in range(3):
        ranks = list(range(RANKS))
        chance.shuffle(ranks)
        lines += [form(rank, f"loader is ready after {number} s") for rank in ranks]
    lines += [form(r, f"Watchdog caught SeqNum={r * 7}") for r in range(RANKS) if r != SILENT]
    return "\n".join([*lines, ""])


def read(path: Path) -> FileSurvey:
    signatures = (Signature("Watchdog caught"), Signature("is ready"))
    room = Room(keep=60_000, whole=1_000)
    return survey(
        Source(path, path.name), signatures, make_scanner(signatures, cache=None),
        chunk_size=16_384, room=room,
    )  # fmt: skip


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("vectors", [True, False])
def test_what_each_rank_showed_is_counted(
    form: Callable[[int, str], str], vectors: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rerail.log_parsers.survey.vectors_pay", lambda size: vectors)
    monkeypatch.setattr(facts, "_LARGE", 1)
    path = tmp_path / "a.log"
    path.write_text(log(form))
    found = read(path)
    origin = content_origins([found], year=2026).get("a.log", NOWHERE)
    writers = found.facts.writers(origin)
    counts = [Counter[int | None]() for _ in range(2)]
    for signature, count in enumerate(counts):
        for one in found.facts.of(signature):
            count[writers[one.stream].rank] += one.count
    assert counts[1] == dict.fromkeys(range(RANKS), 3)
    assert counts[0] == dict.fromkeys([r for r in range(RANKS) if r != SILENT], 1)
    if "host" in form(1, ""):
        assert {w.node for w in writers if w.rank == 9} == {"n0001"}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_rank_that_did_not_come_is_named(form: Callable[[int, str], str]) -> None:
    text = "[PG 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=91, OpType=ALLREDUCE, NumelIn=2,"
    text += " NumelOut=2, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
    lines = [form(rank, "step 3 loss 2.5") for rank in range(RANKS)]
    lines += [form(rank, text) for rank in range(RANKS) if rank != SILENT]
    found = diagnose_texts({"a.log": "\n".join([*lines, ""])}).diagnosis
    assert found.suspects.ranks == [SILENT]


def test_a_field_of_few_records_is_of_whom_they_speak_of() -> None:
    lines = [
        f'time={TIME} level=info msg="step {n}" rank=3'
        if n > 17
        else f'time={TIME} level=info msg="step {n}" n=1'
        for n in range(20)
    ]
    assert fields_of(lines)[0] is None
    assert with_records(NOWHERE, "\n".join(lines).encode()) is NOWHERE


def test_records_whose_field_has_a_namesake_in_front_are_not_read_by_its_name() -> None:
    lines = [json.dumps({"peer": {"rank": 9}, "dist": {"rank": n}, "msg": "x"}) for n in range(9)]
    fields, _ = fields_of(lines)
    assert fields is not None
    assert fields.rank == ("dist", "rank")
    assert not may_be_cut(lines, fields)
    assert with_records(NOWHERE, "\n".join(lines).encode()) is NOWHERE


@pytest.mark.parametrize("form", [FORMS["rank in front"], FORMS["logfmt in front"]])
def test_a_record_that_was_cut_short_tells_its_writer(form: Callable[[int, str], str]) -> None:
    lines = [form(rank, "a message that is cut") for rank in range(9)]
    fields, _ = fields_of(lines)
    assert fields is not None
    writer = writer_of(lines[7][:-6], fields)
    assert writer is not None
    assert writer.rank == 7
