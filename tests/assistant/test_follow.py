"""A live job: a changed verdict is printed once; rotation and truncation are noticed and said."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rerail.assistant import follow, followed
from rerail.assistant.pipeline import diagnose_paths, scan_plan
from rerail.errors import EvidenceError
from rerail.log_parsers import following
from rerail.log_parsers.collect import scanner_for
from rerail.log_parsers.sources import Source, discover
from rerail.log_parsers.survey import survey

STEPS = "".join(f"step {i} loss 2.0\n" for i in range(1, 20))
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"
DATA = Path(__file__).parent.parent / "data"
LOGS = sorted(path for path in DATA.rglob("*.log") if 400 < path.stat().st_size < 200_000)
Watch = Callable[..., int]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Follow paths; between two looks the next of the given changes is made."""

    def run(path: Path, *changes: Callable[[], object], **options: bool) -> int:
        todo: Iterator[Callable[[], object]] = iter(changes)
        monkeypatch.setattr(follow.time, "sleep", lambda _: next(todo)())
        shown = {"json_output": False, "quiet": True, **options}
        return follow.follow_command([str(path)], polls=len(changes) + 1, **shown)

    return run


def append(path: Path, text: str) -> Callable[[], object]:
    return lambda: path.write_text(path.read_text() + text)


def test_a_verdict_is_printed_when_it_changes_and_only_then(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "live.log"
    path.write_text(STEPS)
    code = watch(path, append(path, "step 20 loss 2.0\n"), append(path, OOM), lambda: None)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["no_failure", "failure"]
    assert all(line.split()[0].endswith("Z") for line in lines)
    assert lines[1].endswith("live.log:21")
    assert code == 0


def test_rotation_is_noticed(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "live.log"
    path.write_text(STEPS)

    def rotate() -> None:
        path.rename(tmp_path / "live.log.1")
        path.write_text(STEPS + OOM)

    assert watch(path, rotate) == 0
    told = capsys.readouterr()
    assert "live.log was rotated" in told.err
    assert " failure " in told.out.splitlines()[-1]


def test_truncation_is_noticed(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "live.log"
    path.write_text(STEPS + OOM)
    assert watch(path, lambda: path.write_text(STEPS)) == 3
    told = capsys.readouterr()
    assert "live.log was truncated" in told.err
    assert [line.split()[1] for line in told.out.splitlines()] == ["failure", "no_failure"]


def test_a_new_file_of_a_folder_is_read(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rank_0.log").write_text(STEPS)
    assert watch(tmp_path, lambda: (tmp_path / "rank_3.log").write_text(OOM)) == 0
    assert "rank_3.log:1" in capsys.readouterr().out


def test_a_file_that_vanishes_and_comes_back(watch: Watch, tmp_path: Path) -> None:
    path = tmp_path / "live.log"
    path.write_text(STEPS)
    assert watch(path, path.unlink, lambda: path.write_text(STEPS + OOM)) == 0


def test_each_verdict_is_one_json_object(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "live.log"
    path.write_text(STEPS)
    watch(path, append(path, OOM), json_output=True, quiet=False)
    out, found = capsys.readouterr().out, []
    while out.strip():
        body, end = json.JSONDecoder().raw_decode(out)
        found.append((body["outcome"], body["update"]["changed"][0]))
        assert body["update"]["time"].endswith("Z")
        out = out[end:].lstrip()
    assert found == [("no_failure", "first look"), ("failure", "outcome no_failure -> failure")]


def updates(out: str) -> list[dict[str, object]]:
    found = []
    while out.strip():
        body, end = json.JSONDecoder().raw_decode(out)
        found.append(body)
        out = out[end:].lstrip()
    return found


def state_of_trainer(steps: int, bad_from: int = 10_000) -> str:
    rows = [
        {"step": i, "loss": float("nan") if i >= bad_from else 2.0 - i / 100, "learning_rate": 1e-4}
        for i in range(1, steps)
    ]
    return json.dumps({"best_metric": None, "log_history": rows}, indent=2)


def test_a_file_of_numbers_that_is_written_anew_is_judged_anew(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(state_of_trainer(30))

    def saves() -> None:  # as the Trainer does: another file under the same name
        (tmp_path / "new").write_text(state_of_trainer(60, bad_from=40))
        (tmp_path / "new").rename(path)

    watch(tmp_path, lambda: None, saves, json_output=True, quiet=False)
    told = capsys.readouterr()
    found = updates(told.out)
    assert [one["failure_type"] for one in found] == ["no_failure", "loss_nan"]
    assert "trainer_state.json changed" in found[1]["update"]["changed"]  # type: ignore[index]
    assert "chapter" not in told.err


def test_large_files_of_numbers_are_read_again_only_now_and_then(
    watch: Watch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followed, "MUCH_BYTES", 10)
    monkeypatch.setattr(followed, "SELDOM", 3)
    path = tmp_path / "trainer_state.json"
    path.write_text(state_of_trainer(30))
    looks: list[int] = []

    def grow() -> None:
        looks.append(1)
        path.write_text(state_of_trainer(60, bad_from=40) + " " * len(looks))

    watch(tmp_path, grow, grow, grow, json_output=True, quiet=False)
    found = updates(capsys.readouterr().out)
    # First seen at the first look; the change of the second is read with the fourth.
    assert [one["failure_type"] for one in found] == ["no_failure", "loss_nan"]
    assert len(found[1]["update"]["changed"]) > 3  # type: ignore[index]


def test_a_series_that_no_form_knows_is_judged_as_it_grows(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def layout(first: int, last: int, bad_from: int) -> str:
        values = ((i, "nan" if i >= bad_from else f"{2 - i / 100:.4f}") for i in range(first, last))
        return "".join(f"Up. {i} : cost {value} * 12,345 words/s\n" for i, value in values)

    path = tmp_path / "live.log"
    path.write_text(layout(1, 40, 99))
    watch(path, append(path, layout(40, 70, 99)), append(path, layout(70, 99, 75)))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["no_failure", "failure"]
    assert "loss_nan" in lines[-1]


def test_nothing_to_follow_is_missing_evidence(watch: Watch, tmp_path: Path) -> None:
    with pytest.raises(EvidenceError):
        watch(tmp_path / "nowhere.log")


def test_standard_input_cannot_be_followed(watch: Watch) -> None:
    with pytest.raises(EvidenceError, match="standard input"):
        watch(Path("-"))


def test_ctrl_c_before_the_first_verdict_is_no_missing_evidence(
    watch: Watch, tmp_path: Path
) -> None:
    def stops() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(tmp_path / "later.log", stops)


def test_a_pipe_cannot_be_followed_and_is_not_waited_for(watch: Watch, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(EvidenceError, match="is a pipe"):
        watch(pipe)


def blocks_taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of the blocks that are read of followed files from now on, as they are read."""
    taken: list[int] = []
    whole = following.FollowedFile._take
    monkeypatch.setattr(
        following.FollowedFile, "_take",
        lambda self, block: (taken.append(len(block)), whole(self, block)),
    )  # fmt: skip
    return taken


def test_only_what_is_new_is_read(
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "live.log"
    path.write_text(STEPS * 1_000)
    taken = blocks_taken(monkeypatch)
    more = "step 20 loss 2.0\n"
    assert watch(path, append(path, more), append(path, OOM)) == 0
    assert sum(taken) == len(STEPS) * 1_000 + len(more) + len(OOM)


def test_a_rotated_part_does_not_bring_its_fault_back(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder the part that was moved away is still there: it is an earlier chapter."""
    path = tmp_path / "live.log"
    path.write_text(STEPS + OOM)

    def rotate() -> None:
        path.rename(tmp_path / "live.log.1")
        path.write_text(STEPS)

    assert watch(tmp_path, rotate, append(path, "step 20 loss 2.0\n")) == 3
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [
        "failure",
        "no_failure",
    ]


@pytest.mark.parametrize("seed", range(4))
def test_looks_at_a_growing_file_end_where_one_look_does(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    text = (STEPS * rng.choice((1, 40, 9_000)) + OOM + STEPS * rng.choice((0, 1, 9_000))).encode()
    path = tmp_path / "live.log"
    path.write_bytes(b"")
    plan = scan_plan()
    source = Source(path, path.name)
    followed = following.FollowedFile(source, plan.signatures, scanner_for(plan, None))
    cuts = sorted(rng.randrange(len(text) + 1) for _ in range(6))
    for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True):
        with path.open("ab") as out:
            out.write(text[start:stop])
        followed.look()
        followed.survey()
    found, expected = followed.survey(), survey(source, plan.signatures, scanner_for(plan, None))
    assert found.counts == expected.counts and found.lines == expected.lines
    assert [hit.line for hit in found.hits] == [hit.line for hit in expected.hits]
    assert found.facts.keys == expected.facts.keys and found.facts.counts == expected.facts.counts
    assert (found.facts.firsts, found.facts.lasts) == (expected.facts.firsts, expected.facts.lasts)
    assert found.steps == expected.steps


def verdict(found: dict[str, object]) -> list[object]:
    shown = ("outcome", "status", "failure_type", "first_fault", "suspects")
    return [found[name] for name in shown]


@pytest.mark.parametrize("at", range(0, 1000, 90))
def test_the_parts_of_a_rotated_log_are_followed_as_they_are_read(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    """Logs of the tests' own data are cut in two; of the newer part a half is there at first.

    A line that only adds to what is cited for the same verdict, or proves the same place once
    more, is no change that is told.
    """
    lines = LOGS[at % len(LOGS)].read_bytes().splitlines(keepends=True)
    middle = len(lines) // 2
    (tmp_path / "train.log.1").write_bytes(b"".join(lines[:middle]))
    live = tmp_path / "train.log"
    live.write_bytes(b"".join(lines[middle : middle + middle // 2 + 1]))

    def grow() -> None:
        with live.open("ab") as out:
            out.write(b"".join(lines[middle + middle // 2 + 1 :]))

    watch(tmp_path, grow, json_output=True, quiet=False)
    plain = diagnose_paths([tmp_path]).diagnosis.model_dump(mode="json")
    told = updates(capsys.readouterr().out)[-1]
    assert verdict(told) == verdict(plain)
    assert told["evidence"][:1] == plain["evidence"][:1]


def test_older_parts_are_read_once_and_lines_are_told_where_they_lie(
    watch: Watch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    older = "".join(f"[rank0]: step {n} loss 2.{n}\n" for n in range(4000))
    (tmp_path / "live.log.2.gz").write_bytes(gzip.compress(older.encode()))
    (tmp_path / "live.log.1").write_text("[rank0]: step 4000 loss 2.1\n[rank0]: step 40")
    path = tmp_path / "live.log"
    path.write_text("01 loss 2.1\n")
    taken = blocks_taken(monkeypatch)
    watch(tmp_path, append(path, "[rank0]: step 4002 loss 2.0\n"), append(path, OOM))
    told = capsys.readouterr().out.splitlines()
    assert told[-1].endswith("live.log:3")
    assert sum(taken) == len(older) + 44 + len("01 loss 2.1\n[rank0]: step 4002 loss 2.0\n") + len(
        OOM
    )


@pytest.mark.parametrize("how", ["renamed", "copied", "packed"])
def test_rotation_while_a_rotated_log_is_followed_begins_a_new_chapter(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    path, older, oldest = (tmp_path / name for name in ("live.log", "live.log.1", "live.log.2"))
    older.write_text(STEPS)
    path.write_text(f"step 20 loss 2.0\n{OOM}")

    def rotate() -> None:
        if how == "packed":
            (tmp_path / "live.log.2.gz").write_bytes(gzip.compress(older.read_bytes()))
            older.unlink()
        else:
            older.rename(oldest)
        if how == "copied":
            older.write_text(path.read_text())
            os.truncate(path, 0)
        else:
            path.rename(older)
        path.write_text("step 21 loss 2.0\n")

    assert watch(tmp_path, rotate, append(path, "step 22 loss 2.0\n")) == 3
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [
        "failure",
        "no_failure",
    ]


@pytest.mark.parametrize("start", ["step 1 loss 2.0\n", "step 1 loss 9.0\n"])
def test_truncation_is_noticed_when_the_file_has_outgrown_its_old_size(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str], start: str
) -> None:
    """The new text may begin as the old one did."""
    path = tmp_path / "live.log"
    path.write_text(STEPS + OOM)
    again = start + "".join(f"step {i} loss 1.{i}\n" for i in range(2, 200))
    assert watch(path, lambda: path.write_text(again), append(path, OOM)) == 0
    told = capsys.readouterr()
    assert told.err.count("live.log was truncated") == 1
    assert [line.split()[1] for line in told.out.splitlines()] == [
        "failure",
        "no_failure",
        "failure",
    ]
    assert told.out.rstrip().endswith("live.log:200")


def test_zeros_that_a_file_server_shows_for_a_while_are_no_truncation(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "live.log"
    path.write_text(STEPS + "\0" * 17)
    assert watch(path, lambda: path.write_text(STEPS + "step 20 loss 2.0\n" + OOM)) == 0
    assert "truncated" not in capsys.readouterr().err


def test_an_older_part_stays_past_when_the_live_file_is_gone(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, older = tmp_path / "live.log", tmp_path / "live.log.1"
    path.write_text(STEPS + OOM)

    def rotate() -> None:
        path.rename(older)
        path.write_text(STEPS)

    def pack() -> None:
        (tmp_path / "live.log.1.gz").write_bytes(gzip.compress(older.read_bytes()))
        older.unlink()

    newer = tmp_path / "rank7.log"
    ecc = "[rank7]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    assert watch(tmp_path, rotate, pack, lambda: newer.write_text(ecc), path.unlink) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("rank7.log:1")


def test_a_log_that_was_packed_and_removed_between_two_looks_is_told_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "_MOST_HELD", 0)  # as where many files are followed
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 2.0\nstep 2 loss 1.9\n")
    files = followed.Followed(followed.path_of)
    files.look(discover([log]).sources)
    (tmp_path / "train.log.1.gz").write_bytes(gzip.compress(log.read_bytes() + b"boom\n"))
    log.unlink()
    assert files.look([]) == ["train.log is gone"]
    told = capsys.readouterr().err
    assert f"what it said last may be in train.log.1.gz: rerail diagnose {tmp_path}" in told
    log.write_text("step 1 loss 2.0\n")
    files.look(discover([log]).sources)
    (tmp_path / "train.log.1.gz").unlink()
    log.unlink()
    files.look([])
    assert "a new file of this name is read" in capsys.readouterr().err


def test_the_end_of_a_log_that_was_removed_is_told_before_it_is_gone(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "live.log"
    path.write_text(STEPS)

    def fails_and_is_removed() -> None:
        with path.open("a") as file:
            file.write(OOM)
        path.unlink()

    watch(path, fails_and_is_removed, lambda: None)
    told = capsys.readouterr()
    assert [line.split()[1] for line in told.out.splitlines()] == ["no_failure", "failure"]
    assert "live.log is gone; a new file of this name" in told.err


def test_a_log_that_was_emptied_is_not_gone(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "live.log"
    path.write_text(STEPS + OOM)
    assert watch(path, lambda: os.truncate(path, 0), append(path, STEPS)) == 3
    told = capsys.readouterr()
    assert [line.split()[1] for line in told.out.splitlines()] == ["failure", "no_failure"]
    assert "live.log was truncated; a new chapter begins" in told.err
    assert "gone" not in told.err


def _renamed(path: Path) -> None:
    path.rename(f"{path}.1")


def _copied(path: Path) -> None:
    Path(f"{path}.1").write_bytes(path.read_bytes())
    os.truncate(path, 0)


def _packed(path: Path) -> None:
    Path(f"{path}.1.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()


def _moved_into_a_folder(path: Path) -> None:
    old = path.with_name("old")
    old.mkdir()
    path.rename(old / "2026-11-27.txt")


def _removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("rotate", "held"),
    [
        *((how, 256) for how in (_renamed, _copied, _packed, _moved_into_a_folder, _removed)),
        *((how, 0) for how in (_renamed, _copied, _packed)),  # looked for beside itself
    ],
)
@pytest.mark.parametrize("folder", [False, True])
def test_what_stood_behind_the_last_look_is_told_before_a_new_chapter(
    rotate: Callable[[Path], None],
    folder: bool,
    held: int,
    watch: Watch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "live.log"
    path.write_text(STEPS)
    monkeypatch.setattr(followed, "_MOST_HELD", held)

    def fails_and_is_rotated() -> None:
        with path.open("a") as file:
            file.write(OOM)
        rotate(path)
        path.touch()  # what rotates logs creates the new one empty

    def goes_on() -> None:
        path.write_text("step 1 loss 9.0\n")

    assert watch(tmp_path if folder else path, fails_and_is_rotated, goes_on, lambda: None) == 3
    told = capsys.readouterr()
    verdicts = [line.split()[1] for line in told.out.splitlines()]
    assert verdicts == ["no_failure", "failure", "no_failure"]
    assert "a new chapter begins" in told.err and "not known" not in told.err


def test_a_log_that_lies_nowhere_any_more_may_have_said_more(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "live.log"
    path.write_text(STEPS)
    (tmp_path / "live.log.1").write_text("something else\n" + STEPS * 9)

    def is_written_anew() -> None:
        path.write_text("step 1 loss 9.0\n")

    watch(path, is_written_anew)
    assert "whether it said more behind line 19 is not known" in capsys.readouterr().err
