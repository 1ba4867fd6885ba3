"""Which ranks showed what is exact where no known label marks the lines as well, in jobs of any size."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.log_parsers.facts import ANY
from rerail.log_parsers.prefixes import NOWHERE, Origin
from rerail.log_parsers.scan import Signature, make_scanner
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import FileSurvey, survey_bytes
from rerail.log_parsers.survey_rows import survey_of, survey_row
from rerail.log_parsers.voices import FIRST, Voices

TIMED_OUT = (
    "[E506 03:16:{s:02d}.{r:09d} ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=5123, OpType=ALLREDUCE, NumelIn=2097152, NumelOut=2097152, Timeout(ms)=600000) ran for 6000{s:02d} "
    "milliseconds before timing out."
)
FRONTS = {
    "none": "",
    "brackets": "[{r}] ",
    "bar": "r{r}| ",
    "json": '{{"rank": {r}, "msg": "',
}


def log(front: str, ranks: int, missing: int) -> str:
    begin = (
        front
        + "2026-05-06 03:00:{s:02d},000 INFO init process group rank {r} world size "
        + str(ranks)
    )
    lines = [begin.format(r=r, s=r % 60) for r in range(ranks)]
    lines += [
        (front + TIMED_OUT).format(r=r, s=r % 60)
        for r in sorted(range(ranks), key=lambda r: r * 7919 % ranks)
        if r != missing
    ]
    return "".join(
        line + ('"}' if "json" in front or "{{" in front else "") + "\n" for line in lines
    )


@pytest.mark.parametrize("front", sorted(FRONTS))
@pytest.mark.parametrize("ranks", [64, 1_000])
def test_the_rank_that_did_not_time_out_is_named_at_any_size(front: str, ranks: int) -> None:
    diagnosis = diagnose_texts({"train.log": log(FRONTS[front], ranks, ranks - 5)}).diagnosis
    assert diagnosis.suspects.ranks == [ranks - 5]


def test_a_label_that_tells_local_ranks_of_some_lets_nobody_stand_out() -> None:
    diagnosis = diagnose_texts({"train.log": log("[GPU-{r}] ", 1_000, 995)}).diagnosis
    assert diagnosis.suspects.ranks == []


def read(text: str, origin: Origin = NOWHERE, *, harmless: bool = False) -> FileSurvey:
    signatures = (Signature("Watchdog caught", harmless=harmless),)
    source = Source(None, "train.log", origin)
    return survey_bytes(source, text.encode(), signatures, make_scanner(signatures, cache=None))


def test_voices_stand_behind_the_labelled_writers_and_are_counted_once() -> None:
    facts = read("[rank7]: starts\n" + log("", 500, 3)).facts
    assert len(facts.streams(0)) == 499 and facts.total(0) == 499
    assert max(facts.streams(0)) == len(facts.examples) - 1 == len(facts.ends) - 1
    assert len(facts.streams(ANY)) == 2
    assert list(facts.keys) == sorted(facts.keys)


def test_what_is_harmless_or_in_a_file_of_one_rank_is_asked_of_nobody() -> None:
    assert len(read(log("", 500, 3), harmless=True).facts.streams(0)) == 1
    assert len(read(log("", 500, 3), Origin(rank=3)).facts.streams(0)) == 1


def test_they_are_the_same_in_what_is_written_down() -> None:
    found = read(log("", 500, 3))
    again = survey_of(survey_row(found), "here")
    assert len(again.facts.streams(0)) == 499


def test_times_and_counters_are_no_voices() -> None:
    voices = Voices()
    lines = [b"2026-05-06 03:00:%02d,000 step %d loss 3.%d is nan" % (n, n, n) for n in range(50)]
    assert set(voices.of(lines, 1)) == {0}
    assert voices.of([b"[3] boom", b"[4] boom", b"[3] boom again"], 1) == [FIRST, FIRST + 1, FIRST]
