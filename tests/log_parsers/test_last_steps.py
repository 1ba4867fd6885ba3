"""The last step of every writer is exact, however few of the step lines are kept."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rerail.log_parsers import line_tables, tallies
from rerail.log_parsers.last_lines import LastLines
from rerail.log_parsers.last_steps import behind_others
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.prefixes import NOWHERE
from rerail.log_parsers.room import Room
from rerail.log_parsers.scan import Signature, make_scanner
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import FileSurvey, survey
from rerail.log_parsers.survey_rows import survey_of, survey_row

RANKS, STEPS = 40, 300
LABELS: dict[str, Callable[[int], str]] = {
    "torchrun": lambda rank: f"[default{rank % 8}]:[rank{rank}]: ",
    "rank": lambda rank: f"[rank{rank}]: ",
    "srun": lambda rank: f"{rank}: ",
    "kubectl": lambda rank: f"[pod/train-worker-{rank // 8}/pytorch] [rank{rank}]: ",
}


def log(label: Callable[[int], str], last: dict[int, int]) -> str:
    """Steps of all ranks in any order, of some up to their last one; other lines between."""
    chance, lines = random.Random(4), []
    for step in range(1, STEPS + 1):
        ranks = [rank for rank in range(RANKS) if step <= last.get(rank, STEPS)]
        chance.shuffle(ranks)
        lines += [f"{label(rank)}INFO step {step} loss {3 - step / 999:.4f}" for rank in ranks]
        lines += [f"{label(rank)}INFO stepping aside for a moment" for rank in range(0, RANKS, 9)]
    return "\n".join([*lines, ""])


def read(path: Path, room: Room, size: int = 8_192) -> FileSurvey:
    signatures = (Signature("Watchdog caught"),)
    scanner = make_scanner(signatures, cache=None)
    return survey(Source(path, path.name), signatures, scanner, chunk_size=size, room=room)


def told(found: FileSurvey) -> dict[int | None, int]:
    writers = found.facts.writers(NOWHERE)
    return {writers[stream].rank: step for stream, _, step in found.facts.last_steps}


@pytest.mark.parametrize("label", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("vectors", [True, False])
def test_every_rank_has_its_last_step_though_most_step_lines_are_left_out(
    label: Callable[[int], str], vectors: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rerail.log_parsers.survey.vectors_pay", lambda size: vectors)
    if vectors and line_tables.compiled() is None and not tallies.sieves_pay():
        pytest.skip("neither the compiled loops nor pyarrow are here")
    last = {7: 31, 21: 120}
    path = tmp_path / "a.log"
    path.write_text(log(label, last))
    found = read(path, Room(step_rows=600, whole=1_000, keep=30_000))
    assert len(found.steps) < RANKS * STEPS / 3, "the steps are sampled"
    assert told(found) == {rank: last.get(rank, STEPS) for rank in range(RANKS)}
    lines = path.read_text().splitlines()
    for _, line, step in found.facts.last_steps:
        assert f"step {step} " in lines[line - 1]
    kept = {
        found.kept.get(line, b"").decode()
        for _, line, step in found.facts.last_steps
        if step < STEPS
    }
    assert {text.partition("loss")[0] for text in kept} == {
        f"{label(rank)}INFO step {step} " for rank, step in last.items()
    }


def test_the_last_steps_are_written_for_others_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(log(LABELS["kubectl"], {3: 9}))
    found = read(path, Room(step_rows=600))
    again = survey_of(json.loads(json.dumps(survey_row(found))), "a shard")
    assert told(again) == told(found) == {rank: 9 if rank == 3 else STEPS for rank in range(RANKS)}


@pytest.mark.parametrize("held", [1, 200, 1 << 20])
@pytest.mark.parametrize("large", [True, False])
def test_of_each_stream_the_last_line_is_held(held: int, large: bool) -> None:
    np = pytest.importorskip("numpy")
    chance, lines, expected, number = random.Random(1), LastLines(held), {}, 1
    for _ in range(20):
        own = [chance.randrange(30) for _ in range(50)]
        texts = [
            f"line {number + at} {'x' * (900 * (stream == 4))}" for at, stream in enumerate(own)
        ]
        piece = Piece("".join(f"{text}\n" for text in texts).encode())
        rows = sorted(chance.sample(range(50), 20))
        if large:
            piece.ends_known(ends := np.asarray(piece.ends), ends)
        lines.add(piece, number, rows, np.asarray(own, np.int32) if large else own)
        expected |= {own[row]: (number + row, texts[row]) for row in rows}
        number += 50
        if _ == 10:
            assert lines.found(), "asking takes nothing away"
    assert lines.found() == sorted(
        (line, stream, text.encode()) for stream, (line, text) in expected.items()
    )


def test_lines_of_those_behind_the_most_are_kept() -> None:
    rows = [(1, 10, 4, b"a"), (2, 11, 5, b"b"), (3, 12, 5, b"c"), (4, 13, 6, b"d")]
    assert behind_others(rows) == [(10, b"a")]
    assert behind_others([]) == []
