"""What is kept of one file falls with the number of files, and what it shows does not."""

from pathlib import Path

import pytest

from rerail.log_parsers.collect import ScanPlan, collect
from rerail.log_parsers.room import Room
from rerail.log_parsers.scan import Signature

WARNING = "W {} UserWarning: 5 workers are many\n"
SIGNATURES = (Signature(r"[A-Z]\w{0,60}(?:Error|Warning): ", wants_context=True),)


@pytest.mark.parametrize("field", Room.__dataclass_fields__)
def test_what_is_kept_of_a_file_falls_with_the_number_of_files_but_never_to_nothing(field):
    kept = [getattr(Room().among(files), field) for files in (0, 1, 8, 64, 512, 100_000)]
    assert kept[0] == kept[1] == getattr(Room(), field)
    assert kept == sorted(kept, reverse=True)
    assert 0 < kept[-1] < kept[0]


def test_of_many_files_fewer_hits_of_each_are_kept_and_all_are_counted(tmp_path: Path) -> None:
    lines = "".join(WARNING.format(n) for n in range(90_000)) + "RuntimeError: bad shard\n"
    for rank in range(64):
        (tmp_path / f"rank{rank:02}.log").write_text(lines)
    found = collect([tmp_path], ScanPlan(SIGNATURES), workers=1)
    alone = collect([tmp_path / "rank00.log"], ScanPlan(SIGNATURES), workers=1)
    (one,) = alone.views
    for view in found.views:
        assert view.survey.counts == one.survey.counts == {0: 90_001}
        assert len(view.survey.kept) < 600 < len(one.survey.kept)
        assert view.survey.hits[-1] == one.survey.hits[-1]
        assert 90_001 in view.survey.kept


HARMLESS = (
    Signature(r"[A-Z]\w{0,60}(?:Error|Warning): ", wants_context=True, order=1),
    Signature(r"UserWarning: ", harmless=True, unless="CUDA", order=0),
)


def kept_of(tmp_path: Path, words: str):
    path = tmp_path / "train.log"
    path.write_text(
        "".join(f"W {n} UserWarning: {words} {n % 7}\nstep {n}\n" for n in range(60_000))
    )
    (one,) = collect([path], ScanPlan(HARMLESS), workers=1).views
    return one.survey


def test_of_a_harmless_warning_that_comes_all_day_little_is_kept(tmp_path: Path) -> None:
    found = kept_of(tmp_path, "workers are many:")
    assert found.counts == {0: 60_000, 1: 60_000}
    assert len(found.hits) < 100
    assert len(found.kept) < 600


def test_a_warning_that_its_rule_does_not_call_harmless_keeps_its_room(tmp_path: Path) -> None:
    assert len(kept_of(tmp_path, "CUDA is slow:").hits) > 700
