"""One view of a verdict for all faces: a sentence that was cut is neither ended twice nor repeated below."""

from rerail.assistant.pipeline import diagnose_texts
from rerail.assistant.presentation.verdict import verdict_view


def test_a_headline_that_was_cut_keeps_its_points_and_is_not_repeated() -> None:
    log = f"[rank1] RuntimeError: {'long ' * 60}\n"
    view = verdict_view(diagnose_texts({"train.log": log}).diagnosis)
    assert view.sentence == view.headline and view.sentence.endswith("lon...")
    assert "RuntimeError" not in view.detail


def test_a_whole_headline_ends_with_one_full_stop() -> None:
    view = verdict_view(diagnose_texts({"train.log": "[rank1] KeyError: 'x'\n"}).diagnosis)
    assert view.sentence == "Rank 1 raised KeyError: 'x'."
