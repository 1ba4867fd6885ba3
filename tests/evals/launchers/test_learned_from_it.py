"""What the launcher lab taught, each held by texts that are not of the lab."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.log_parsers.induced_labels import induce
from rerail.log_parsers.sources import origin_of

YEAR = 2026
TRACE = ["Traceback (most recent call last):", '  File "a.py", line 3, in main', "    run()"]


def verdict(**files):
    return diagnose_texts({name.replace("_", "."): text for name, text in files.items()}).diagnosis


def test_bare_numbers_are_ranks_where_all_take_turns():
    lines = [f"[{rank}] loading part {turn}" for turn in range(3) for rank in (0, 2, 1, 3)]
    (label,) = induce(lines, year=YEAR)
    assert label.pattern.match("[3] boom")["rank"] == "3"


@pytest.mark.parametrize("numbers", [(1, 2, 3, 4), (0, 2, 4, 6), (10, 20, 30, 40)])
def test_bare_numbers_that_leave_a_gap_are_none(numbers):
    lines = [f"[{number}] loading part {turn}" for turn in range(3) for number in numbers]
    assert induce(lines, year=YEAR) == ()


def test_a_program_in_front_of_a_host_is_no_part_of_its_name():
    assert origin_of("accelerate-dgx2.out").node == "dgx2"
    assert origin_of("process-3.log").rank == 3


def test_a_rank_of_which_nothing_is_said_sits_in_the_block_of_its_host():
    said = "".join(
        f"[1,{rank}]<stderr>:INFO started on cn{1 + rank // 2} pid {900 + rank}\n"
        for rank in (0, 1, 2)
    )
    text = "world size 4\n" + said + "".join(f"[1,3]<stderr>:{line}\n" for line in TRACE)
    found = verdict(job_log=text + "[1,3]<stderr>:ValueError: bad record\n")
    assert (found.first_fault.rank, found.first_fault.node) == (3, "cn2")


def test_who_prints_is_not_whom_the_line_is_about():
    text = "".join(f"rank {rank} of 4 on cn{1 + rank // 2}, pid {70 + rank}\n" for rank in range(4))
    text += "[rank0]: step 4 loss 2.1\n[rank0]: step 5 loss 2.0\n"
    text += "[rank0]: ERROR loss is nan on rank 2 at step 6, stopping\n"
    found = verdict(job_log=text)
    assert (found.first_fault.rank, found.first_fault.node) == (2, "cn2")


def test_a_host_that_says_nothing_more_while_all_others_wait_is_gone():
    hello = "".join(
        f"rank {rank} of 4 on cn{1 + rank // 2}, pid {70 + rank}\n" for rank in range(4)
    )
    waited = "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 10000ms for recv operation to complete\n"
    text = hello + f"[rank0]: {waited}[rank1]: {waited}"
    gone = verdict(job_log=text)
    assert (gone.failure_type, gone.suspects.nodes) == ("node_crash", ["cn2"])
    # One rank of it that waited as well shows that the host lives.
    alive = verdict(job_log=text + f"[rank2]: {waited}")
    assert alive.failure_type != "node_crash"


def test_a_time_limit_of_the_launcher_is_no_end_of_a_healthy_run():
    steps = "".join(
        f"[0] step {n}/24 loss 0.{90 - n}\n[1] step {n}/24 loss 0.{90 - n}\n" for n in range(1, 9)
    )
    assert (
        str(verdict(job_log=steps + "[mpiexec@h1] APPLICATION TIMED OUT, TIMEOUT = 30s\n").outcome)
        == "failure"
    )
