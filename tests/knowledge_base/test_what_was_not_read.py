"""Nobody is named for silence where what would break it may stand in what was not read."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rerail.assistant.pipeline import diagnose_paths
from rerail.domain.diagnosis import Diagnosis, Outcome, Status

Run = Callable[[str | bytes | dict[str, str | bytes]], Diagnosis]
RANKS, SILENT = 12, 5
WAITED = [
    f"[rank{rank}]:[E304 01:23:20.0{rank:02d}345678 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=71, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, "
    "Timeout(ms)=600000) ran for 600031 milliseconds before timing out.\n"
    for rank in range(RANKS)
]
TRAINED = [
    f"[rank{rank}]: [2026-03-04 01:13:{step:02d}] step {step} loss 2.{step:02d}\n"
    for step in range(1, 9)
    for rank in range(RANKS)
]


def torn(whole: str, rest: str) -> bytes:
    """Return a packed file of which the rest was lost."""
    return gzip.compress(whole.encode()) + gzip.compress(rest.encode())[:20]


def spoken_by(ranks: range, *, waited: bool = True) -> str:
    """Return what these ranks print."""
    lines = TRAINED + [one for rank, one in enumerate(WAITED) if waited and rank != SILENT]
    return "".join(one for one in lines if int(one[5 : one.index("]")]) in ranks)


def test_a_silent_rank_of_a_whole_log_is_named(diagnose: Run) -> None:
    found = diagnose(spoken_by(range(RANKS)))
    assert found.suspects.ranks == [SILENT] and found.status is Status.SUPPORTED


def test_a_log_that_ends_too_early_names_nobody_for_silence(diagnose: Run) -> None:
    told = spoken_by(range(RANKS))
    found = diagnose({"all.log.gz": torn(told, WAITED[SILENT])})
    assert found.suspects.ranks == [] and found.status is Status.HYPOTHESIS
    assert "not read of all.log.gz" in found.summary
    assert "all.log.gz" in found.missing[0].what
    assert not any(f"rank {SILENT}" in one.what for one in found.missing)


def test_a_log_of_other_ranks_that_ends_too_early_changes_nothing(diagnose: Run) -> None:
    here, there = spoken_by(range(8)), spoken_by(range(8, RANKS))
    assert diagnose({"n1.log": here, "n2.log.gz": torn(there, "x\n")}).suspects.ranks == [SILENT]
    assert diagnose({"n1.log.gz": torn(here, "x\n"), "n2.log": there}).suspects.ranks == []
    own: dict[str, str | bytes] = {f"rank{r}.log": spoken_by(range(r, r + 1)) for r in range(RANKS)}
    of_two = torn(spoken_by(range(2, 3)), "x\n")
    assert diagnose({**own, "rank2.log": of_two}).suspects.ranks == [SILENT]
    of_itself = torn(spoken_by(range(SILENT, SILENT + 1)), WAITED[SILENT])
    assert diagnose({**own, f"rank{SILENT}.log": of_itself}).suspects.ranks == []


def test_who_is_named_by_a_line_stays_named(diagnose: Run) -> None:
    told = spoken_by(range(RANKS), waited=False)
    error = f"[rank{SILENT}]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    found = diagnose({"all.log.gz": torn(told + error, WAITED[2])})
    assert found.suspects.ranks == [SILENT] and found.failure_type == "gpu_ecc_uncorrectable"


def test_a_log_that_may_not_be_read_names_nobody_for_silence(
    job: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = job({"main.log": spoken_by(range(RANKS)), "rest.log": WAITED[SILENT]})
    whole = Path.open

    def refused(path: Path, *how: object, **more: object) -> object:
        if path.name == "rest.log":
            raise PermissionError(13, "Permission denied")
        return whole(path, *how, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refused)
    found = diagnose_paths([folder]).diagnosis
    assert found.suspects.ranks == [] and "not read of rest.log" in found.summary


def test_the_last_step_of_each_of_many_ranks_is_known(diagnose: Run) -> None:
    def log(ranks: int, late: int, steps: int) -> str:
        return "".join(
            f"[rank{rank}]: 2026-03-01 02:00:{step:02d} step {step} loss 3.{step:02d}\n"
            for step in range(1, steps + 1)
            for rank in range(ranks)
            if rank != late or step <= steps - 2
        )

    found = diagnose(log(1500, 611, 6))
    assert found.outcome is Outcome.NO_FAILURE
    assert "Rank 611 was last seen at step 4, behind all others." in found.summary
    # Of an earlier attempt with more ranks nobody is behind.
    again = log(1500, 1500, 3) + log(1499, 1500, 6)
    assert "behind" not in diagnose(again).summary


def test_the_last_step_of_tens_of_thousands_of_ranks_is_known(diagnose: Run) -> None:
    """Few of so many lines are kept, but the row of a step tells its rank: as many are looked at as there are."""
    found = diagnose(
        "".join(
            f"[default{rank % 8}]:[rank{rank}]: 2026-03-01 02:00:{step:02d} step {step} loss 3.{step:02d}\n"
            for step in range(1, 5)
            for rank in range(24_000)
            if rank != 611 or step < 2
        )
    )
    assert "Rank 611 was last seen at step 1, behind all others." in found.summary


def test_a_hole_in_the_middle_is_told_and_may_hold_what_seems_unsaid(diagnose: Run) -> None:
    told = spoken_by(range(RANKS)).encode()
    half = told.index(b"\n", len(told) // 2) + 1
    found = diagnose(told[:half] + bytes(9_000) + told[half:])
    lines = told.count(b"\n", 0, half)
    assert f"9,000 NUL bytes stand in it, the first in line {lines + 1}" in found.missing[0].what
    assert found.suspects.ranks == []


def test_a_file_that_was_cut_from_its_beginning_or_is_no_log_has_no_holes(diagnose: Run) -> None:
    told = spoken_by(range(RANKS)).encode()
    assert diagnose(bytes(9_000) + told).suspects.ranks == [SILENT]
    header = b"all.log".ljust(257, b"\0") + b"ustar".ljust(255, b"\0")
    assert not any("NUL" in one.what for one in diagnose(header + told + bytes(900)).missing)


@pytest.mark.parametrize(
    ("name", "lost"), [(f"rank{SILENT}.log", bytes(9_000)), (f"rank{SILENT}.log.gz", b"")]
)
def test_a_rank_whose_file_is_lost_is_not_silent(diagnose: Run, name: str, lost: bytes) -> None:
    """NUL bytes alone, or a packed file without a byte, tell nothing of what the rank printed."""
    own: dict[str, str | bytes] = {f"rank{r}.log": spoken_by(range(r, r + 1)) for r in range(RANKS)}
    assert diagnose(own).suspects.ranks == [SILENT]
    del own[f"rank{SILENT}.log"]
    found = diagnose({**own, name: lost})
    assert found.suspects.ranks == [] and name in found.missing[0].what
    heard = own | {f"rank{SILENT}.log": spoken_by(range(SILENT, SILENT + 1))}
    assert diagnose({**heard, name.replace(str(SILENT), "77"): lost}).suspects.ranks == [SILENT]


def test_bytes_that_are_no_text_may_hold_what_seems_unsaid(diagnose: Run) -> None:
    """A block of random bytes in the middle of a log lies where lines stood; other encodings hide nothing."""
    told = spoken_by(range(RANKS)).encode()
    half = told.index(b"\n", len(told) // 2) + 1
    found = diagnose(told[:half] + random.Random(3).randbytes(2_700) + told[half:])
    assert (
        f"are no text, the first in line {told.count(bytes([10]), 0, half) + 1}"
        in found.missing[0].what
    )
    assert found.suspects.ranks == []
    other = (
        "训练第步 损失值 节点已经断开连接\n".encode("gb18030") * 90
        + b"\x1b[32m100%\x1b[0m\r\xe2\x96\x88" * 90
    )
    assert diagnose(told[:half] + other + b"\n" + told[half:]).suspects.ranks == [SILENT]
