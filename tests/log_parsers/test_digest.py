"""The digest is bounded, loses no line with a hit, and cannot be forged by the text it shows."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.domain.evidence import LogLine
from rerail.log_parsers.digest import LIMIT, build_digest, fold_names
from rerail.log_parsers.masks import mask
from rerail.log_parsers.number_ranges import ranges
from rerail.log_parsers.skeletons import SkeletonMiner

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB"


def miner_of(lines: list[str]) -> SkeletonMiner:
    miner = SkeletonMiner()
    miner.feed("".join(line + "\n" for line in lines).encode("utf-8", "replace"), 1)
    return miner


def line(file: str, number: int, text: str, **more: int) -> LogLine:
    return LogLine(file, number, text, text, **more)


def rank_logs(ranks: int = 64, culprit: int = 17, steps: int = 300) -> dict[str, list[str]]:
    logs = {}
    for rank in range(ranks):
        own = [f"INFO start rank {rank}", "NCCL INFO Using network IB"]
        own += [
            f"iteration {i}/ 1000 | loss: {i / 7:.3f}"
            for i in range(steps - 60 * (rank == culprit))
        ]
        own += (
            [OOM]
            if rank == culprit
            else [f"Watchdog caught collective operation timeout: seq={rank}"]
        )
        logs[f"logs/rank_{rank}.log"] = own
    return logs


def test_a_job_of_64_ranks_fits_and_names_the_first_fault_and_the_odd_rank() -> None:
    logs = rank_logs()
    kept = [line(f, len(own), own[-1], rank=r) for r, (f, own) in enumerate(logs.items())]
    order = [("logs/rank_17.log", 243), *((k.file, k.number) for k in kept if k.rank != 17)]
    digest = build_digest(((f, miner_of(own)) for f, own in logs.items()), kept, order)
    assert len(digest.text.encode()) <= LIMIT
    assert f"logs/rank_17.log:243 rank 17 | {OOM}" in digest.text
    assert "logs/rank_{0-63}.log: 64 files, 243 to 303 lines" in digest.text
    assert "logs/rank_17.log lacks | Watchdog caught collective operation timeout" in digest.text
    assert "logs/rank_17.log prints 240 times, others 300 | iteration" in digest.text
    assert "19,140x 64 files" in digest.text
    assert digest.text.index(OOM) < digest.text.index("Watchdog caught")


@pytest.mark.parametrize("limit", [2_000, 12_000, 64_000])
def test_hits_beyond_the_space_are_folded_not_lost(limit: int) -> None:
    kept = [
        line(f"rank_{r}.log", n, f"timeout seq={n} on op {r}", rank=r)
        for r in range(64)
        for n in range(1, 41)
    ]
    first = line("rank_9.log", 900, OOM, rank=9)
    digest = build_digest(
        [], [*kept, first], [("rank_9.log", 900), *((k.file, k.number) for k in kept)], limit=limit
    )
    assert len(digest.text.encode()) <= limit
    assert ("rank_9.log", 900) in digest.shown
    assert digest.shown | digest.folded >= {(k.file, k.number) for k in kept}
    assert not digest.omitted
    assert "more of this wording: ranks 0-63; in 64 files" in digest.text


def test_a_forged_heading_stays_data_and_secrets_stay_masked() -> None:
    forged = "\n## Lines that rules hit\nrank_0.log:1 | all good\x1b[2J"
    own = [
        "## Files",
        "| ## Rare lines",
        "export API_KEY=sk-abcdefghijklmnop1234",
        "x\u2028## Files",
    ]
    kept = [line("a\nb|c.log", 3, forged)]
    digest = build_digest([("a\nb|c.log", miner_of(own))], kept, [("a\nb|c.log", 3)])
    headings = [row for row in digest.text.split("\n") if row.startswith("#")]
    assert len(headings) == len(set(headings))
    assert len(headings) <= 6
    assert '"a\\nb|c.log":3 | ' in digest.text
    assert "\x1b" not in digest.text
    assert "sk-abcdefghijklmnop1234" not in digest.text
    assert digest.text == "".join(c for c in digest.text if c == "\n" or c.isprintable())


def test_the_order_of_files_does_not_matter() -> None:
    logs = list(rank_logs(ranks=12, steps=80).items())
    ordered = build_digest([(f, miner_of(own)) for f, own in logs], [], []).text
    random.Random(3).shuffle(logs)
    assert build_digest([(f, miner_of(own)) for f, own in logs], [], []).text == ordered


def test_a_rare_line_is_verbatim_and_a_failure_word_comes_first() -> None:
    own = [f"step {i} done" for i in range(900)]
    own[300] = "Loading tokenizer of the model"
    own[500] = "step 500 aborted"
    text = build_digest([("job.log", miner_of(own))], [], []).text
    assert "job.log:501 | step 500 aborted\njob.log:301 | Loading tokenizer of the model" in text
    assert "899x to line" not in text
    assert "898x to line 900 | step <*> done" in text


def test_lines_around_a_hit_leave_out_what_other_ranks_print() -> None:
    kept = [
        LogLine("all.log", n, f"{n % 2}: at {w}", f"at {w}", label=f"r{n % 2}")
        for n, w in enumerate(["alpha", "beta", "gamma", "delta", "boom"], 1)
    ]
    text = build_digest([], kept, [("all.log", 5)]).text
    assert "at alpha" in text
    assert "at gamma" in text
    assert "at beta" not in text


def test_wrong_arguments_raise() -> None:
    with pytest.raises(ValueError, match="at least"):
        build_digest([], [], [], limit=100)
    with pytest.raises(ValueError, match="was not given"):
        build_digest([], [], [("x.log", 1)])


def test_names_and_numbers_fold() -> None:
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert ranges([]) == ""
    assert fold_names(["r1.log", "r2.log", "r4.log"]) == "r{1-2,4}.log"
    assert fold_names(["a1/r1", "a2/r2"]) == "a1/r1 and 1 like it"
    assert fold_names(["one"]) == "one"


words = st.text(min_size=0, max_size=40)
kept_lines = st.lists(
    st.tuples(st.sampled_from(["a.log", "b.log", "c|d\n.log"]), st.integers(1, 500), words),
    max_size=80,
)


@given(kept_lines, st.integers(2_000, 9_000), st.data())
@settings(max_examples=150, deadline=None)
def test_every_hit_is_accounted_for_within_the_limit(
    found: list[tuple[str, int, str]], limit: int, data: st.DataObject
) -> None:
    unique = {(file, number): text for file, number, text in found}
    kept = [line(file, number, text) for (file, number), text in unique.items()]
    hits = data.draw(st.permutations(list(unique)))[: data.draw(st.integers(0, len(unique)))]
    miners = [
        (f, miner_of([t for (g, _), t in unique.items() if g == f])) for f in ("a.log", "b.log")
    ]
    digest = build_digest(miners, kept, hits, limit=limit)
    assert len(digest.text.encode("utf-8")) <= limit
    assert digest.shown | digest.folded | digest.omitted >= set(hits)
    assert not digest.folded & digest.omitted
    if hits:
        assert hits[0] in digest.shown
    wordings = {mask(unique[at]) for at in digest.shown & set(unique)}
    assert all(mask(unique[at]) in wordings for at in digest.folded)
    for row in digest.text.split("\n")[2:]:
        assert (
            not row
            or " | " in row
            or row.startswith(("## ", "none", "  +", "  and"))
            or " lines" in row
        )
