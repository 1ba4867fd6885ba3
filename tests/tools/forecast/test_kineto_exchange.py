"""Batched sends and receives: real gloo traces with partners, and kernels that name none."""

import json

import numpy as np
import pytest

from rerail.errors import EvidenceError
from rerail.evals.detectors.gloo_jobs import run_ranks
from rerail.evals.forecast.exchange_worker import ROUNDS, STEPS
from rerail.tools.forecast.sources import read_source
from rerail.tools.forecast.step import StepModel


@pytest.mark.torch
def test_a_real_trace_of_batched_exchanges_with_both_neighbours_is_forecast(tmp_path):
    pytest.importorskip("torch")
    run_ranks("rerail.evals.forecast.exchange_worker", tmp_path, 4, "1", limit_s=240)
    (tmp_path / "meeting").unlink(missing_ok=True)
    source = read_source([tmp_path])
    assert len(source.measured_s) >= 8 and len(source.measured_s) <= STEPS
    pools = source.spec.pools.keys()
    for sender, receiver in ((0, 1), (1, 0), (3, 0), (2, 1)):
        wanted = {f"transfer {sender}-{receiver} {i}" for i in range(ROUNDS)}
        assert wanted <= pools
    found = StepModel(source.spec).forecast(2000, errors=False)
    assert found.percentile(50) == pytest.approx(np.median(source.measured_s), rel=0.1)


def write(folder, ranks, requests, steps=10):
    """Write gloo traces; `requests` are (rank, sends, partner, begin, end) of each step of one second."""
    events = {rank: [] for rank in range(ranks)}

    def add(rank, cat, name, begin, end, args=None):
        events[rank].append(
            {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": begin * 1e6,
             "dur": (end - begin) * 1e6, "args": args or {}}
        )  # fmt: skip

    for i in range(steps):
        for rank in range(ranks):
            add(rank, "user_annotation", f"ProfilerStep#{i}", i, i + 1)
        for rank, sends, partner, begin, end in requests:
            op, span = ("c10d::send", "gloo:send") if sends else ("c10d::recv_", "gloo:recv")
            inputs = {"Concrete Inputs": ["", "", str(partner), "0"]} if partner is not None else {}
            add(rank, "cpu_op", op, i + begin - 1e-4, i + begin, inputs)
            add(rank, "user_annotation", span, i + begin, i + end)
    for rank, own in events.items():
        about = {"rank": rank, "world_size": ranks, "backend": "gloo"}
        (folder / f"rank{rank}.json").write_text(
            json.dumps({"distributedInfo": about, "traceEvents": own})
        )
    return read_source([folder])


# Rank 1 in the middle works until 0.6; its neighbours have posted at 0.2 and 0.3; all ends lie at 0.7.
CHAIN = [
    (0, True, 1, 0.2, 0.7), (0, False, 1, 0.201, 0.7),
    (1, True, 0, 0.6, 0.7), (1, False, 0, 0.601, 0.7),
    (1, True, 2, 0.602, 0.7), (1, False, 2, 0.603, 0.7),
    (2, True, 1, 0.3, 0.7), (2, False, 1, 0.301, 0.7),
]  # fmt: skip


def test_each_request_waits_for_its_own_partner(tmp_path):
    spec = write(tmp_path, 3, CHAIN).spec
    transfers = {name for name, op in spec.graph.items() if op.rank < 0}
    assert transfers == {f"transfer {a} 0" for a in ("0-1", "1-0", "1-2", "2-1")}
    found = StepModel(spec).forecast(300, errors=False)
    assert found.percentile(50) == pytest.approx(1.0, rel=0.01)
    # The middle rank 0.1 s later: everybody is.
    pools = {
        name: pool.model_copy(update={"scale": 1.2}) if name == "rank 1 work 0" else pool
        for name, pool in spec.pools.items()
    }
    later = StepModel(spec.model_copy(update={"pools": pools})).forecast(300, errors=False)
    assert later.percentile(50) - found.percentile(50) == pytest.approx(0.12, rel=0.05)


@pytest.mark.parametrize(
    "requests",
    [
        [one for one in CHAIN if one[:3] != (2, False, 1)],  # a receive that nobody profiled
        [(rank, sends, None, begin, 0.7 + rank / 10) for rank, sends, _, begin, _ in CHAIN],
    ],
)
def test_requests_without_partners_are_refused_with_what_to_do(tmp_path, requests):
    with pytest.raises(EvidenceError, match=r"without a partner: .*batch_isend_irecv") as told:
        write(tmp_path, 3, requests)
    assert "record_shapes=True" in told.value.hint
