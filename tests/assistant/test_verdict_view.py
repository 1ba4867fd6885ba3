"""One view of a verdict for all faces: a sentence that was cut is neither ended twice nor repeated below."""

from pathlib import Path

from rerail.assistant.pipeline import diagnose_paths, diagnose_texts
from rerail.assistant.presentation.verdict import verdict_view

FAULTLAB = Path(__file__).parents[1] / "data" / "faultlab"


def test_a_headline_that_was_cut_keeps_its_points_and_is_not_repeated() -> None:
    log = f"[rank1] RuntimeError: {'long ' * 60}\n"
    view = verdict_view(diagnose_texts({"train.log": log}).diagnosis)
    assert view.sentence == view.headline and view.sentence.endswith("lon...")
    assert "RuntimeError" not in view.detail


def test_a_whole_headline_ends_with_one_full_stop() -> None:
    view = verdict_view(diagnose_texts({"train.log": "[rank1] KeyError: 'x'\n"}).diagnosis)
    assert view.sentence == "Rank 1 raised KeyError: 'x'."


def test_the_line_that_another_rank_prints_is_not_called_the_first_fault_itself() -> None:
    hang = diagnose_paths([FAULTLAB / "hang_one_rank"]).diagnosis
    row = verdict_view(hang).first
    assert (row.rank, hang.first_fault.rank, row.word) == (1, 2, "first sign, told by another rank")
    own = diagnose_paths([FAULTLAB / "exception_one_rank"]).diagnosis
    assert verdict_view(own).first.word == "first fault"
