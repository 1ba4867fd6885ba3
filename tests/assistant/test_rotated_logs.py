"""A rotated log is judged as the joined file is, however it was cut, named and given."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from rerail.assistant.cli.scan import scan_command
from rerail.assistant.digest import job_digest
from rerail.assistant.pipeline import Outcome, diagnose_paths, diagnose_texts
from rerail.assistant.snapshot import take_snapshot

FAULTS = (
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:3b:00): 48, pid=1, An uncorrectable double bit error (DBE) has been detected",
    "[rank{rank}]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
    "[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/job/train.py", line 88, in main\n'
    "[rank{rank}]:     loss.backward()\n"
    "[rank{rank}]: ValueError: shapes do not fit",
    "[rank{rank}]: ConnectionResetError: [Errno 104] Connection reset by peer",
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) "
    "ran for 600044 milliseconds before timing out.",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
)
ENDS = ("training completed", "srun: error: gn-04: task 3: Killed", "")


def made(dice: random.Random) -> bytes:
    """Return a log: steps, some faults, one of which training may outlive, and perhaps an end."""
    lines: list[str] = []
    step = 0

    def train(most: int) -> None:
        nonlocal step
        for _ in range(dice.randrange(most)):
            step += 1
            lines.append(f"[rank0]: step {step}/400 loss {3 - step / 200:.4f} lr 1.0e-04")

    train(12)
    for _ in range(dice.randint(1, 4)):
        lines.extend(dice.choice(FAULTS).format(rank=dice.randrange(8)).split("\n"))
        if dice.random() < 0.5:
            train(9)
    lines.append(dice.choice(ENDS))
    if dice.random() < 0.5:
        lines = [f"2026-03-01 02:{n // 4:02d}:{n % 4 * 15:02d} {x}" for n, x in enumerate(lines)]
    return "".join(f"{line}\n" for line in lines).encode()


def part_names(count: int, dice: random.Random) -> list[str]:
    """Return the names of so many parts, the oldest first."""
    numbers = range(1, count)
    older = dice.choice(
        (
            [f"train.log.{n}" for n in reversed(numbers)],
            [f"train.log.{n}.gz" for n in reversed(numbers)],
            [f"train.log-2026030{n}" for n in numbers],
            [f"train.log.2026-03-0{n}_04" for n in numbers],
        )
    )
    return [*older, "train.log"]


def cut(text: bytes, folder: Path, dice: random.Random) -> dict[str, int]:
    """Write a log in two to four parts; return how many lines of it stand in front of each."""
    lines = text.splitlines(keepends=True)
    count = min(dice.randint(2, 4), len(lines))
    edges = [0, *sorted(dice.sample(range(1, len(lines)), count - 1)), len(lines)]
    above = dict(zip(part_names(count, dice), edges, strict=False))
    folder.mkdir()
    for (name, start), end in zip(above.items(), edges[1:], strict=True):
        part = b"".join(lines[start:end])
        (folder / name).write_bytes(gzip.compress(part) if name.endswith("gz") else part)
    return above


def told(outcome: Outcome, above: dict[str, int]) -> tuple[object, ...]:
    """Return what a verdict says, its lines counted through all parts."""
    found = outcome.diagnosis
    first = found.first_fault
    where = None
    if first is not None:
        where = above[Path(first.file).name] + first.line, first.text, first.rank, first.node
    cited = [(above[Path(e.file).name] + e.line, e.role, e.rule) for e in found.evidence]
    suspects = found.suspects.ranks, found.suspects.nodes
    return found.outcome, found.status, found.failure_type, where, suspects, cited


@pytest.mark.parametrize("seed", range(16))
def test_parts_are_judged_as_the_joined_file(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    text = made(dice)
    (tmp_path / "train.log").write_bytes(text)
    whole = told(diagnose_paths([tmp_path / "train.log"]), {"train.log": 0})
    above = cut(text, tmp_path / "parts", dice)
    order = [tmp_path / "parts" / name for name in above]
    dice.shuffle(order)
    assert told(diagnose_paths(order), above) == whole
    assert told(diagnose_paths([tmp_path / "parts"]), above) == whole


def test_cause_and_consequence_keep_their_order_without_a_clock() -> None:
    xids = [fault + "\n" for fault in FAULTS[:2]]
    parts = diagnose_texts({"train.log": xids[1], "train.log.1": xids[0]}).diagnosis
    whole = diagnose_texts({"train.log": "".join(xids)}).diagnosis
    assert parts.failure_type == whole.failure_type
    assert [e.text for e in parts.evidence] == [e.text for e in whole.evidence]


def test_of_two_ranks_in_two_parts_the_older_one_is_named() -> None:
    older, newer = (f"{FAULTS[3].format(rank=rank)}\n" for rank in (3, 5))
    found = diagnose_texts({"train.log": newer, "train.log.1": older}).diagnosis
    assert found.suspects.ranks == [3]
    assert found.first_fault is not None
    assert (found.first_fault.file, found.first_fault.line) == ("train.log.1", 1)


def test_a_traceback_that_was_cut_in_two_is_one() -> None:
    lines = [line + "\n" for line in FAULTS[4].format(rank=2).split("\n")]
    parts = {"train.log.1": "".join(lines[:2]), "train.log": "".join(lines[2:])}
    found = diagnose_texts(parts).diagnosis
    whole = diagnose_texts({"train.log": "".join(lines)}).diagnosis
    assert found.failure_type == whole.failure_type
    assert [e.text for e in found.evidence] == [e.text for e in whole.evidence]


def test_a_line_that_was_cut_in_two_lies_in_the_older_part() -> None:
    line = FAULTS[3].format(rank=3)
    parts = {"train.log.1": f"starting\n{line[:40]}", "train.log": f"{line[40:]}\nbye\n"}
    outcome = diagnose_texts(parts)
    first = outcome.diagnosis.first_fault
    assert first is not None
    assert (first.file, first.line, first.text) == ("train.log.1", 2, line)
    assert [(view.name, list(view.numbers)) for view in outcome.case.views] == [
        ("train.log.1", [1, 2]),
        ("train.log", [2]),
    ]


def test_a_damaged_part_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    steps = "".join(f"step {n} loss 2.{n}\n" for n in range(4000))
    packed = gzip.compress(steps.encode())
    (tmp_path / "train.log.2.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "train.log.1").write_text("still here\n")
    (tmp_path / "train.log").write_text(f"{FAULTS[3].format(rank=3)}\n")
    outcome = diagnose_paths([tmp_path])
    first = outcome.diagnosis.first_fault
    assert first is not None
    assert (first.file, first.line, first.rank) == ("train.log", 1, 3)
    problems = {one.subject: one for one in outcome.collection.problems}
    assert list(problems) == ["train.log.2.gz"]
    assert problems["train.log.2.gz"].cut


def test_files_that_were_written_side_by_side_are_no_parts_of_one_log() -> None:
    def log(rank: int) -> str:
        return "".join(f"2026-03-01 0{n}:00:0{rank} step {n} loss 2.{n}\n" for n in range(9))

    files = {"train.log": log(0), "train.log.1": log(1), "train.log.2": log(2)}
    views = diagnose_texts(files).collection.views
    assert not any(line.stands for view in views if (line := view.line(1)))
    assert all(view.survey.facts.keys for view in views)


def test_a_copy_beside_a_log_is_no_part_of_it() -> None:
    text = "".join(f"step {n} loss 2.{n}\n" for n in range(40))
    views = diagnose_texts({"train.log.bak": text, "train.log": text + "bye\n"}).collection.views
    assert all(view.survey.facts.keys for view in views)


def test_what_is_kept_and_shown_of_parts_goes_by_the_files_as_they_lie(tmp_path: Path) -> None:
    dice = random.Random(3)
    text = made(dice)
    above = cut(text, tmp_path / "parts", dice)
    lines = text.decode().splitlines()
    outcome = diagnose_paths([tmp_path / "parts"], mine=True)
    snapshot = take_snapshot(outcome)
    assert [one.name for one in snapshot.sources] == list(above)
    assert snapshot.lines
    for line in snapshot.lines:
        assert line.text == lines[above[line.file] + line.number - 1]
    shown = job_digest(outcome).text
    assert all(name in shown for name in above)


def test_parts_that_were_read_in_shards_are_judged_alike(tmp_path: Path) -> None:
    dice = random.Random(5)
    above = cut(made(dice), tmp_path / "parts", dice)
    for number in range(2):
        scan_command([tmp_path / "parts"], tmp_path / "out", f"{number}/2", 1, None, logs=True)
    here, there = (diagnose_paths([tmp_path / name]) for name in ("parts", "out"))
    assert told(here, above) == told(there, above)


def test_of_a_large_rotated_log_the_kept_lines_lie_where_they_lie(tmp_path: Path) -> None:
    steps = [f"[rank0]: step {n} loss 2.{n} {'x' * 300}\n" for n in range(60_000)]
    steps[25_000] = f"{FAULTS[5].format(rank=4)}\n"
    steps.append(f"{FAULTS[3].format(rank=3)}\n")
    (tmp_path / "train.log.1").write_text("".join(steps[:20_000]))
    (tmp_path / "train.log").write_text("".join(steps[20_000:]))
    outcome = diagnose_paths([tmp_path], mine=True)
    first = outcome.diagnosis.first_fault
    assert first is not None
    assert (first.file, first.line, first.rank) == ("train.log", 40_001, 3)
    older, newer = outcome.case.views
    assert (older.survey.lines, newer.survey.lines) == (20_000, 40_001)
    assert not newer.survey.whole
    assert newer.text(5_001) == steps[25_000].strip()
    for view, above in ((older, 0), (newer, 20_000)):
        assert view.survey.miner is not None
        assert view.survey.miner.frames == view.survey.lines
        assert all(view.text(n) == steps[n + above - 1].strip() for n in view.numbers)
