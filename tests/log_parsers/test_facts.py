"""Facts are exact whatever is kept: against a reading line by line, in pieces of any size, on both ways."""

from __future__ import annotations

import random
from array import array
from pathlib import Path

import pytest

from rerail.evals.bench.timeouts import LABELS, timeout_log
from rerail.log_parsers import line_tables
from rerail.log_parsers import survey as surveying
from rerail.log_parsers.facts import ANY, Facts, Shapes, Writer, time_in
from rerail.log_parsers.prefixes import NOWHERE, parse_line
from rerail.log_parsers.scan import Scanner, Signature, make_scanner
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import FileSurvey, survey
from rerail.log_parsers.text import clean

SIGNATURES = (Signature("Watchdog caught"), Signature("is ready"), Signature(r"lost\s*$"))
Known = dict[tuple[int, int | None, int | None, str | None], tuple[int, int, int]]


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return make_scanner(SIGNATURES, cache=None)


def told(facts: Facts) -> Known:
    """What facts say, by signature and by who writes the lines."""
    writers = facts.writers(NOWHERE)
    found: Known = {}
    for signature in (ANY, *facts.signatures()):
        for one in facts.of(signature):
            who = writers[one.stream]
            key = signature, who.rank, who.local_rank, who.node
            count, first, last = found.get(key, (0, one.first, one.last))
            found[key] = count + one.count, min(first, one.first), max(last, one.last)
    return found


def line_by_line(text: bytes) -> Known:
    """The same, from every line alone."""
    found: Known = {}
    for number, raw in enumerate(text.split(b"\n")[: text.count(b"\n")], 1):
        line = parse_line("", number, clean(raw), year=1970)
        shown = (s for s, one in enumerate(SIGNATURES) if one.pattern.split("\\")[0] in line.text)
        for signature in (ANY, *shown):
            key = signature, line.rank, line.local_rank, line.node
            count, first, _ = found.get(key, (0, number, number))
            found[key] = count + 1, first, number
    return found


def read(path: Path, scanner: Scanner, size: int) -> FileSurvey:
    return survey(Source(path, path.name), SIGNATURES, scanner, chunk_size=size)


def mixed_log(seed: int) -> bytes:
    """Lines of many launchers, with and without label, coloured, short, with times in front and behind."""
    rng = random.Random(seed)
    fronts = [
        *LABELS.values(),
        "2026-03-04 01:00:{local:02d}.5 [rank{rank}]: ",
        "node{rank:03d}: {local}: ",
        "node{rank:03d}:{rank}:3{rank} [{local}] NCCL INFO ",
        "[1,{rank}]<stderr>:",
        "\x1b[36m(Worker pid={rank}, ip=10.0.0.{local})\x1b[0m ",
        "[rank{rank}]:\x1b[31m",
        "[rank{rank}]:[E0304 01:00:{local:02d}.123456 ProcessGroupNCCL.cpp:632] ",
        "",
        "Mär 3 ",
        "\x1b[1m[rank{rank}]:\u00e9\x1b[0m ",
        "[rank{rank}]: \u2028[1,{rank}]<stderr>:",
    ]
    bodies = [
        "Watchdog caught it",
        "worker {x} is ready",
        "  1%|  | {x}/9 \r 2%|# | {x}/9",
        "step {x} of 5: loss 0.{x}",
        "",
        "dead {x:x} lost",
        "x",
    ]
    lines = [
        rng.choice(fronts).format(
            rank=rng.choice((3, 17, 437, 1024, 99_999)), local=rng.randrange(8)
        )
        + rng.choice(bodies).format(x=rng.randrange(10**6))
        for _ in range(4_000)
    ]
    return "\n".join(lines).encode() + b"\n"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", ["plain", "arrow", "compiled"])
@pytest.mark.parametrize("size", [4_096, 70_001, 1 << 20])
def test_facts_are_those_of_every_line(
    seed: int,
    way: str,
    size: int,
    scanner: Scanner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if way == "compiled" and line_tables.compiled() is None:
        pytest.skip("the compiled loops were not built: no compiler was there")
    if way == "arrow":
        pytest.importorskip("pyarrow")
        monkeypatch.setattr(line_tables, "compiled_loops", None)
    monkeypatch.setattr(surveying, "vectors_pay", lambda _: way != "plain")
    path = tmp_path / "train.log"
    path.write_bytes(mixed_log(seed))
    facts = read(path, scanner, size).facts
    assert told(facts) == line_by_line(path.read_bytes())
    stamped = [line for line in path.read_bytes().split(b"\n") if time_in(line, year=2026)]
    assert facts.last_stamped == stamped[-1]


@pytest.mark.parametrize("label", LABELS)
def test_every_rank_counts_beyond_what_is_kept(
    label: str, scanner: Scanner, tmp_path: Path
) -> None:
    ranks, missing = 20_000, 437
    path = tmp_path / "train.log"
    path.write_text("".join(f"{line}\n" for line in timeout_log(ranks, missing, label=label)))
    result = read(path, scanner, 1 << 19)
    facts = result.facts
    writers = facts.writers(NOWHERE)
    assert {writers[one.stream].rank for one in facts.of(0)} == set(range(ranks)) - {missing}
    assert {writers[one.stream].rank for one in facts.of(ANY)} == set(range(ranks))
    assert facts.total(0) == result.counts[0] == ranks - 1
    assert len(result.hits) < 10_000


def test_labels_learned_from_other_files_tell_what_each_line_alone_tells() -> None:
    def read_alone(example: bytes) -> Writer:
        line = parse_line("", 1, example.decode(), origin=NOWHERE, year=1970)
        return Writer(line.rank, line.local_rank, line.node)

    # In the first files local rank and rank are one number, so either place could be that of the rank.
    shapes: Shapes = {}
    for ranks, off in ((range(8), 0), (range(8), 0), (range(9), 1)):
        fronts = [f"[default{r}]:[rank{r - off if r else 0}]: ".encode() for r in ranks]
        examples = [b"", *(front + b"ready" for front in fronts)]
        facts = Facts(examples, array("i", [0, *map(len, fronts)]))
        assert facts.writers(NOWHERE, shapes) == [read_alone(example) for example in examples]


def test_the_last_time_of_a_file_stands_above_lines_without_one(
    scanner: Scanner, tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    chatter = "".join(f"loader fetched shard {k}\n" for k in range(60_000))
    path.write_text(f"2026-03-04 01:00:00 begins\n2026-03-04 01:07:00 works\n{chatter}")
    last = read(path, scanner, 1 << 19).facts.last_stamped
    assert time_in(last, year=1970) == time_in(b"2026-03-04 01:07:00", year=1970)


def test_first_and_last_time_of_a_stream(scanner: Scanner, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    rows = [
        f"[rank{rank}]: 2026-03-04 01:{minute:02d}:{rank:02d} worker is ready\n"
        for minute in range(50)
        for rank in range(30)
    ]
    path.write_text("".join(rows))
    facts = read(path, scanner, 9_999).facts
    writers = facts.writers(NOWHERE)
    (one,) = [one for one in facts.of(1) if writers[one.stream].rank == 7]
    assert (one.count, one.first, one.last) == (50, 8, 49 * 30 + 8)
    first, last = time_in(one.first_window, year=2026), time_in(one.last_window, year=2026)
    assert first is not None and last == first + 49 * 60


def test_facts_cross_processes(scanner: Scanner, tmp_path: Path) -> None:
    import pickle

    path = tmp_path / "train.log"
    path.write_bytes(mixed_log(5))
    facts = read(path, scanner, 4_096).facts
    assert told(pickle.loads(pickle.dumps(facts))) == told(facts)
