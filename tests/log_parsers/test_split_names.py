"""Pieces that `split` cut out of one log are that log; logs of ranks that are numbered alike are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerail.assistant.pipeline import diagnose_paths
from rerail.log_parsers.rotated import joined
from rerail.log_parsers.sources import discover

LOG = Path(__file__).parents[1] / "data" / "faultlab" / "hang_one_rank" / "torchrun.log"


def letters(number: int) -> str:
    return "x_" + chr(97 + number // 26) + chr(97 + number % 26)


def cut(folder: Path, size: int, name: str) -> int:
    data = LOG.read_bytes()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    for number, piece in enumerate(pieces):
        own = letters(number)
        names = {
            "letters": own, "default": own.replace("_", ""), "word": own.replace("x_", "node"),
            "digits": f"part-{number:03d}.log", "default digits": f"x{number:02d}", "rotated": f"train.log.{number:02d}",
            "host": f"node{number:02d}",
        }  # fmt: skip
        (folder / names[name]).write_bytes(piece)
    return len(pieces)


@pytest.mark.parametrize(
    "name", ["letters", "default", "word", "digits", "default digits", "rotated"]
)
@pytest.mark.parametrize("size", [1_009, 4_001])
def test_pieces_cut_by_bytes_give_the_verdict_of_the_whole(
    tmp_path: Path, name: str, size: int
) -> None:
    count = cut(tmp_path, size, name)
    assert [len(one.parts) for one in joined(discover([tmp_path]).sources)] == [count]
    whole, parts = diagnose_paths([LOG]).diagnosis, diagnose_paths([tmp_path]).diagnosis
    assert (whole.outcome, whole.failure_type, whole.suspects) == (
        parts.outcome, parts.failure_type, parts.suspects,
    )  # fmt: skip


def test_one_file_or_words_that_count_nothing_are_no_pieces(tmp_path: Path) -> None:
    (tmp_path / "xaa").write_bytes(LOG.read_bytes()[:1_009])
    for name in ("xad", "extra"):
        (tmp_path / name).write_bytes(LOG.read_bytes()[1_009:2_018])
    assert not any(one.parts for one in joined(discover([tmp_path]).sources))


def test_a_rotated_log_is_read_from_its_highest_number_although_zeros_fill_it(
    tmp_path: Path,
) -> None:
    for number in range(3):
        steps = range(300 - 100 * number, 400 - 100 * number)
        text = "".join(f"step {n} loss 2.{n % 7}\n" for n in steps)
        (tmp_path / f"train.log.{number:02d}").write_text(text)
    (one,) = joined(discover([tmp_path]).sources)
    assert [part.name[-1] for part in one.parts] == ["2", "1", "0"]


def test_the_number_of_an_older_part_may_stand_in_front_of_the_ending(tmp_path: Path) -> None:
    """logrotate's `extension .log`; without the live file, or counted from 0, they are logs of ranks or nodes."""
    for number, name in ((2, "train.2.log"), (1, "train.1.log"), (0, "train.log")):
        steps = range(300 - 100 * number, 400 - 100 * number)
        (tmp_path / name).write_text("".join(f"step {n} loss 2.{n % 7}\n" for n in steps))
    (one,) = joined(discover([tmp_path]).sources)
    assert [part.name for part in one.parts] == ["train.2.log", "train.1.log", "train.log"]
    (tmp_path / "train.0.log").write_text("step 400 loss 2.1\nstep 401 loss 2.1\n")
    assert not any(one.parts for one in joined(discover([tmp_path]).sources))
    (tmp_path / "train.0.log").unlink()
    (tmp_path / "train.log").unlink()
    assert not any(one.parts for one in joined(discover([tmp_path]).sources))


def test_pieces_that_are_called_like_hosts_are_of_no_host(tmp_path: Path) -> None:
    cut(tmp_path, 1_009, "host")
    (one,) = joined(discover([tmp_path]).sources)
    assert one.origin.node is None


def test_pieces_cut_by_lines_are_one_log_where_their_steps_go_on(tmp_path: Path) -> None:
    for number, name in enumerate(("x_aa", "x_ab", "x_ac")):
        steps = range(100 * number, 100 * number + 100)
        (tmp_path / name).write_text("".join(f"step {n} loss 2.{n % 7}\n" for n in steps))
    assert [len(one.parts) for one in joined(discover([tmp_path]).sources)] == [3]


@pytest.mark.parametrize(("counts", "whole"), [((100, 100, 40), True), ((100, 90, 100), False)])
def test_numbered_pieces_cut_by_lines_hold_one_number_of_lines(
    tmp_path: Path, counts: tuple[int, ...], whole: bool
) -> None:
    """Attempts and folds are numbered too, and follow each other; they are of any length."""
    step = 0
    for number, count in enumerate(counts):
        rows = [f"step {step + n} loss 2.{'7' * (1 + n % 5)}\n" for n in range(count)]
        (tmp_path / f"part-{number:02d}.log").write_text("".join(rows))
        step += count
    parts = [len(one.parts) for one in joined(discover([tmp_path]).sources)]
    assert parts == ([3] if whole else [0, 0, 0])


@pytest.mark.parametrize(("cut", "whole"), [(40, True), (55, True), (0, False)])
def test_numbered_pieces_of_as_many_lines_as_fit_are_one_log(
    tmp_path: Path, cut: int, whole: bool
) -> None:
    """`split -d -C 1000` ends a piece in front of the line for which there is no room."""
    rows = [f"step {n} loss 2.{'7' * (1 + n % cut if cut else 40)}\n" for n in range(300)]
    pieces = [""]
    for row in rows:
        if len(pieces[-1]) + len(row) > (1000 if cut else 900 + 97 * (len(pieces) % 3)):
            pieces.append("")
        pieces[-1] += row
    for number, piece in enumerate(pieces):
        (tmp_path / f"x{number:02d}").write_text(piece)
    parts = [len(one.parts) for one in joined(discover([tmp_path]).sources)]
    assert parts == ([len(pieces)] if whole else [0] * len(pieces))


def test_logs_of_ranks_of_one_size_stay_apart(tmp_path: Path) -> None:
    for rank in range(4):
        text = "".join(f"[rank{rank}]: step {n} loss 2.{n % 7}\n" for n in range(100))
        (tmp_path / f"rank_{rank:02d}.log").write_text(text)
    assert [one.parts for one in joined(discover([tmp_path]).sources)] == [(), (), (), ()]


def test_the_order_of_the_arguments_tells_nothing(tmp_path: Path) -> None:
    count = cut(tmp_path, 1_009, "digits")
    backwards = sorted(tmp_path.iterdir(), reverse=True)
    assert [len(one.parts) for one in joined(discover(backwards).sources)] == [count]


def test_a_gap_or_another_size_is_no_cut_log(tmp_path: Path) -> None:
    for number in (0, 2):
        (tmp_path / f"part-{number:02d}.log").write_text("half a li")
    for name, text in {"x_aa": "half a li", "x_ab": "half", "x_ac": "half a line"}.items():
        (tmp_path / name).write_text(text)
    assert not any(one.parts for one in joined(discover([tmp_path]).sources))
