"""Stacks of all processes: who is not where the others wait; one look at a healthy job accuses nobody for sure."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rerail.domain.diagnosis import Diagnosis, Outcome, Status

Run = Callable[[str | dict[str, str]], Diagnosis]

WAITS = (
    ("synchronize", "torch/cuda/__init__.py", 892),
    ("reduce_grads", "train.py", 61),
    ("main", "train.py", 97),
)
SAVES = (("write", "zipfile.py", 1183), ("save_shard", "ckpt.py", 77), ("main", "train.py", 104))
EVALUATES = (
    ("barrier", "torch/distributed/distributed_c10d.py", 4159),
    ("evaluate", "evaluate.py", 12),
)
LOADS = (
    ("select", "selectors.py", 415),
    ("_try_get_data", "torch/utils/data/dataloader.py", 1131),
    ("main", "train.py", 88),
)
LOGS = (("emit", "sink.py", 4), ("main", "train.py", 99))
Frames = tuple[tuple[str, str, int], ...]


def pyspy(pid: int, frames: Frames) -> str:
    body = "".join(f"    {function} ({file}:{line})\n" for function, file, line in frames)
    return (
        f"Process {pid}: python -u train.py\nPython v3.11.4 (/usr/bin/python3.11)\n\n"
        f'Thread {pid} (active): "MainThread"\n{body}        Arguments:\n            step: 12\n'
        f'Thread {pid + 900} (idle): "Thread-1 (_pin_memory_loop)"\n    select (selectors.py:415)\n'
    )


def ranks(*stacks: Frames, looks: int = 1) -> dict[str, str]:
    return {f"rank_{r}.txt": pyspy(4400 + r, s) * looks for r, s in enumerate(stacks)}


def test_the_rank_that_does_not_wait_is_named(diagnose: Run) -> None:
    found = diagnose(ranks(WAITS, WAITS, SAVES, WAITS, looks=2))
    assert (found.failure_type, found.status) == ("nccl_slow_rank_timeout", Status.SUPPORTED)
    assert found.suspects.ranks == [2]
    assert "save_shard (ckpt.py:77)" in found.summary
    assert [e.file for e in found.evidence][:2] == ["rank_2.txt", "rank_0.txt"]


def test_one_look_is_a_guess_and_asks_for_another(diagnose: Run) -> None:
    found = diagnose(ranks(WAITS, WAITS, SAVES, WAITS))
    assert found.status is Status.HYPOTHESIS
    assert any("one look" in lack.what for lack in found.missing)


def test_ranks_that_move_between_two_looks_are_a_guess(diagnose: Run) -> None:
    files = ranks(WAITS, WAITS, SAVES, WAITS)
    later = {f"rank_{r}.txt": pyspy(4400 + r, LOGS if r == 2 else WAITS) for r in range(4)}
    found = diagnose({name: text + later[name] for name, text in files.items()})
    assert (found.status, found.suspects.ranks) == (Status.HYPOTHESIS, [2])


def test_a_loader_is_named_as_such(diagnose: Run) -> None:
    found = diagnose(ranks(WAITS, WAITS, WAITS, LOADS, looks=2))
    assert (found.failure_type, found.suspects.ranks) == ("dataloader_hang", [3])


def test_another_place_of_the_program(diagnose: Run) -> None:
    found = diagnose(ranks(WAITS, EVALUATES, WAITS, WAITS, looks=2))
    assert (found.failure_type, found.suspects.ranks) == ("rank_divergence", [1])


def test_all_at_one_place_accuse_nobody(diagnose: Run) -> None:
    found = diagnose(ranks(WAITS, WAITS, WAITS, looks=2))
    assert (found.failure_type, found.status) == ("nccl_timeout_unexplained", Status.HYPOTHESIS)
    assert not found.suspects.ranks


def test_who_works_while_others_work_is_no_suspect(diagnose: Run) -> None:
    assert diagnose(ranks(WAITS, SAVES, SAVES, SAVES)).outcome is Outcome.INCONCLUSIVE


def test_steps_behind_a_dump_say_that_it_moved(diagnose: Run) -> None:
    files = ranks(WAITS, WAITS, SAVES, WAITS, looks=2)
    files["rank_0.txt"] += "".join(f"step {s} loss 2.0\n" for s in range(40))
    assert diagnose(files).outcome is Outcome.NO_FAILURE


TRAIN = """
import faulthandler, os, sys, time, torch, torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=3)
faulthandler.dump_traceback_later(4, exit=True, file=sys.stdout)

def load_shard():
    time.sleep(60)

def train():
    gradient = torch.ones(8)
    for step in range(100):
        if rank == 1 and step == 5:
            load_shard()
        dist.all_reduce(gradient)

train()
"""


def test_real_processes_that_hang(diagnose: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch for a job that really hangs")
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    jobs = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for rank in range(3)
    ]  # fmt: skip
    logs = {f"rank_{rank}.log": job.communicate(timeout=120)[0] for rank, job in enumerate(jobs)}
    found = diagnose(logs)
    assert (found.failure_type, found.suspects.ranks) == ("nccl_slow_rank_timeout", [1])
    assert "load_shard" in found.summary
    assert "2 others wait at train" in found.summary


def faulthandler(rank: int, *threads: str) -> list[str]:
    head = "Thread 0x00007f (most recent call first):"
    lines = [line for frame in threads for line in (head, f'  File "{frame}', "")]
    return [f"[rank{rank}]: {line}" for line in ("Timeout (0:00:05)!", *lines)]


def interleaved(*dumps: list[str]) -> str:
    return "".join(f"{line}\n" for lines in zip(*dumps, strict=True) for line in lines)


IDLE = '/usr/lib/python3.11/threading.py", line 331 in wait'
REDUCE = '/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2806 in all_reduce'
AUGMENT = '/app/aug.py", line 31 in augment'
MOVED = "".join(f"2026-03-01 03:00:{s:02d} step {s} loss {9 / s:.3f}\n" for s in range(1, 12))


def test_dumps_of_ranks_that_interleave_are_one_look_each(diagnose: Run) -> None:
    look = interleaved(*(faulthandler(r, IDLE, AUGMENT if r == 6 else REDUCE) for r in range(8)))
    once, twice = diagnose(MOVED + look), diagnose(MOVED + look + look)
    assert (once.status, once.suspects.ranks) == (Status.HYPOTHESIS, [6])
    assert (twice.status, twice.suspects.ranks) == (Status.SUPPORTED, [6])
    copied = diagnose({"a.log": MOVED + look, "b.log": MOVED + look})
    assert (copied.status, copied.suspects.ranks) == (Status.HYPOTHESIS, [6])


def test_crashes_that_interleave_are_no_look(diagnose: Run) -> None:
    crash = interleaved(
        *(
            [f"[rank{r}]: Fatal Python error: Aborted", *faulthandler(r, IDLE, AUGMENT if r == 6 else REDUCE)[1:]]
            for r in range(8)
        )
    )  # fmt: skip
    assert diagnose(MOVED + crash).failure_type != "nccl_slow_rank_timeout"


def test_what_a_variable_holds_is_no_event(diagnose: Run) -> None:
    files = ranks(WAITS, WAITS, SAVES, WAITS)
    files["rank_2.txt"] = files["rank_2.txt"].replace(
        "            step: 12\n",
        '            step: 12\n            seen: "RuntimeError: CUDA error: uncorrectable ECC error encountered"\n',
    )
    found = diagnose(files)
    assert (found.failure_type, found.suspects.ranks) == ("nccl_slow_rank_timeout", [2])


def test_native_frames_of_the_interpreter_do_not_hide_the_program(diagnose: Run) -> None:
    files = ranks(WAITS, WAITS, SAVES, WAITS)
    files["rank_2.txt"] = files["rank_2.txt"].replace(
        "    write (zip", "    __write (libc.so.6)\n    0x55e1f0 (python3.11)\n    write (zip"
    )
    assert "save_shard (ckpt.py:77)" in diagnose(files).summary


def test_one_look_at_a_loader_is_a_guess(diagnose: Run) -> None:
    assert diagnose(pyspy(4400, LOADS)).status is Status.HYPOTHESIS
    found = diagnose(ranks(WAITS, WAITS, WAITS, LOADS))
    assert (found.status, found.suspects.ranks) == (Status.HYPOTHESIS, [3])


WAITING = "all_reduce (torch/distributed/distributed_c10d.py:2810)"
ELSEWHERE = "_try_get_data (torch/utils/data/dataloader.py:1251)"


def rows(call: str, *, table: bool) -> str:
    calls = {rank: call if rank == 5 else WAITING for rank in range(8)}
    if table:
        return "".join(
            f"sage-{4 + r // 4} | {r}  pid {77120 + r} | {one}\n" for r, one in calls.items()
        )
    return "".join(f"{r:2}:     {one}\n" for r, one in calls.items())


@pytest.mark.parametrize("table", [True, False])
def test_one_call_of_each_rank_tells_who_is_elsewhere(diagnose: Run, table: bool) -> None:
    found = diagnose(rows(ELSEWHERE, table=table))
    assert (found.failure_type, found.suspects.ranks) == ("dataloader_hang", [5])
    assert found.first_fault is not None
    assert found.first_fault.node == ("sage-5" if table else None)
    assert diagnose(rows(WAITING, table=table)).suspects.ranks == []


def test_who_is_elsewhere_is_where_a_gpu_of_an_unknown_rank_failed(diagnose: Run) -> None:
    xid = (
        "[Thu Jun 11 05:41:12 2026] NVRM: Xid (PCI:0000:ab:00): 119, pid=71840, name=python,"
        " Timeout after 45s of waiting for RPC response from GPU4 GSP! Expected function 76"
    )
    at = "synchronize (torch/cuda/__init__.py:1040)"
    found = diagnose(f"{rows(at, table=False)}hgx-n17 $ dmesg -T | tail\n{xid}\n")
    assert (found.failure_type, found.suspects.ranks) == ("gpu_gsp_timeout", [5])
    assert found.suspects.nodes == ["hgx-n17"]
