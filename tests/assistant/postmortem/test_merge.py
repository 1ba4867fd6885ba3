"""Re-drafting never loses a person's words, and never adds the same facts twice."""

from dataclasses import replace

import pytest

from rerail.assistant.postmortem.document import Author, Document, Section
from rerail.assistant.postmortem.merge import merge, render


def document(summary="It broke.", impact="4 GPUs", extra=()):
    return Document(
        "Post-mortem X",
        (
            Section("summary", "Summary", summary, Author.WORDS),
            Section("impact", "Impact", impact),
            *extra,
        ),
    )


def test_an_untouched_draft_takes_every_new_fact():
    merged = merge(document(impact="8 GPUs"), render(document()))
    assert merged.text == render(document(impact="8 GPUs")).rstrip() + "\n" and not merged.kept


def test_an_edit_stays_and_other_sections_are_renewed():
    edited = render(document()).replace("It broke.", "It broke since the fan was off.")
    merged = merge(document(impact="8 GPUs"), edited)
    assert "since the fan was off" in merged.text and "8 GPUs" in merged.text
    assert merged.kept == ("summary",) and not merged.changed_below


def test_changed_facts_behind_an_edit_are_added_below_it_once():
    edited = render(document()).replace("4 GPUs", "4 GPUs, of which two were ours")
    once = merge(document(impact="8 GPUs"), edited)
    assert once.changed_below == ("impact",)
    assert "of which two were ours" in once.text and "8 GPUs" in once.text
    twice = merge(document(impact="8 GPUs"), once.text)
    assert twice.text == once.text
    third = merge(document(impact="9 GPUs"), twice.text)
    assert "8 GPUs" not in third.text and "of which two were ours" in third.text


def test_words_between_sections_and_a_renamed_heading_stay():
    edited = render(document()).replace("## Impact", "## What it cost us") + "\nPS: thanks, Bo.\n"
    merged = merge(document(summary="It broke twice."), edited)
    assert "PS: thanks, Bo." in merged.text and "It broke twice." in merged.text


def test_new_sections_are_added_and_deleted_marks_lose_nothing():
    merged = merge(document(extra=(Section("response", "Response", "none"),)), render(document()))
    assert merged.text.count("rerail:response") == 1
    foreign = "# My own notes\n\nprecious\n"
    assert merge(document(), foreign).text.startswith(foreign)
    torn = render(document()).replace("<!-- rerail:end -->", "", 1).replace("It broke.", "precious")
    assert "precious" in merge(document(summary="new"), torn).text


@pytest.mark.parametrize("spaces", ["  \n", "\r\n"])
def test_an_editor_that_only_changes_blanks_makes_no_edit(spaces):
    touched = render(document()).replace("It broke.\n", f"It broke.{spaces}")
    assert not merge(document(summary="It broke again."), touched).kept


def test_the_title_follows_the_verdict_unless_a_person_wrote_it():
    renamed = replace(document(), title="Post-mortem X: the disk")
    assert merge(renamed, render(document())).text.startswith("# Post-mortem X: the disk\n")
    mine = render(document()).replace("# Post-mortem X", "# The day the fan died")
    assert merge(renamed, mine).text.startswith("# The day the fan died\n")
