"""The digest of a big job is a few pages and holds its first fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rerail.assistant.digest import job_digest
from rerail.assistant.pipeline import diagnose_paths

FAULT = "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 5 has a total capacity of 79.11 GiB"


def big(path: Path, at: int, lines: int = 220_000) -> Path:
    """Write some 20 MB of healthy lines with one fault in them and its consequences at the end."""
    with path.open("w") as out:
        for i in range(1, lines + 1):
            if i == at:
                out.write(
                    f'[rank5]: Traceback (most recent call last):\n[rank5]:   File "/job/t.py", line 8, in f\n{FAULT}\n'
                )
            elif i % 9 == 0 and i < at:
                out.write(
                    f" iteration {i // 9:8d}/ 500000 | elapsed time per iteration (ms): 812.5 | lm loss: 2.5E+00 |\n"
                )
            else:
                out.write(
                    f"[rank{i % 16}]: 2026-03-01 02:{i // 60 % 60:02d}:{i % 60:02d} DEBUG fetched shard {i * 7919 % 99991} in {i % 37} ms, queue {i % 5}\n"
                )
        for rank in range(16):
            if rank != 5:
                out.write(
                    f"[rank{rank}]: RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:41772\n"
                )
    return path


@pytest.mark.parametrize("at", [1_000, 110_000, 219_000])
def test_a_log_of_20_megabytes(at: int, tmp_path: Path) -> None:
    path = big(tmp_path / "train.log", at)
    assert path.stat().st_size > 16_000_000
    outcome = diagnose_paths([tmp_path], mine=True)
    assert outcome.diagnosis.first_fault is not None
    assert outcome.diagnosis.first_fault.text == FAULT
    assert outcome.diagnosis.first_fault.line == at + 2
    digest = job_digest(outcome)
    size = len(digest.text.encode())
    assert size < 64_000
    assert size * 300 < path.stat().st_size
    assert f"train.log:{at + 2} rank 5 | {FAULT}" in digest.text
    assert not digest.omitted
    assert "fetched shard" in digest.text


def test_a_small_job_is_mined_as_well(job: Callable[..., Path]) -> None:
    outcome = diagnose_paths([job({"a.log": "all is well\n" * 50 + FAULT + "\n"})])
    digest = job_digest(outcome)
    assert FAULT in digest.text
    assert "all is well" in digest.text


def test_a_smaller_limit_is_kept(job: Callable[..., Path]) -> None:
    text = "".join(
        f"[rank{i % 8}]: ValueError: item {i} has {i * 7} columns\n" for i in range(3_000)
    )
    digest = job_digest(diagnose_paths([job(text + FAULT + "\n")]), limit=4_000)
    assert len(digest.text.encode()) <= 4_000
    assert FAULT in digest.text
