"""The site's own signatures are compiled apart: the same hits, and the shipped set stays as it is."""

import random
from dataclasses import replace

import pytest

from rerail.knowledge_base.matcher import rule_set
from rerail.knowledge_base.rules import load_rules
from rerail.log_parsers.scan import Signature, make_scanner, sieve_of
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import survey_bytes
from rerail.log_parsers.tallies import vectors_at_hand

pytest.importorskip("hyperscan")
WORDS = [
    "Xid 79",
    "out of memory",
    "loss nan",
    "flux capacitor hot",
    "step 12",
    "warp core",
    "done",
]


def signatures(added):
    plain = [
        Signature(r"Xid \d+", True),
        Signature(r"(?i)out of memory"),
        Signature(r"flux capacitor (?:hot|cold)", True, added=added),
        Signature(r"loss.{0,20}nan"),
        Signature(r"done", presence=True),
        Signature(r"warp .{0,9}core", presence=True, added=added),
    ]
    return plain


def lines(count=6_000):
    draw = random.Random(1)
    return "".join(
        f"[rank{draw.randrange(8)}] {' '.join(draw.choices(WORDS, k=2))} {draw.random():.6f}\n"
        for _ in range(count)
    ).encode()


def test_two_sets_find_what_one_finds(tmp_path):
    text = lines(300)
    whole = make_scanner(signatures(False), cache=tmp_path)
    apart = make_scanner(signatures(True), cache=tmp_path)
    assert type(whole) is not type(apart)
    for skip in ((), {1, 5}, {0, 2}):
        assert set(apart.candidates(text, skip)) == set(whole.candidates(text, skip))


def test_the_same_hits_and_counts_with_and_without_the_sieve(tmp_path):
    text = lines()
    one = survey_bytes(
        Source(None, "a.log"), text, signatures(False), make_scanner(signatures(False), cache=None)
    )
    scanner = make_scanner(signatures(True), cache=tmp_path)
    two = survey_bytes(Source(None, "a.log"), text, signatures(True), scanner)
    assert one.hits == two.hits and one.counts == two.counts and len(one.hits) > 1_000
    assert (sieve_of(scanner) is not None) == vectors_at_hand()


def test_a_new_rule_compiles_nothing_but_itself(tmp_path):
    rules = load_rules()[:60]
    make_scanner(rule_set(rules).signatures, cache=tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    learned = replace(
        rules[3], id="learned-x", pattern="flux capacitor .{0,20}overheated", added=True
    )
    # Wherever it stands among the rules, the shipped set is the one that lies in the cache.
    for place in (0, 30, 60):
        make_scanner(rule_set([*rules[:place], learned, *rules[place:]]).signatures, cache=tmp_path)
    new = [path for path in tmp_path.iterdir() if path.name not in before]
    assert len(new) == 1 and new[0].stat().st_size < max(
        p.stat().st_size for p in tmp_path.iterdir()
    )
