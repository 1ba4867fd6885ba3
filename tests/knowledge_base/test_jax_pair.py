"""Two processes of JAX that share one GPU, recorded on an NVIDIA H200 (jax 0.11.2, driver 580.159): what each prints is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Diagnosis, Outcome

RECORDED = Path(__file__).parents[1] / "data" / "jax_pair"


def read(name: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((RECORDED / name).iterdir())}


def diagnose_job(logs: dict[str, str]) -> Diagnosis:
    return diagnose_texts(logs).diagnosis


@pytest.mark.parametrize(
    ("name", "leaf", "line"),
    [("memory", "cuda_oom", "ran out of memory"), ("nan", "loss_nan", "FloatingPointError: ")],
)
def test_the_process_that_failed_is_the_rank_it_calls_itself(
    name: str, leaf: str, line: str
) -> None:
    found = diagnose_job(read(name))
    assert (found.failure_type, found.suspects.ranks) == (leaf, [1])
    assert found.first_fault is not None
    assert line in found.first_fault.text


def test_services_that_go_away_at_the_end_are_no_failure() -> None:
    assert diagnose_job(read("healthy")).outcome is Outcome.NO_FAILURE


def test_an_allocator_that_asks_for_less_each_time_has_not_failed() -> None:
    # What the run that failed prints above its failure, in front of what the healthy one prints.
    logs, failed = read("healthy"), read("memory")["process_1.log"]
    asked = failed[: failed.index("Traceback")]
    assert "Failed to allocate device memory" in asked
    logs["process_1.log"] = asked + logs["process_1.log"].split("\n", 1)[1]
    assert diagnose_job(logs).outcome is Outcome.NO_FAILURE
