"""The sieve finds what a scan of every line finds, and no image of a pattern loses a line."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

import rerail.knowledge_base
from rerail.knowledge_base.matcher import rule_set
from rerail.knowledge_base.rules import usable_rules
from rerail.log_parsers import tallies
from rerail.log_parsers.asked_scanner import _PAYS, AskedScanner
from rerail.log_parsers.digit_blind import digit_blind, zero_image
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.scan import Scanner, Signature, make_scanner, sieve_of
from rerail.log_parsers.skeleton_patterns import skeleton_pattern
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import FileSurvey, survey
from rerail.log_parsers.text import clean
from rerail.log_parsers.without_head import without_head

if not tallies.vectors_at_hand():
    pytest.skip("neither the compiled loops nor pyarrow are there", allow_module_level=True)
pytest.importorskip("hyperscan")

PATTERNS = (
    "CUDA out of memory", r"(?i)segmentation fault", r"NCCL WARN .{0,40}(?:timed out|closed by)", r"Xid .{0,30}: 79\b",
    r"loss.{0,20}\bnan\b", r"exit(?:ed)? with code [1-9]\d*$", r"\bdead(?:beef)?\b", r"\bKilled$", "val\xe9", "[0-9a-f]{8}",
    r"(?i:bad) \w+ sector", "Caf\u00e9 [^x]y",
)  # fmt: skip
WORDS = (
    "CUDA out of memory", "out of", "SEGMENTATION FAULT", "NCCL WARN ", "timed out", "closed by peer", "Xid (PCI:9b): 79",
    "Xid (PCI:9b): 790", "loss: nan", "loss 3.2", "exited with code 7", "exit with code 0", "dead", "deadbeef", "Killed",
    "val\u00e9", "BAD disk sector", "Caf\u00e9 zy", "step 12/500", "", " ", "worker 7 of 8", "12345678",
)  # fmt: skip
ZEROED = re.compile("[0-9]")
JOINTS = (b"", b" ", b"\x1b[31m", b"\x00", b"\r", b"\xff", b"\t")


def rules() -> Iterator[tuple[str, str]]:
    folder = Path(next(iter(rerail.knowledge_base.__path__))) / "rules"
    for path in sorted(folder.glob("*.yaml")):
        for rule in (yaml.safe_load(path.read_text()) or {}).get("rules", ()):
            for example in rule.get("matches", ()):
                yield rule["pattern"], str(example)


def test_no_rule_loses_an_example_in_its_image() -> None:
    lost, checked = [], 0
    for pattern, example in rules():
        image = skeleton_pattern(pattern)
        found = re.compile(pattern)
        for line in example.splitlines() or [example]:
            if image is None or not found.search(line):
                continue
            checked += 1
            skeleton = line.encode().translate(None, tallies.DELETED)
            if not re.search(image.encode(), skeleton):
                lost.append((pattern, line, image))
    assert not lost
    assert checked > 2_000


@pytest.mark.parametrize("pattern", PATTERNS)
def test_images_find_the_skeletons_of_all_that_the_pattern_finds(pattern: str) -> None:
    image = skeleton_pattern(pattern)
    if image is None:
        return
    draw = random.Random(pattern)
    found = 0
    for _ in range(3_000):
        line = "".join(draw.choices(WORDS, k=draw.randint(1, 4)))
        if re.search(pattern, line):
            found += 1
            assert re.search(image.encode(), line.encode().translate(None, tallies.DELETED))
    assert found


PARTS = (
    "data", "bad", "ce", "of", "fed", "nan", "x", "dead", "rank", r"\d+", r"\w+", "[a-f]{2}", "[g-i]", "[a-z]?", " ", "-",
    ".{0,9}", ".*", r"\b", r"\b", r"\b", "$", r"[:= ]{1,3}", "(?:data|of|ce)", r"\b(?:fed|x|bad)\b", "(?:dead )?", "(?i:Of|Ce)",
    r"(?i:\b(?:Bad|Nan) )", "(?:a|g){2}", "(?:ce)?",
)  # fmt: skip
LETTERS = (
    "data",
    "bad",
    "ce",
    "of",
    "fed",
    "nan",
    "x",
    "dead",
    "rank",
    "7",
    "CE",
    "Of",
    "g",
    "a",
    "-",
    ":",
    " ",
    " ",
    " ",
)


def test_images_of_patterns_put_together_at_random() -> None:
    draw, found = random.Random(8), 0
    lines = ["".join(draw.choices(LETTERS, k=draw.randint(1, 9))).encode() for _ in range(400)]
    for _ in range(1_500):
        pattern = "".join(draw.choices(PARTS, k=draw.randint(2, 6)))
        image = skeleton_pattern(pattern)
        if image is None:
            continue
        whole, looser = re.compile(pattern.encode()), re.compile(image.encode())
        for line in lines:
            if whole.search(line):
                found += 1
                skeleton = line.translate(None, tallies.DELETED)
                assert looser.search(skeleton), (pattern, image, line)
    assert found > 10_000


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"\bdata\b.{0,30}\bended\b", "heartbeat to node-7 ok, 12 ms, at last"),
        (r"(?i)\b(?:loss|ce)\b[:= ]{0,4}nan\b", "number of nan iterations: 0"),
        (r"rate: \d+$", "learning rate: 0.001 | lm loss: 3.2"),
        (r"throughput.{0,20}degraded", "throughput per GPU (TFLOP/s/GPU): 739.1 | grad norm: 2.5"),
    ],
)
def test_an_image_keeps_words_ends_and_widths(pattern: str, line: str) -> None:
    image = skeleton_pattern(pattern)
    assert image is not None
    assert not re.search(image.encode(), line.encode().translate(None, tallies.DELETED))


def test_an_image_that_says_nothing_is_none() -> None:
    assert skeleton_pattern(r"\bdead(?:beef)?\b") is None
    assert skeleton_pattern("[0-9a-f]{8}") is None
    assert skeleton_pattern(r"(a+)b\1") is None


@pytest.mark.parametrize(
    ("patience", "room"),
    [(10, 150_000), (3_000, 150_000), (10, 3_000)],
    ids=["soon-given-up", "remembered", "forgotten"],
)
@pytest.mark.parametrize("kept", [len(PATTERNS), 6], ids=["with-always", "without"])
def test_the_sieve_finds_what_a_scan_of_every_line_finds(
    kept: int, patience: int, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signatures = [
        Signature(pattern, wants_context=at % 2 == 0) for at, pattern in enumerate(PATTERNS[:kept])
    ]
    draw = random.Random(kept)
    rows = []
    for _ in range(40_000):
        words = [word.encode() for word in draw.choices(WORDS, k=draw.randint(1, 3))]
        joint = draw.choice(JOINTS) if draw.random() < 0.2 else b" "
        rows.append(joint.join(words) + draw.choices((b"\n", b"\r\n"), (20, 1))[0])
    path = tmp_path / "job.log"
    path.write_bytes(b"".join(rows) + b"Killed")
    monkeypatch.setattr("rerail.log_parsers.sieve._NEW_LINES", patience)
    monkeypatch.setattr("rerail.log_parsers.sieve._TRIED", 0)
    monkeypatch.setattr("rerail.log_parsers.asked_scanner._PAYS", 5 * patience)
    monkeypatch.setattr("rerail.log_parsers.sieve._REMEMBERED", room)

    def read(bulk: bool) -> FileSurvey:
        for name in ("_ARROW_AFTER", "_COMPILED_AFTER", "_SIEVES_AFTER"):
            monkeypatch.setattr(tallies, name, 0 if bulk else 1 << 60)
        monkeypatch.setattr(tallies, "_LEAST", 1)
        monkeypatch.setattr(tallies, "_LEAST_COMPILED", 1)
        scanner = make_scanner(signatures, cache=None, engine="hyperscan")
        result = survey(Source(path, "job.log"), signatures, scanner, mine=True, chunk_size=1 << 15)
        sieve = sieve_of(scanner)
        assert sieve is not None
        assert bool(sieve._needs) == bulk
        if bulk and room == 150_000:
            assert sieve._lines._zeroed
            assert bool(sieve._fleeting) == (patience < 100 and kept > 6)
            assert (sieve._few._scanner is not None) == bool(sieve._fleeting)
        return result

    plain, sieved = read(False), read(True)
    assert plain.hits == sieved.hits
    assert plain.counts == sieved.counts
    assert plain.kept == sieved.kept
    every = range(len(signatures))
    assert [plain.facts.total(at) for at in every] == [sieved.facts.total(at) for at in every]
    assert plain.miner is not None
    assert sieved.miner is not None
    assert list(plain.miner.entries()) == list(sieved.miner.entries())


def test_a_log_of_ever_new_lines_is_scanned_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(3)
    letters = "ghijklmnopqrstuvwxyz"
    text = "\n".join("".join(draw.choices(letters, k=40)) for _ in range(20_000))
    path = tmp_path / "job.log"
    path.write_text(text + "\nCUDA out of memory\n")
    for name in ("_ARROW_AFTER", "_COMPILED_AFTER", "_SIEVES_AFTER"):
        monkeypatch.setattr(tallies, name, 0)
    monkeypatch.setattr(tallies, "_LEAST", 1)
    monkeypatch.setattr(tallies, "_LEAST_COMPILED", 1)
    monkeypatch.setattr("rerail.log_parsers.sieve._TRIED", 0)
    signatures = [Signature(pattern) for pattern in PATTERNS]
    scanner = make_scanner(signatures, cache=None, engine="hyperscan")
    asked: list[int] = []
    look = sieve_of(scanner).look  # type: ignore[union-attr]
    monkeypatch.setattr(
        scanner.sieve(),
        "look",
        lambda *a: (asked.append(1), look(*a))[1],  # type: ignore[attr-defined]
    )
    found = survey(Source(path, "job.log"), signatures, scanner, chunk_size=1 << 14)
    assert [hit.signature for hit in found.hits] == [0]
    assert len(asked) < 10
    assert clean(found.kept[found.hits[0].line]) == "CUDA out of memory"


def test_without_its_head_a_pattern_finds_all_that_it_found() -> None:
    assert without_head(r"iteration +\d+ \|.{0,400}loss: (?:nan|inf)") == "loss: (?:nan|inf)"
    assert without_head(r"(?i)a.*b.{0,9}?(?:timed out|lost peer)") == "(?i)(?:timed out|lost peer)"
    for kept in (
        r"alpha.{0,9}(?:timed out|x)", r"alpha|beta.{0,9}closed", r"(x).{0,9}closed \1", r"(?is)alpha.{0,9}closed", r"(?i)(?s)alpha.{0,9}closed", r"(?:a.{0,9}closed)", r"[.*]closed",
        r"\.*closed",
    ):  # fmt: skip
        assert without_head(kept) == kept
    shorter = 0
    for pattern, example in rules():
        tail = without_head(pattern)
        shorter += tail != pattern
        if found := re.search(pattern, example):
            assert re.search(tail, found[0]), (pattern, example)
    assert shorter > 50


def test_few_signatures_are_scanned_for_alone_where_it_pays() -> None:
    built: list[Sequence[int]] = []

    def build(numbers: Sequence[int], patterns: Sequence[str]) -> Scanner:
        built.append(numbers)
        return make_scanner([Signature(pattern) for pattern in patterns], cache=None)

    few = AskedScanner([f"word{at}" for at in range(200)], build)
    assert few.of(frozenset({3}), _PAYS // 2) is None
    assert few.of(frozenset(range(100)), 2 * _PAYS) is None
    assert few.of(frozenset({3}), 10) is not None
    assert few.of(frozenset({3}), 10) is not None
    assert few.of(frozenset({3, 4}), 10) is None
    assert few.of(frozenset({5, 4}), _PAYS) is None
    assert few.of(frozenset({5, 4}), _PAYS) is not None
    assert few.of(frozenset({3}), 10) is not None
    assert built == [[3], [3, 4, 5]]
    assert few.of(frozenset(range(50, 97)), 4 * _PAYS) is not None
    assert built[2:] == [[*range(50, 97)]]


def test_the_quicker_way_is_taken() -> None:
    signatures = [Signature(pattern) for pattern in PATTERNS]
    sieve = sieve_of(make_scanner(signatures, cache=None, engine="hyperscan"))
    assert sieve is not None

    def share(sieved: float, direct: float) -> float:
        ways = []
        for _ in range(2_048):
            way, timed = sieve.pays()
            ways.append(way)
            if timed:
                sieve.took(way, sieved if way else direct)
        return sum(ways[1_024:]) / 1_024

    assert share(1e-9, 3e-9) > 0.9
    assert share(3e-9, 1e-9) < 0.1
    assert share(1e-9, 3e-9) > 0.9


def test_every_shipped_signature_has_an_image() -> None:
    # One that has none makes the reader look at every line of every log.
    signatures = rule_set(usable_rules()[0]).signatures
    assert [s.pattern for s in signatures if skeleton_pattern(s.pattern) is None] == []


def test_lines_that_only_call_for_an_answered_signature_are_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scanner = make_scanner(
        [Signature("NCCL INFO", presence=True), Signature("CUDA out of memory")],
        cache=None,
        engine="hyperscan",
    )
    sieve = sieve_of(scanner)
    assert sieve is not None
    piece = Piece(b"".join(b"rank%d NCCL INFO opCount %x\n" % (n % 8, n) for n in range(5_000)))
    tally = tallies.tally_large(piece, 1)
    found, seen = sieve.look(piece, tally, frozenset())
    assert not found and seen is not None and len(seen.rows) == 5_000
    assert {seen.table.members[seen.table.sets[kind]] for kind in seen.kinds.tolist()} == {(0,)}
    assert sieve.look(piece, tally, frozenset({0})) == (set(), None)


DIGITS = (
    *PATTERNS,
    r"\w+ of \d{3}\b",
    r"[^5] out",
    r"(?<!7)worker",
    r"(\d)\1",
    r"a(?=\D)",
    r"[\d.]+ s",
    r"(?i)xid [a-f0-9]",
)


def test_what_a_pattern_finds_its_image_finds_with_all_digits_zeroed() -> None:
    draw, found = random.Random(5), 0
    images = {p: zero_image(p) for p in (*DIGITS, r"(?>a7?)7", r"(?!1 )\d+ s", r"a[^0-4x]++")}
    lines = [
        "".join(draw.choices((*WORDS, "5", "77", "a7", "1 ", "a9", " s"), k=draw.randint(1, 5)))
        for _ in range(1_500)
    ]
    for pattern, image in images.items():
        for line in lines:
            if re.search(pattern, line):
                found += line != ZEROED.sub("0", line)
                assert image is not None and image.search(ZEROED.sub("0", line)), (pattern, line)
    for pattern, example in rules():
        if re.search(pattern, example) and not digit_blind(pattern):
            image = zero_image(pattern)
            assert image is not None and image.search(ZEROED.sub("0", example)), (pattern, example)
            found += 1
    assert found > 1_000


def test_a_pattern_that_tells_no_digits_apart_finds_the_same_with_any() -> None:
    draw, blind = random.Random(4), [pattern for pattern in DIGITS if digit_blind(pattern)]
    assert (
        not digit_blind(r"[^5] out") and not digit_blind(r"(\d)\1") and not digit_blind("Xid.*: 79")
    )
    assert digit_blind(r"[^x\s]{3}\b(?!\d)") and len(blind) > 8
    found = 0
    for _ in range(4_000):
        line = "".join(draw.choices((*WORDS, "5", "77", " s", "xid 0"), k=draw.randint(1, 5)))
        other = "".join(
            draw.choice("0123456789") if c.isdigit() and c.isascii() else c for c in line
        )
        for pattern in blind:
            found += (here := re.search(pattern, line)) is not None
            assert (here is None) == (re.search(pattern, other) is None), (pattern, line, other)
    assert found > 1_000
