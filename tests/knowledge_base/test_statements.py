"""Every form of a statement holds on its own examples, and on no counter-example."""

from __future__ import annotations

import random

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.errors import RuleError
from rerail.knowledge_base import statements
from rerail.knowledge_base.placement.headings import Heading, Table, headings, named_above, tables
from rerail.knowledge_base.statements import Form, Statement, all_forms, parse, read
from rerail.log_parsers.host_names import looks_like_host


def said(text: str) -> list[Statement]:
    return read(diagnose_texts({"a.log": text}).case.views)


def slots(form: Form, text: str) -> list[dict[str, str]]:
    if form.literals:
        return [s.slots for s in said(text) if s.form.id == form.id]
    found = list(form.slots(text))
    return [s for s in found if not form.host_like or looks_like_host(s.get("node", ""))]


def test_a_word_that_begins_within_another_asks_for_its_forms() -> None:
    known = statements.forms()
    words = sorted(known.by_literal)
    chosen = statements._Chosen(known)
    pairs = 0
    for first in words:
        for second in words:
            longest = min(len(first), len(second)) - 1
            for length in range(1, longest + 1):
                if first[-length:] == second[:length]:
                    text = first + second[length:]
                    asked = {form.id for form in chosen._asked(text.encode())}
                    wanted = {
                        form.id for word in (first, second) for form in known.by_literal[word]
                    }
                    assert wanted <= asked, text
                    pairs += 1
    assert pairs


@pytest.mark.parametrize("form", all_forms(), ids=lambda form: form.id)
def test_a_form_holds_on_its_examples(form: Form) -> None:
    assert form.matches
    for text in form.matches:
        assert slots(form, text), text
    for text in form.must_not_match:
        assert not slots(form, text), text


def test_names_of_forms_are_unique() -> None:
    names = [form.id for form in all_forms()]
    assert len(set(names)) == len(names)


def test_a_block_of_one_label_is_not_mixed_with_that_of_another() -> None:
    table = "  rank      : {r} (local_rank: 0)\n  exitcode  : -9 (pid: {p})\n".split("\n")
    rows = [
        table[0].format(r=3),
        table[0].format(r=7),
        table[1].format(p=11),
        table[1].format(p=22),
    ]
    text = "".join(
        f"{host}: {row}\n" for host, row in zip(("gn-1", "gn-2", "gn-1", "gn-2"), rows, strict=True)
    )
    found = [(s.slots["rank"], s.slots["pid"]) for s in said(text)]
    assert found == [("3", "11"), ("7", "22")]


@pytest.mark.parametrize("seed", range(3))
def test_what_is_remembered_of_texts_changes_no_statement(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    texts = [text for form in all_forms() for text in (*form.matches, *form.must_not_match)]
    lines = []
    for _ in range(3):
        for text in draw.sample(texts, len(texts)):
            some = "".join(draw.choice("0123456789") if c in "0123456789" else c for c in text)
            lines += [draw.choice((text, some))]
    views = diagnose_texts({"a.log": "\n".join(lines) + "\n"}).case.views
    monkeypatch.setattr(statements, "_FEW", 10**9)
    plain = read(views)
    monkeypatch.setattr(statements, "_FEW", 0)
    assert read(views) == plain and len(plain) > len(texts)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ({"id": "x", "literals": ["a"], "pattern": "a(?P<colour>b)"}, "colour"),
        ({"id": "x", "pattern": "a"}, "literals"),
        ({"id": "x", "literals": ["a"], "pattern": "a", "tell": "exit"}, "'tell'"),
        ({"id": "x", "literals": ["a"], "pattern": "a", "tells": "gossip"}, "tells"),
    ],
)
def test_a_form_that_is_not_valid_is_named_with_its_file(raw: dict[str, object], why: str) -> None:
    with pytest.raises(RuleError, match=f"mine.yaml: form 'x'.*{why}"):
        parse({"forms": [raw]}, "mine.yaml")


@pytest.mark.parametrize("form", headings(), ids=lambda form: form.id)
def test_a_heading_speaks_for_the_line_that_it_should(form: Heading) -> None:
    def names(text: str) -> bool:
        case = diagnose_texts({"a.log": text}).case
        [view] = case.views
        number = view.numbers[0] if form.below else view.numbers[-1]
        line = view.line(number)
        assert line is not None
        return any(
            (found := named_above(case, line, slot)) is not None
            and form.heading.search(found.line.text)
            for slot in form.heading.groupindex
        )

    assert form.matches
    for text in form.matches:
        assert names(text), text
    for text in form.must_not_match:
        assert not names(text), text


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.id)
def test_a_row_of_a_table_is_read(table: Table) -> None:
    assert all(table.row.match(text) for text in table.matches)
