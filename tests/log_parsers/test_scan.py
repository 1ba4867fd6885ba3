"""All engines find the same lines, whatever is written between the letters."""

from __future__ import annotations

import random
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.errors import RuleError
from rerail.log_parsers import scan
from rerail.log_parsers.scan import Signature, compile_complaint, make_scanner, searchable
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import survey_bytes

ENGINES = ("hyperscan", "re2", "re")
PATTERNS = (
    r"CUDA out of memory",
    r"(?i)segmentation fault",
    r"NCCL WARN .{0,40}(?:timed out|closed by remote peer)",
    r"Xid \((?:PCI:)?(?P<pci>[0-9A-Fa-f:.]+)\): (?P<xid>79)\b",
    r"No space left on device",
    r"loss.{0,20}\bnan\b",
    r"exit(?:ed)? with code [1-9]\d*$",
    r"Killed\s*$",
    r"error: .*",
    r"task \d+: (?:Killed|Aborted)[^\n]*",
    r"\bOOM\b",
    r"val\xe9",
)
SIGNATURES = tuple(Signature(p) for p in PATTERNS)
WORDS = (
    "CUDA out of memory", "CUDA out", "of memory", "Segmentation fault", "SEGMENTATION FAULT", "NCCL WARN ",
    "timed out", "closed by remote peer", "Xid (PCI:0000:9b:00): 79", "Xid (0000:9b:00): 790", "No space left on device",
    "loss: nan", "loss nano", "exited with code 7", "exit with code 0", "exit with code 12 ", "Killed", "Killed process",
    "error: ", "task 3: Killed", "task 33: Aborted (core dumped)", "OOM", "ZOOM", "val\u00e9", "step 12", "", " ",
)  # fmt: skip
NOISE = (b"", b" ", b"\x1b[31m", b"\x1b[0m", b"\x00", b"\r", b"\xff", b"\t", b"\xe2\x80\x8b")


@pytest.fixture(scope="module")
def scanners() -> dict[str, scan.Scanner]:
    return {name: make_scanner(SIGNATURES, cache=None, engine=name) for name in ENGINES}


def hits(scanner: scan.Scanner, data: bytes) -> list[tuple[int, int]]:
    found = survey_bytes(Source(None, "x"), data, SIGNATURES, scanner)
    return [(hit.line, hit.signature) for hit in found.hits]


def generated(seed: int, lines: int) -> bytes:
    source = random.Random(seed)
    rows = []
    for _ in range(lines):
        row = b""
        for word in source.choices(WORDS, k=source.randint(1, 4)):
            raw = word.encode()
            if raw and source.random() < 0.3:
                cut = source.randrange(len(raw))
                raw = raw[:cut] + source.choice(NOISE) + raw[cut:]
            row += raw + source.choice(NOISE)
        rows.append(row + source.choice((b"\n", b"\r\n", b"\n", b"\n\n")))
    return b"".join(rows)


@pytest.mark.parametrize("seed", range(8))
def test_engines_agree_on_generated_text(scanners: dict[str, scan.Scanner], seed: int) -> None:
    data = generated(seed, 800)
    expected = hits(scanners["re"], data)
    assert len({signature for _, signature in expected}) >= 9
    for name in ENGINES:
        assert hits(scanners[name], data) == expected, name


@settings(max_examples=60)
@given(st.lists(st.sampled_from([w.encode() for w in WORDS] + list(NOISE) + [b"\n"]), max_size=30))
def test_engines_agree_on_any_mixture(
    scanners: dict[str, scan.Scanner], parts: list[bytes]
) -> None:
    data = b"".join(parts)
    assert (
        hits(scanners["hyperscan"], data)
        == hits(scanners["re"], data)
        == hits(scanners["re2"], data)
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "line",
    [
        b"CUDA out of memory",
        b"CUDA \x1b[1;31mout of\x1b[0m memory",
        b"CUDA out\x00 of mem\x00ory",
        b"\xff\xfe CUDA out of memory \x80",
        b"[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried",
        b"progress 10%\rprogress 20%\rCUDA out of memory\r",
        b"x" * 70_000 + b"\n" + b"CUDA out of memory",
    ],
)
def test_what_hides_a_literal_does_not_hide_it(
    scanners: dict[str, scan.Scanner], engine: str, line: bytes
) -> None:
    data = b"first\n\n" + line + b"\nlast\n"
    assert hits(scanners[engine], data) == [(3 + line.count(b"\n"), 0)]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_hit_does_not_cross_a_newline(scanners: dict[str, scan.Scanner], engine: str) -> None:
    assert hits(scanners[engine], b"CUDA out\nof memory\nloss\nnan\n") == []


@pytest.mark.parametrize("engine", ENGINES)
def test_an_end_anchor_holds_at_the_end_of_every_line(
    scanners: dict[str, scan.Scanner], engine: str
) -> None:
    data = (
        b"Killed\nKilled by hand\nKilled  \r\nexit with code 1\x1b[0m\nexit with code 1 now\nKilled"
    )
    assert hits(scanners[engine], data) == [(1, 7), (3, 7), (4, 6), (6, 7)]


def test_newlines_stay_where_they_are_for_the_engines() -> None:
    chunk = b"a\x1b[0m\nb\x00\n\x1b]0;t\x07c\n"
    assert searchable(chunk) == b"a\nb\nc\n"


def test_a_pattern_that_reports_every_byte_does_not_flood(
    monkeypatch: pytest.MonkeyPatch, scanners: dict[str, scan.Scanner]
) -> None:
    monkeypatch.setattr(scan, "_FLOOD", 50)
    data = b"no\nCUDA out of memory\n" * 500
    assert hits(scanners["hyperscan"], data) == hits(scanners["re"], data)
    assert hits(scanners["hyperscan"], data)[:2] == [(2, 0), (4, 0)]


def test_the_compiled_database_is_cached_and_a_torn_one_is_rebuilt(tmp_path: Path) -> None:
    data = generated(1, 60)
    expected = hits(make_scanner(SIGNATURES, cache=tmp_path, engine="hyperscan"), data)
    (cached,) = tmp_path.glob("*.hsdb")
    good = cached.read_bytes()
    for torn in (good[: len(good) // 2], b"", b"\0" * 64):
        cached.write_bytes(torn)
        assert hits(make_scanner(SIGNATURES, cache=tmp_path, engine="hyperscan"), data) == expected
        assert cached.read_bytes() == good


def test_other_patterns_have_another_cache_file(tmp_path: Path) -> None:
    make_scanner(SIGNATURES, cache=tmp_path, engine="hyperscan")
    make_scanner(SIGNATURES[:3], cache=tmp_path, engine="hyperscan")
    assert len(list(tmp_path.glob("*.hsdb"))) == 2


def test_a_cache_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    scanner = make_scanner(SIGNATURES, cache=blocked / "cache", engine="hyperscan")
    assert hits(scanner, b"OOM\n") == [(1, 10)]


def test_a_bad_pattern_is_named() -> None:
    with pytest.raises(RuleError, match=r"does not compile"):
        make_scanner([Signature("fine"), Signature("(unclosed")], cache=None, engine="hyperscan")
    assert compile_complaint("(unclosed")
    assert compile_complaint(r"a.{0,5}b$") is None


def test_no_signatures_find_nothing() -> None:
    assert make_scanner((), cache=None).candidates(b"anything\n") == []


@pytest.mark.skipif(find_spec("hyperscan") is None, reason="compiled databases are hyperscan's")
def test_old_compiled_databases_are_removed(tmp_path: Path) -> None:
    for number in range(30):
        make_scanner([Signature(f"word{number}")], cache=tmp_path, engine="hyperscan")
    assert len(list(tmp_path.glob("*.hsdb"))) <= 24


def test_skipped_signatures_propose_nothing() -> None:
    for engine in ("hyperscan", "re2", "re"):
        if engine != "re" and find_spec(engine) is None:
            continue
        scanner = make_scanner([Signature("aaa"), Signature("bbb")], cache=None, engine=engine)
        assert {i for _, i in scanner.candidates(b"aaa bbb\n", {0})} == {1}


@pytest.mark.skipif(find_spec("hyperscan") is None, reason="only hyperscan compiles sets")
def test_a_large_set_is_compiled_in_blocks_and_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rerail.log_parsers.scan._LARGE", 5_000)
    patterns = [f"fault {number:03d}x" for number in range(700)]
    signatures = [Signature(p) for p in patterns]
    own = Signature("link down", added=True)
    text = b"all well\nfault 003x on link down\nfault 699x\nfault 350x and fault 349x\n"
    for every in (signatures, [own, *signatures], [*signatures, own]):
        blocks = make_scanner(every, cache=tmp_path, engine="hyperscan")
        plain = make_scanner(every, cache=None, engine="re")
        for skip in (frozenset(), frozenset({0, 3, 350, 351, 700})):
            assert set(blocks.candidates(text, skip)) == set(plain.candidates(text, skip))
    # Two blocks of shipped patterns and the site's one: its place among all does not matter.
    assert len(list(tmp_path.glob("*.hsdb"))) == 3
    signatures[500] = Signature("(unclosed")
    with pytest.raises(RuleError) as caught:
        make_scanner(signatures, cache=None, engine="hyperscan")
    assert caught.value.subject == "signature 500"
