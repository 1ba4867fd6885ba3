"""What a collector puts in front of all lines of a file hides nothing that stands behind it."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts

JOB = """\
[hx-01] $ torchrun --nnodes 2 --node-rank 0 train.py
Assigned: rank 0-3 host hx-01, rank 4-7 host hx-02
step 10/1000 loss 2.31
step 11/1000 loss 2.30
[rank5]: Traceback (most recent call last):
[rank5]:   File "/w/train.py", line 41, in step
[rank5]:     loss = model(batch)
[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB
[rank0]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error
"""
FRONTS = (
    "trainer-1  | ",
    "[pod/llm-train-0/pytorch] ",
    "llm-train-0 pytorch ",
    "2026-03-01T00:00:00.000000000Z stderr F ",
    "Mar 01 02:00:00 login-2 run.sh[4411]: ",
    "2023-06-19T12:01:40.771000+00:00 mpt-7b/default/0f7f22a1c8a44f9a ",
)


@pytest.mark.parametrize("front", FRONTS)
def test_the_place_behind_a_front_is_that_without_it(front: str) -> None:
    bare = diagnose_texts({"job.log": JOB}).diagnosis
    text = "".join(f"{front}{line}\n" for line in JOB.splitlines())
    found = diagnose_texts({"job.log": text}).diagnosis
    first = found.first_fault
    assert first is not None and bare.first_fault is not None
    assert (found.failure_type, first.line, first.rank, first.node) == (
        bare.failure_type, bare.first_fault.line, 5, bare.first_fault.node,
    )  # fmt: skip
    assert first.text.startswith(front), "a line is cited as it stands in its file"


def test_a_launchers_pod_is_not_where_its_ranks_run() -> None:
    text = "".join(f"[pod/vit-mpi-launcher-x2k/mpi] {line}\n" for line in JOB.splitlines()[2:])
    found = diagnose_texts({"job.log": text}).diagnosis
    assert found.first_fault is not None and found.first_fault.rank == 5
    assert found.suspects.nodes == []


def test_the_time_in_the_front_counts_where_the_line_tells_none() -> None:
    rows = [
        f"Mar 01 02:0{n}:00 login-2 run.sh[44]: {line}" for n, line in enumerate(JOB.splitlines())
    ]
    found = diagnose_texts({"job.log": "\n".join(rows)}).diagnosis
    assert found.first_fault is not None
    assert found.first_fault.time is not None and "T02:07:00" in found.first_fault.time


@pytest.mark.parametrize(
    "front", ["[rank3]: ", "INFO | Train Epoch: 0 [", "train.py:88 - ", "Step "]
)
def test_what_begins_a_message_or_tells_a_rank_is_no_front(front: str) -> None:
    text = "".join(f"{front}{n} boom\n" for n in range(12))
    view = diagnose_texts({"job.log": text}).case.views[0]
    line = view.line(3)
    assert line is not None and line.front == "" and line.text.startswith(front)


def test_files_of_several_hosts_are_of_these_hosts_and_one_file_is_where_it_was_collected() -> None:
    def journal(host: str, rank: int) -> str:
        rows = [f"step {n}/100 loss 2.{n}" for n in range(8)]
        if rank:
            rows += ["Traceback (most recent call last):", "ValueError: bad batch in shard 7"]
        return "".join(
            f"Mar 01 02:00:0{n % 10} {host} train[81]: {row}\n" for n, row in enumerate(rows)
        )

    both = {"a.log": journal("gn-11", 0), "b.log": journal("gn-12", 1)}
    found = diagnose_texts(both).diagnosis
    assert found.first_fault is not None and found.first_fault.node == "gn-12"
    alone = diagnose_texts({"b.log": journal("gn-12", 1)})
    assert alone.case.views[0].origin.collected_from == "gn-12"
    assert alone.diagnosis.first_fault is not None and alone.diagnosis.first_fault.node == "gn-12"


def test_the_log_of_a_machine_keeps_its_host() -> None:
    rows = [f"Mar  1 02:0{n}:00 gn-09 python[1234]: step {n} loss 2.9{n}" for n in range(1, 7)]
    rows.append(
        "Mar  1 02:41:00 gn-09 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."
    )
    found = diagnose_texts({"syslog": "\n".join(rows)}).diagnosis
    assert found.failure_type == "gpu_fallen_off_bus" and found.suspects.nodes == ["gn-09"]
    rows[-1] = "Mar  1 02:41:00 gn-09 python[1234]: ValueError: bad"
    found = diagnose_texts({"syslog": "\n".join(rows)}).diagnosis
    assert found.first_fault is not None and found.first_fault.node == "gn-09"


@pytest.mark.parametrize("front", ["[ERROR] ", "ValueError: "])
def test_a_level_or_an_exception_on_every_line_is_no_front(front: str) -> None:
    view = diagnose_texts(
        {"job.log": "".join(f"{front}odd thing {n}\n" for n in range(9))}
    ).case.views[0]
    line = view.line(4)
    assert line is not None and line.front == ""


def test_levanter_puts_the_process_behind_the_time() -> None:
    text = "2026-07-30T02:16:02 - 6 - levanter.checkpoint - checkpoint.py:512 - ERROR :: RuntimeError: boom"
    line = diagnose_texts({"job.log": text}).case.views[0].line(1)
    assert line is not None and (line.rank, line.message) == (6, "RuntimeError: boom")
