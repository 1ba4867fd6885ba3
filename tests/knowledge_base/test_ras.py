"""NCCL's own health report (RAS), in the form of its user guide: who is gone, who is behind."""

from __future__ import annotations

from collections.abc import Callable

from rerail.domain.diagnosis import Diagnosis, Outcome
from rerail.knowledge_base.placement.processes import Processes

Run = Callable[[str | dict[str, str]], Diagnosis]


def report(below: str, *, comms: int = 1, ranks: int = 16, per_node: int = 8) -> str:
    return (
        "NCCL version 2.27.3 compiled with CUDA 12.9\n\nJob summary\n===========\n\n"
        "  Nodes  Processes         GPUs  Processes     GPUs\n"
        "(total)   per node  per process    (total)  (total)\n"
        f"      2          {per_node}            1         16       16\n\n"
        "Communicators... (0.00s)\n=============\n\n"
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
        "    #  in group  per comm  per node  per comm  in group\n"
        f"    0         {comms}         2         {per_node}        {ranks}        16   RUNNING  {below.split()[0]}\n\n"
        f"Errors\n======\n\n{below}\nWarnings\n========\n\n"
    )


def dead(*gpus: int) -> str:
    many = "es are" if len(gpus) > 1 else " is"
    return (
        f"DEAD\n  {len(gpus)} job process{many} considered dead (unreachable via the RAS network)\n"
        + "".join(f"  Process {4400 + gpu} on node 10.2.0.7 managing GPU {gpu}\n" for gpu in gpus)
        + "\n#0-0 (cf264af53edbe986) INCOMPLETE\n"
        + f"  Missing communicator data from {len(gpus)} rank{'s' if len(gpus) > 1 else ''}\n"
        + f"  The missing rank{'s' if len(gpus) > 1 else ''}: {','.join(str(8 + g) for g in gpus)}\n"
    )


def behind(others: int, late: int) -> str:
    return (
        "MISMATCH\n\n#0-0 (27a079b828ff1a75) MISMATCH\n"
        "  Communicator ranks have different AllReduce operation counts\n"
        f"  15 ranks have launched up to operation {others}\n"
        f"  Rank 11 has launched up to operation {late} -- GPU 3 managed by process 4403 on node 10.2.0.7\n"
    )


STEPS = "".join(f"step {s} loss {3 - s / 100:.2f}\n" for s in range(1, 12))


def test_a_dead_process_is_named_by_rank_and_node(diagnose: Run) -> None:
    found = diagnose(STEPS + report(dead(5)))
    assert found.failure_type == "process_exit_unexplained"
    assert (found.suspects.ranks, found.suspects.nodes) == ([13], ["10.2.0.7"])


def test_all_processes_of_a_node_are_the_node(diagnose: Run) -> None:
    found = diagnose(report(dead(*range(8))))
    assert (found.failure_type, found.suspects.nodes) == ("node_crash", ["10.2.0.7"])


def test_a_rank_of_a_smaller_communicator_is_no_rank_of_the_job(diagnose: Run) -> None:
    found = diagnose(report(dead(5), comms=2, ranks=8))
    assert (found.suspects.ranks, found.suspects.nodes) == ([], ["10.2.0.7"])


def test_one_report_of_different_counts_is_a_question_that_another_answers(diagnose: Run) -> None:
    found = diagnose(STEPS + report(behind(64, 60)))
    assert (found.outcome, found.suspects.nodes) == (Outcome.INCONCLUSIVE, [])
    assert "rank 11 behind the others" in found.summary
    assert any("ncclras" in lack.how_to_get for lack in found.missing)


def test_the_same_counts_twice_name_the_rank_behind(diagnose: Run) -> None:
    found = diagnose(STEPS + report(behind(64, 60)) + report(behind(64, 60)))
    assert found.failure_type == "nccl_timeout_unexplained"
    assert (found.suspects.ranks, found.suspects.nodes) == ([11], ["10.2.0.7"])


def test_counts_that_move_are_a_running_job(diagnose: Run) -> None:
    found = diagnose(STEPS + report(behind(64, 60)) + report(behind(70, 69)))
    assert found.outcome is Outcome.NO_FAILURE


def test_a_job_that_trained_on_did_not_fail(diagnose: Run) -> None:
    later = "".join(f"step {s} loss 2.0\n" for s in range(12, 40))
    assert diagnose(STEPS + report(dead(5)) + later).outcome is Outcome.NO_FAILURE


def test_steps_between_two_reports_are_a_running_job(diagnose: Run) -> None:
    steps = "".join(f"step {s} loss 2.0\n" for s in range(12, 16))
    found = diagnose(STEPS + report(behind(64, 60)) + steps + report(behind(64, 60)))
    assert found.outcome is Outcome.NO_FAILURE


def test_a_report_behind_labels_is_read_as_any(diagnose: Run) -> None:
    text = "".join(f"n3: {line}\n" for line in report(dead(5)).splitlines())
    found = diagnose(STEPS + text)
    assert found.failure_type == "process_exit_unexplained"
    assert (found.suspects.ranks, found.suspects.nodes) == ([13], ["10.2.0.7"])


def test_without_its_table_a_report_names_no_rank_of_the_job(diagnose: Run) -> None:
    found = diagnose(STEPS + "\n" + dead(5))
    assert (found.suspects.ranks, found.suspects.nodes) == ([], ["10.2.0.7"])


def test_the_communicator_of_the_job_counts_and_one_that_moves_clears_all(diagnose: Run) -> None:
    part = (
        "\n#1-0 (37a079b828ff1a75) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
        "  7 ranks have launched up to operation {top}\n"
        "  Rank 2 has launched up to operation 9 -- GPU 2 managed by process 4402 on node 10.2.0.6\n"
    )
    first = report(behind(64, 60) + part.format(top=10))
    assert diagnose(STEPS + first + first).suspects.ranks == [11]
    moved = report(behind(64, 60) + part.format(top=11))
    assert diagnose(STEPS + first + moved).outcome is Outcome.NO_FAILURE


def test_an_incomplete_report_may_name_the_rank_with_its_process(diagnose: Run) -> None:
    named = (
        "INCOMPLETE\n  Missing communicator data from 1 job process\n"
        "  Process 4402 on node 10.2.0.7 managing GPU 2\n"
        "\n#0-0 (cf264af53edbe986) INCOMPLETE\n  Missing communicator data from {n} ranks\n"
        "  Rank {rank} -- GPU 2 managed by process 4402 on node 10.2.0.7\n"
    )
    found = diagnose(report(named.format(n=1, rank=10)))
    assert (found.suspects.ranks, found.suspects.nodes) == ([10], ["10.2.0.7"])
    # NCCL 2.27.3 printed numbers of freed memory (NVIDIA/nccl#1762).
    assert diagnose(report(named.format(n=255, rank=1057455228))).suspects.ranks == []


def test_a_process_at_an_address_that_no_line_ties_to_a_host() -> None:
    known = Processes()
    known.learn(323034, rank=14, node="10.137.190.124")
    known.learn(412, rank=3, node="10.137.190.125")
    found = known.get(323034, "lam-h22")
    assert found is not None and found.rank == 14
    assert known.get(323034, "10.137.190.126") is None
    assert known.get(412, "lam-h22") is None  # as it may be called in any container
    known.learn(323034, rank=30, node="10.137.190.127")
    assert known.get(323034, "lam-h22") is None
