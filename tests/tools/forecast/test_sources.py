"""Specs built from measured runs, and runs held against forecasts."""

import json
from pathlib import Path

import numpy as np
import pytest

from rerail.domain.series import StepSeries
from rerail.errors import ConfigError, EvidenceError
from rerail.tools.detectors.against_forecast import with_expected
from rerail.tools.detectors.detect import detect
from rerail.tools.detectors.events import SeriesOutcome
from rerail.tools.forecast.compare import compare, expected_of, read_expected
from rerail.tools.forecast.from_trace import spec_from_spans, spec_from_timeline
from rerail.tools.forecast.sources import read_source, spec_from_steps
from rerail.tools.forecast.step import StepModel

GEMM, ALL_REDUCE = "gemm", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"
ALL_GATHER, SEND_RECV = "ncclDevKernel_AllGather_RING_LL(x)", "ncclDevKernel_SendRecv(x)"
TRACE = Path("tests/data/straggler_ar/trace-AR.parquet")


def series(times):
    return StepSeries("run", np.arange(len(times)), np.asarray(times, dtype=float))


@pytest.fixture(scope="module")
def expected():
    times = np.random.default_rng(1).normal(1.0, 0.02, 400)
    return expected_of(StepModel(spec_from_steps(times, "healthy")).forecast(2000))


@pytest.mark.slow
def test_a_real_trace_is_forecast_from_half_of_its_steps():
    _, measured = spec_from_timeline(TRACE)
    spec, _ = spec_from_timeline(TRACE, range(0, len(measured), 2))
    assert (spec.world_size, spec.node_count) == (16, 4)  # one rank of each tensor-parallel group
    found = StepModel(spec).forecast(1000, errors=False)
    for percent in (50, 95):
        assert found.percentile(percent) == pytest.approx(
            np.percentile(measured[1::2], percent), rel=0.02
        )


def test_spans_make_collectives_that_wait_for_the_last_rank():
    def step(i, work):
        begin = 10.0 * i
        end = begin + 2.0  # all leave together, whoever came first
        return (begin, end + 0.5, [("world", begin + work, end)])

    spans = {0: [step(i, 1.0) for i in range(12)], 1: [step(i, 1.7) for i in range(12)]}
    found = StepModel(spec_from_spans(spans)).forecast(500, errors=False)
    # 1.7 until the last rank is there, 0.3 of transfer, 0.5 behind it.
    assert found.percentile(50) == pytest.approx(2.5, rel=1e-6)


def write_traces(folder, ranks, steps, kernels, skew=0.0):
    """Write a Kineto trace for each rank; `kernels(step)` gives (rank, name, group, begin, end) and the step's length."""
    events = {rank: [] for rank in range(ranks)}
    begin = 0.0
    for i in range(steps):
        found, length = kernels(i)
        for rank in range(ranks):
            events[rank].append(
                {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "pid": 1, "tid": 1,
                 "ts": (begin + skew * rank) * 1e6, "dur": length * 1e6}
            )  # fmt: skip
        for rank, name, group, left, right in found:
            members = str(list(range(ranks)))
            events[rank].append(
                {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": name + group,
                 "ts": (begin + left + skew * rank) * 1e6, "dur": (right - left) * 1e6,
                 "args": {"Process Group Name": group, "Process Group Ranks": members}}
            )  # fmt: skip
        begin += length
    for rank, own in events.items():
        about = {"rank": rank, "world_size": ranks, "backend": "nccl"}
        content = {"distributedInfo": about, "traceEvents": own}
        (folder / f"rank{rank}.json").write_text(json.dumps(content))
    return read_source([folder])


def test_collectives_that_overlap_are_not_added_up(tmp_path):
    def kernels(step):
        late = 0.01 * (step % 4)
        one = [
            (rank, name, group, begin, end)
            for rank in range(2)
            for name, group, begin, end in (
                (ALL_REDUCE, "dp", 0.2, 0.8),
                (ALL_GATHER, "tp", 0.3, 0.5),
                (ALL_GATHER, "tp", 0.6, 0.7),
            )
        ]
        return one, 1.0 + late

    source = write_traces(tmp_path, 2, 12, kernels)
    assert source.measured_s == pytest.approx([1.0 + 0.01 * (i % 4) for i in range(12)])
    assert "of 12 steps, whose median took 1.015 s" in source.note
    found = StepModel(source.spec).forecast(1000, errors=False)
    # Each rank draws its own lateness of up to 0.03; one behind the other they would take 1.3.
    assert 1.0 < found.percentile(50) < 1.03


@pytest.mark.parametrize("skew", [0.0, 0.7])
def test_transfers_of_a_pipeline_are_matched_by_pairs(tmp_path, skew):
    stages, transfer = 4, 0.01

    def kernels(step):
        rng = np.random.default_rng(step)
        out, ready, idle = [], 0.0, []
        for rank in range(stages):
            if rank:
                # Posted at the step's begin: nearly all of the kernel is waiting.
                out.append((rank, SEND_RECV, "pp", 0.001, ready + transfer))
                out.append((rank - 1, SEND_RECV, "pp", ready, ready + transfer))
                ready += transfer
            ready += 1.0 + 0.02 * rng.random()
            idle.append(ready)
        out += [(r, ALL_REDUCE, "world", idle[r], ready + 0.1) for r in range(stages)]
        return out, ready + 0.1

    source = write_traces(tmp_path, stages, 12, kernels, skew)
    assert source.spec.pools.keys() >= {"transfer 0-1 of [0, 1, 2, 3] pp 0"}
    found = StepModel(source.spec).forecast(1000, errors=False)
    assert found.percentile(50) == pytest.approx(np.median(source.measured_s), rel=0.003)


def test_an_all_to_all_waits_for_all_ranks(tmp_path):
    def kernels(step):
        arrive = [0.2, 0.3, 0.4, 0.5]
        return [(r, SEND_RECV, "ep", arrive[r], 0.6) for r in range(4)], 0.7

    spec = write_traces(tmp_path, 4, 9, kernels).spec
    assert sum(op.rank < 0 for op in spec.graph.values()) == 1
    assert StepModel(spec).forecast(300, errors=False).percentile(50) == pytest.approx(0.7)


def test_transfers_without_a_partner_and_too_few_steps_are_refused(tmp_path):
    def kernels(step):
        return [(0, SEND_RECV, "pp", 0.1, 0.2), (1, SEND_RECV, "pp", 0.4, 0.8)], 1.0

    with pytest.raises(EvidenceError, match="without a partner"):
        write_traces(tmp_path, 2, 12, kernels)
    with pytest.raises(EvidenceError, match="profiled steps: 3; a distribution needs 8"):
        write_traces(tmp_path, 2, 3, lambda step: ([(0, GEMM, "", 0.1, 0.2)], 1.0))


def test_waiting_is_cut_from_transfers():
    def step(i, wait):
        begin, took = 10.0 * i, 0.01 + wait
        return (begin, begin + 1 + took, [("transfer 0-1 of pp", begin + 1, begin + 1 + took)])

    steps = [step(i, 0.5 if i % 4 == 0 else 0.0001 * i) for i in range(24)]
    pool = spec_from_spans({0: steps, 1: steps}).pools["transfer 0-1 of pp 0"]
    assert pool.kernel == "transfer"
    assert len(pool.samples_s) == 18
    assert max(pool.samples_s) < 0.02


def test_a_run_that_is_slow_from_its_first_step_is_seen_only_with_a_forecast(expected):
    slow = series(np.random.default_rng(2).normal(1.3, 0.02, 200))
    alone = detect(slow)
    assert alone.outcome is SeriesOutcome.HEALTHY
    told = with_expected(slow, alone, expected)
    assert told.outcome is SeriesOutcome.FAIL_SLOW
    assert told.events[0].step == 0
    assert told.lost_s == pytest.approx(0.3 * 197, rel=0.05)


def test_a_healthy_run_stays_healthy_beside_its_forecast(expected):
    for seed in range(20):
        good = series(np.random.default_rng(seed).normal(1.0, 0.02, 200))
        assert with_expected(good, detect(good), expected).outcome is SeriesOutcome.HEALTHY
    assert compare(np.ones(5), expected) is None
    other = compare(np.full(40, expected.percentile(50) / 5), expected)
    assert other is not None and not other.slower
    assert "not a forecast of this run" in other.sentence()


def test_a_forecast_that_is_no_forecast_is_refused(tmp_path):
    file = tmp_path / "expected.json"
    for content in ("{}", "[1]", "{", json.dumps({"quantiles_s": [1.0] * 100 + ["x"]})):
        file.write_text(content)
        with pytest.raises(ConfigError):
            read_expected(file)
    file.write_text(json.dumps({"name": "n", "quantiles_s": list(np.linspace(1, 2, 101))}))
    assert read_expected(file).percentile(50) == pytest.approx(1.5)


def test_too_short_a_series_and_an_empty_folder_are_refused(tmp_path):
    file = tmp_path / "steps.csv"
    file.write_text("step,step_time_s\n1,1.0\n2,1.1\n")
    with pytest.raises(EvidenceError, match="2 step times"):
        read_source([file])
    (tmp_path / "none").mkdir()
    with pytest.raises(EvidenceError, match="no Kineto traces"):
        read_source([tmp_path / "none"])
