"""The collector on real jobs: four processes over gloo, one of them at fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from rerail.evals.patterns.gloo_jobs import RealJob, run_real_job
from rerail.evals.patterns.trigger_jobs import run_watched_job
from rerail.tools.localize.findings import LocalizeOutcome
from rerail.tools.profiles.summary import read_summary
from rerail.tools.profiling.window import REQUEST, WindowProfiler

pytestmark = pytest.mark.torch
GUILTY = 2


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RealJob]:
    faults = ("healthy", "function", "rank", "loader")
    return run_real_job(faults, GUILTY, folder=tmp_path_factory.mktemp("job"))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("fault", "function", "cause"),
    [
        ("function", "gloo_worker.py: normalise_tokens", "slow_rank"),
        ("rank", "all that the process does", "slow_rank"),
        ("loader", "dataloader.py: __next__", "slow_storage"),
    ],
)
def test_a_real_fault_is_named_with_rank_and_function(
    jobs: dict[str, RealJob], fault: str, function: str, cause: str
) -> None:
    findings = jobs[fault].verdict.findings
    assert [one.workers for one in findings] == [(GUILTY,)]
    assert cause == findings[0].kind
    if fault != "rank":
        assert findings[0].function == function


@pytest.mark.nightly
def test_a_real_healthy_job_has_no_finding(jobs: dict[str, RealJob]) -> None:
    assert jobs["healthy"].verdict.outcome is LocalizeOutcome.HEALTHY
    assert jobs["healthy"].verdict.missing == []


@pytest.mark.nightly
def test_the_collector_costs_little_and_writes_patterns(jobs: dict[str, RealJob]) -> None:
    for job in jobs.values():
        assert max(job.outside_share) < 0.01
        assert len(job.bytes) == 4
        assert max(job.bytes) < 30_000
        assert min(job.window_cost_s) > 0


def test_a_window_is_asked_for_by_a_file_and_leaves_no_trace_behind(tmp_path: Path) -> None:
    import torch

    profiler = WindowProfiler(tmp_path, steps=3, role="stage 1", job="J")
    profiler.request(20)
    for _ in range(40):
        torch.ones(8).sum()
        profiler.step()
    profiler.close()

    assert not (tmp_path / REQUEST).exists()
    (path,) = tmp_path.iterdir()
    summary = read_summary(path)
    assert (summary.first_step, len(summary.step_s), summary.role) == (20, 3, "stage 1")
    assert {"start_s", "stop_s", "export_s", "outside_share"} <= set(summary.cost)
    assert any(one.function == "aten::sum" for one in summary.functions)


def test_a_request_of_the_past_or_in_pieces_is_not_followed(tmp_path: Path) -> None:
    profiler = WindowProfiler(tmp_path, steps=2)
    (tmp_path / REQUEST).write_text('{"first": ')
    for _ in range(30):
        profiler.step()
    (tmp_path / REQUEST).write_text(json.dumps({"first": 5}))
    for _ in range(30):
        profiler.step()
    profiler.close()
    assert [path.name for path in tmp_path.iterdir()] == [REQUEST]


def test_iterations_are_learned_from_calls_and_drive_the_window(tmp_path: Path) -> None:
    import torch
    from torch.utils.data import DataLoader

    from rerail.tools.profiling.calls import watch

    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watcher = watch(tmp_path, first=20, steps=3)
    loader = DataLoader(torch.ones(400, 4), batch_size=4)
    try:
        for number, batch in enumerate(loader):
            model(batch).sum().backward()
            if number % 2:  # two batches an iteration
                optimizer.step()
                optimizer.zero_grad()
    finally:
        watcher.close()
    assert watcher.pattern == ("nns",)
    (path,) = tmp_path.iterdir()
    summary = read_summary(path)
    assert (summary.first_step, len(summary.step_s)) == (20, 3)
    unpatched = len(list(loader))
    # Ten of 50 to learn, and the call that finds no batch any more begins one.
    assert (unpatched, watcher.profiler.iteration) == (100, 41)


def test_rank_0_asks_once_and_learns_anew_behind_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("rerail.tools.profiling.window.time.perf_counter", lambda: clock[0])
    profiler = WindowProfiler(tmp_path, steps=2)
    asked = []
    monkeypatch.setattr(profiler, "request", asked.append)
    for step in range(140):
        clock[0] += 1.0 if step < 60 else 1.4
        profiler.step()
    assert len(asked) == 1
    assert profiler.stalled(8.0)
    assert not profiler.stalled(5.0)


@pytest.mark.nightly
def test_a_watched_job_is_profiled_by_itself_on_all_ranks_at_one_iteration() -> None:
    found = run_watched_job("slow")
    assert len(found.windows) == 4
    assert len(set(found.windows)) == 1
    assert found.verdict is not None
    assert {one.workers for one in found.verdict.findings} == {(GUILTY,)}


@pytest.mark.nightly
def test_a_watched_job_that_stalls_leaves_the_stacks_of_all_ranks() -> None:
    found = run_watched_job("stall")
    assert sorted(found.stacks) == [0, 1, 2, 3]
    assert ["load_from_a_tired_disk" in found.stacks[rank] for rank in range(4)] == [
        False, False, True, False,
    ]  # fmt: skip
