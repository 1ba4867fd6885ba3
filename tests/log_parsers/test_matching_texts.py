"""What a scanner must find is made from the patterns themselves."""

from __future__ import annotations

import re
from random import Random

import pytest

from rerail.assistant.pipeline import scan_plan
from rerail.errors import RuleError
from rerail.log_parsers.matching_texts import matching_texts, missed
from rerail.log_parsers.scan import Signature, make_scanner
from rerail.log_parsers.scan_library import must_find

MISSED = r'\|\s*(?:Fail|Warn|Skip - All)\b|"status"\s*:\s*"FAIL'


def test_lines_differ_and_match() -> None:
    pattern = r"(?:task|rank) \d{1,4}[^:x]?: (?i:Exited|killed)\b.*"
    lines = list(matching_texts(pattern, Random(1), 200))
    assert len(set(lines)) > 100
    assert all(re.search(pattern, line) for line in lines)


def test_a_pattern_that_is_not_read_here_gives_no_line() -> None:
    assert not list(matching_texts(r"(a)(?(1)b|c)", Random(1), 5))


def test_a_scanner_that_misses_is_told() -> None:
    class Blind:
        def candidates(self, chunk: bytes, skip: object = ()) -> list[tuple[int, int]]:
            return []

    signatures = [Signature("ab+c"), Signature("d")]
    assert set(missed(signatures, Blind(), seed=1, count=3)) == {"ab+c", "d"}
    assert not missed(
        signatures, make_scanner(signatures, cache=None, engine="re"), seed=1, count=9
    )


@pytest.mark.parametrize("engine", ["hyperscan", "re2", "re"])
def test_no_engine_misses_what_vectorscan_5_4_12_does(engine: str) -> None:
    signatures = [Signature(MISSED)]
    scanner = make_scanner(signatures, cache=None, engine=engine)
    assert not missed(signatures, scanner, seed=1, count=400)


class BlindDatabase:
    """Stands for a library that compiles everything and finds nothing."""

    def __init__(self, **_: object) -> None:
        pass

    def compile(self, **_: object) -> None:
        pass

    def scan(self, *_: object, **__: object) -> None:
        pass


def test_a_library_that_misses_matches_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    import hyperscan

    must_find.cache_clear()
    monkeypatch.setattr(hyperscan, "Database", BlindDatabase)
    signatures = [Signature("ab+c")]
    scanner = make_scanner(signatures, cache=None)
    assert [at for _, at in scanner.candidates(b"xabbc\n")] == [0]
    with pytest.raises(RuleError, match="misses matches"):
        make_scanner(signatures, cache=None, engine="hyperscan")
    must_find.cache_clear()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
def test_the_compiled_rules_miss_nothing(seed: int) -> None:
    plan = scan_plan()
    scanner = make_scanner(plan.signatures, cache=plan.cache, engine="hyperscan")
    assert not missed(plan.signatures, scanner, seed=seed, count=40)
