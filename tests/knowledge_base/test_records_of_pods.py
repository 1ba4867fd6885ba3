"""Records of pods that collectors write: who is silent or behind among many, and on which node a line stands."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis

Run = Callable[[str], Diagnosis]

STEPS, BEHIND, LATE, EACH = 10, 4, 43, 8


def fluent_bit(pod: str, host: str, text: str) -> dict[str, object]:
    """As Fluent Bit writes it with the metadata of Kubernetes, the line first."""
    index = {"training.kubeflow.org/replica-index": pod.rpartition("-")[2]}
    return {
        "log": f"{text}\n",
        "stream": "stderr",
        "kubernetes": {"pod_name": pod, "host": host, "labels": index},
    }


def vector(pod: str, host: str, text: str) -> dict[str, object]:
    """As Vector's source kubernetes_logs does."""
    return {
        "kubernetes": {"pod_name": pod, "pod_node_name": host},
        "message": text,
        "stream": "stderr",
    }


def docker(pod: str, host: str, text: str) -> dict[str, object]:
    """As Docker's driver json-file does with labels of a container."""
    names = {"io.kubernetes.pod.name": pod, "node_name": host}
    return {"log": f"{text}\n", "stream": "stderr", "attrs": names}


FORMS = [fluent_bit, vector, docker]


def log(form: Callable[..., dict[str, object]], ranks: int, *, behind: bool, more: str = "") -> str:
    told = []

    def say(rank: int, text: str) -> None:
        told.append(json.dumps(form(f"job-worker-{rank}", f"gn-{rank // EACH:03d}", text)))

    for step in range(1, STEPS + 1):
        for rank in range(ranks):
            if rank != LATE or not behind or step <= BEHIND:
                say(rank, f"2026-03-01 02:00:{step:02d} step {step}/900 loss 3.{step:02d}")
    if more:
        say(LATE, f"2026-03-01 02:00:{STEPS + 1} {more}")
    for rank in range(ranks):
        if rank != LATE or behind:
            seq = BEHIND if rank == LATE else STEPS
            call = f"WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000)"
            say(
                rank,
                f"2026-03-01 02:11:07 [Rank {rank}] Watchdog caught collective operation timeout: {call} ran for 600012 ms",
            )
    return "\n".join([*told, ""])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ranks", [64, 520])
def test_who_is_silent_or_behind_is_told_with_its_node(
    form: Callable[..., dict[str, object]], ranks: int, diagnose: Run
) -> None:
    for behind in (False, True):
        found = diagnose(log(form, ranks, behind=behind))
        assert found.suspects.ranks == [LATE]
        assert found.suspects.nodes == [f"gn-{LATE // EACH:03d}"]


@pytest.mark.parametrize("form", FORMS)
def test_an_error_names_the_node_of_its_record(
    form: Callable[..., dict[str, object]], diagnose: Run
) -> None:
    error = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    found = diagnose(log(form, 520, behind=False, more=error))
    assert found.first_fault is not None
    assert (found.first_fault.rank, found.first_fault.node) == (LATE, f"gn-{LATE // EACH:03d}")


def test_pods_of_several_ranks_are_no_ranks(diagnose: Run) -> None:
    """Where pods do not tell one rank each, their numbers are those of nodes."""

    def of_eight(pod: str, host: str, text: str) -> dict[str, object]:
        return fluent_bit(f"job-worker-{int(pod.rpartition('-')[2]) // EACH}", host, text)

    found = diagnose(log(of_eight, 64, behind=True))
    assert found.suspects.ranks == []
