"""All labels asked at once give what asking each in turn gives."""

from __future__ import annotations

from rerail.log_parsers import label_choice
from rerail.log_parsers.label_choice import LabelChoice
from rerail.log_parsers.labels import labels
from rerail.log_parsers.step_mining import may_name_a_loss

TEXTS = [text for label in labels() for text in (*label.matches, *label.must_not_match)]
PATTERNS = [label.text for label in labels()]


def matching(text: str, at: int) -> list[int]:
    return [place for place, label in enumerate(labels()) if label.pattern.match(text, at)]


def test_every_label_that_matches_is_among_the_places_once_all_are_asked_at_once() -> None:
    choice = LabelChoice(PATTERNS)
    for _ in range(label_choice._PAYS):
        list(choice.places("", 0))
    for text in TEXTS:
        for at in (0, text.find(" ") + 1):
            assert set(matching(text, at)) <= set(choice.places(text, at))


def test_the_first_place_is_that_of_the_first_label_that_matches() -> None:
    choice = LabelChoice(PATTERNS)
    for _ in range(label_choice._PAYS):
        list(choice.places("", 0))
    found = 0
    for text in TEXTS:
        places = matching(text, 0)
        assert next(choice.places(text, 0), None) == (places[0] if places else None)
        found += bool(places)
    assert found > 50


def test_before_it_pays_every_place_is_asked() -> None:
    assert list(LabelChoice(PATTERNS).places("plain words", 0)) == list(range(len(PATTERNS)))


def test_patterns_that_refer_to_their_own_groups_are_asked_one_by_one() -> None:
    choice = LabelChoice([r"(a|b)\1", "c"])
    for _ in range(2 * label_choice._PAYS):
        assert 0 in choice.places("aa", 0)


def test_a_text_with_eight_lines_that_may_name_a_loss_is_learned_from_in_any_case() -> None:
    assert may_name_a_loss(b"step 1 Cost 0.5\n" * 8)
    assert not may_name_a_loss(b"step 1 Cost 0.5\n" * 7)
