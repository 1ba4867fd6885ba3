"""A traceback belongs to one rank, however the ranks interleave."""

from __future__ import annotations

import pytest

from rerail.domain.evidence import LogLine
from rerail.log_parsers.prefixes import parse_line
from rerail.log_parsers.tracebacks import Traceback, looks_like_exception, traceback_above


def above(text: str, number: int | None = None) -> Traceback:
    rows = text.strip("\n").split("\n")
    lines: dict[int, LogLine] = {
        i: parse_line("f", i, row, year=2026) for i, row in enumerate(rows, 1)
    }
    return traceback_above(lines[number or len(rows)], lines.get)


ONE = """
Traceback (most recent call last):
  File "/job/train.py", line 88, in main
    loss = step(batch)
  File "/job/model.py", line 12, in step
    return self.net(batch)
RuntimeError: mat1 and mat2 shapes cannot be multiplied
"""


def test_a_plain_traceback() -> None:
    found = above(ONE)
    assert found.complete
    assert found.frames == ("/job/train.py", "/job/model.py")
    assert found.lines[0].message == "Traceback (most recent call last):"
    assert not found.chained
    assert found.in_thread is None


def test_the_lines_of_two_ranks_are_told_apart() -> None:
    a = [f"[rank0]: {row}" for row in ONE.strip("\n").split("\n")]
    b = [f"[rank1]: {row.replace('/job/', '/other/')}" for row in ONE.strip("\n").split("\n")]
    mixed = [row for pair in zip(a, b, strict=True) for row in pair]
    found = above("\n".join(mixed))
    assert found.complete
    assert found.frames == ("/other/train.py", "/other/model.py")
    found = above("\n".join(mixed), len(mixed) - 1)
    assert found.frames == ("/job/train.py", "/job/model.py")


def test_lines_without_a_label_between_those_of_a_rank_are_no_part_of_it() -> None:
    rows = [f"[rank3]: {row}" for row in ONE.strip("\n").split("\n")]
    rows.insert(3, "NCCL version 2.21.5+cuda12.4")
    found = above("\n".join(rows))
    assert found.complete
    assert all(line.rank == 3 for line in found.lines)


def test_srun_labels() -> None:
    rows = [f"{r}: {row}" for row in ONE.strip("\n").split("\n") for r in (0, 1)]
    found = above("\n".join(rows))
    assert found.complete
    assert {line.rank for line in found.lines} == {1}


@pytest.mark.parametrize(
    "words",
    [
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ],
)
def test_the_links_of_a_chain_are_kept_apart(words: str) -> None:
    second = ONE.replace("RuntimeError: mat1", "ValueError: mat1").replace("/job/", "/late/")
    found = above(f"{ONE}\n{words}\n{second}")
    assert found.chained
    assert found.frames == ("/late/train.py", "/late/model.py")
    first = above(f"{ONE}\n{words}\n{second}", 6)
    assert not first.chained
    assert first.frames == ("/job/train.py", "/job/model.py")


def test_a_side_thread_is_named() -> None:
    found = above(f"Exception in thread Thread-7 (prefetch):{ONE}")
    assert found.in_thread == "Thread-7"


def test_a_bare_exception_line_has_no_traceback() -> None:
    found = above("step 1 loss 2.0\nstep 2 loss 2.0\nRuntimeError: boom")
    assert not found.complete
    assert found.frames == ()


def test_a_traceback_whose_lines_were_not_all_kept_still_has_its_near_frames() -> None:
    rows = ONE.strip("\n").split("\n")
    lines = {i: parse_line("f", i, row, year=2026) for i, row in enumerate(rows, 1) if i != 1}
    found = traceback_above(lines[6], lines.get)
    assert not found.complete
    assert found.frames == ("/job/train.py", "/job/model.py")


def test_two_failures_of_one_rank_do_not_flow_together() -> None:
    found = above(f"{ONE}{ONE.replace('/job/', '/again/')}")
    assert found.frames == ("/again/train.py", "/again/model.py")


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: boom",
        "torch.OutOfMemoryError: CUDA out of memory.",
        "torch.distributed.DistBackendError: NCCL error in: x",
        "KeyboardInterrupt",
        "queue.Empty",
        "subprocess.TimeoutExpired: Command 'x' timed out",
        "requests.exceptions.ConnectionError: refused",
        "ray.exceptions.ActorDiedError: The actor died",
    ],
)
def test_what_ends_a_traceback(text: str) -> None:
    assert looks_like_exception(text)


@pytest.mark.parametrize(
    "text",
    ["loss: 2.0", "error: could not open", "Errors were found: 3", "step 5", "INFO Error: x", ""],
)
def test_what_does_not(text: str) -> None:
    assert not looks_like_exception(text)


def test_frames_are_read_in_json_lines() -> None:
    rows = "\n".join('{"log":"' + row.replace('"', '\\"') + '"}' for row in ONE.strip().split("\n"))
    assert above(rows).frames == ("/job/train.py", "/job/model.py")


@pytest.mark.parametrize(
    ("head", "who"),
    [
        ("Exception in thread Thread-5:", "Thread-5"),
        ("Process ForkServerProcess-3:", "ForkServerProcess-3"),
        ("Process SpawnProcess-1:2:", "SpawnProcess-1:2"),
        ("Process group watchdog:", None),
        ("Process 3 says", None),
    ],
)
def test_a_thread_or_child_is_named_in_front_of_its_traceback(head: str, who: str | None) -> None:
    assert above(f"{head}\n{ONE.strip()}").in_thread == who
