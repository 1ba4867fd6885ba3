"""The same job told in another way: one merged file or one a rank, in parts, packed, doubled, ten times as large."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rerail.assistant.pipeline import diagnose_paths
from rerail.domain.diagnosis import Diagnosis
from rerail.evals.bench.timeouts import timeout_log
from rerail.log_parsers import collect as collecting
from rerail.log_parsers import room
from rerail.log_parsers import survey as surveying

RANKS, MISSING = 96, 37
LABEL = re.compile(r"\[rank(\d+)\]: ?(.*)")
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


def timed_out(ranks: int = RANKS) -> list[str]:
    return list(timeout_log(ranks, MISSING, label="rank"))


def broken(ranks: int = RANKS) -> list[str]:
    """The missing rank says why, before the others time out."""
    lines = timed_out(ranks)
    at = next(number for number, line in enumerate(lines) if "Watchdog" in line)
    fault = [f"[rank{MISSING}]: Traceback (most recent call last):",
             f'[rank{MISSING}]:   File "/opt/train.py", line 3, in <module>',
             f"[rank{MISSING}]: {ECC}"]  # fmt: skip
    return lines[:at] + fault + lines[at:]


def merged(folder: Path, lines: list[str]) -> None:
    (folder / "train.log").write_text("\n".join(lines) + "\n")


def per_rank(folder: Path, lines: list[str]) -> None:
    files: dict[str, list[str]] = {}
    for line in lines:
        found = LABEL.match(line)
        assert found is not None
        files.setdefault(found[1], []).append(found[2])
    for rank, texts in files.items():
        (folder / f"rank_{rank}.log").write_text("\n".join(texts) + "\n")


def torchrun(folder: Path, lines: list[str]) -> None:
    merged(folder, [f"[default{int(LABEL.match(x)[1]) % 8}]:{x}" for x in lines])  # type: ignore[index]


def srun(folder: Path, lines: list[str]) -> None:
    merged(folder, [f"{LABEL.match(x)[1]}: {LABEL.match(x)[2]}" for x in lines])  # type: ignore[index]


def packed(folder: Path, lines: list[str]) -> None:
    (folder / "train.log.gz").write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))


def in_parts(folder: Path, lines: list[str]) -> None:
    third = len(lines) // 3
    for name, part in zip(
        ("train.log.2", "train.log.1", "train.log"),
        (lines[:third], lines[third : 2 * third], lines[2 * third :]),
        strict=True,
    ):
        (folder / name).write_text("\n".join(part) + "\n")


def with_chatter(folder: Path, lines: list[str]) -> None:
    """More than is kept whole: lines that tell nothing between those that do."""

    def all_lines() -> Iterator[str]:
        for number, line in enumerate(lines):
            yield line
            for k in range(400):
                yield f"[rank{(number + k) % RANKS}]: loader fetched shard {number * k % 9973} and waits for the next one"

    merged(folder, list(all_lines()))


WAYS = [per_rank, torchrun, srun, packed, in_parts, with_chatter]


def facts(found: Diagnosis) -> tuple[object, ...]:
    first = found.first_fault
    return (
        found.outcome, found.failure_type, found.status, found.suspects.ranks,
        first and ECC in first.text, first and first.rank if first and ECC in first.text else None,
        [(c.failure_type, c.count, c.ranks) for c in found.consequences],
        found.progress.get("last_step"), found.cost.gpus, found.cost.idle_gpu_hours,
    )  # fmt: skip


def diagnose(folder: Path, write: Callable[[Path, list[str]], None], lines: list[str]) -> Diagnosis:
    folder.mkdir()
    write(folder, lines)
    return diagnose_paths([folder]).diagnosis


@pytest.mark.parametrize("job", [timed_out, broken])
@pytest.mark.parametrize("way", WAYS)
def test_told_in_another_way(
    job: Callable[[], list[str]], way: Callable[[Path, list[str]], None], tmp_path: Path
) -> None:
    expected = facts(diagnose(tmp_path / "a", merged, job()))
    assert expected[3] == [MISSING]
    assert facts(diagnose(tmp_path / "b", way, job())) == expected


@pytest.mark.parametrize("job", [timed_out, broken])
@pytest.mark.parametrize("size", [1_000, 65_537, 1 << 20])
def test_in_pieces_of_any_size(
    job: Callable[[], list[str]], size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = facts(diagnose(tmp_path / "a", with_chatter, job()))
    whole = surveying.survey

    def in_pieces(*given: object, **options: object) -> object:
        return whole(*given, **{**options, "chunk_size": size})  # type: ignore[arg-type]

    monkeypatch.setattr(collecting, "survey", in_pieces)
    assert facts(diagnose(tmp_path / "b", with_chatter, job())) == expected


@pytest.mark.parametrize("job", [timed_out, broken])
def test_every_line_twice(job: Callable[[], list[str]], tmp_path: Path) -> None:
    once, twice = (
        diagnose(tmp_path / name, merged, [line for line in job() for _ in range(times)])
        for name, times in (("a", 1), ("b", 2))
    )
    assert (once.failure_type, once.suspects) == (twice.failure_type, twice.suspects)
    for a, b in zip(once.consequences, twice.consequences, strict=True):
        assert (b.failure_type, b.count, b.ranks) == (a.failure_type, 2 * a.count, a.ranks)


@pytest.mark.parametrize("job", [timed_out, broken])
def test_ten_times_the_ranks(job: Callable[[int], list[str]], tmp_path: Path) -> None:
    few, many = (
        diagnose(tmp_path / f"job{ranks}", torchrun, job(ranks)) for ranks in (RANKS, 10 * RANKS)
    )
    assert (few.failure_type, few.status, few.suspects) == (
        many.failure_type,
        many.status,
        many.suspects,
    )
    assert [len(c.ranks) for c in many.consequences] == [10 * RANKS - 1 for _ in few.consequences]


def chatting_ranks(folder: Path, lines: list[str]) -> None:
    """A file of each rank, each with more chatter around what matters than is kept of one file among many."""
    per_rank(folder, lines)
    for path in folder.iterdir():
        chatter = [
            f"loader fetched shard {k * 7919 % 99991} and waits for the next one"
            for k in range(900)
        ]
        own = path.read_text().splitlines()
        path.write_text("\n".join([*chatter, *own, *chatter]) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("job", [timed_out, broken])
def test_among_so_many_files_that_little_of_each_is_kept(
    job: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = facts(diagnose(tmp_path / "a", merged, job()))
    # As if there were 30,000 files: none is kept whole, of findings 48, and of the lines around them 32 kB.
    for most in ("_ALL_KEPT", "_ALL_HITS", "_ALL_CONTEXTS", "_ALL_WHOLE"):
        monkeypatch.setattr(room, most, 0)
    monkeypatch.setattr(room, "_LEAST_WHOLE", 4_096)
    assert facts(diagnose(tmp_path / "b", chatting_ranks, job())) == expected
