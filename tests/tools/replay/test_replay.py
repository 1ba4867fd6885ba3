"""What-if replay: the published figures of a real trace, and the causes of simulated ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rerail.errors import EvidenceError
from rerail.evals.jobsim.spec import Fault, JobSpec
from rerail.evals.jobsim.timeline import write_timeline
from rerail.tools.localize.findings import LocalizeOutcome
from rerail.tools.replay.causes import localize_timeline
from rerail.tools.replay.timeline import read_timeline
from rerail.tools.replay.whatif import price

pytest.importorskip("pyarrow", reason="op timelines are Parquet, which needs rerail[fast]")

STRAGGLER_AR = Path(__file__).parents[2] / "data" / "straggler_ar" / "trace-AR.parquet"
BASE = JobSpec(dp=8, pp=4, micro_batches=16, steps=6, noise=0.01)


def test_published_figures_of_the_real_straggler_trace() -> None:
    """What-if analysis (OSDI 2025) artifact, result-AR.json, mw-AR.json and ms-AR.json."""
    pricing = price(read_timeline(STRAGGLER_AR))

    assert pricing.slowdown == pytest.approx(1.97305, abs=5e-6)
    assert pricing.launch_slowdown == pytest.approx(1.00675, abs=5e-6)
    assert next(iter(pricing.by_stage)) == 0
    assert pricing.by_stage[0] == pytest.approx(1.97919, abs=5e-5)
    assert pricing.by_optype["backward-compute"] == pytest.approx(1.58051, abs=5e-5)
    assert pricing.by_optype["forward-compute"] == pytest.approx(1.36889, abs=5e-5)
    assert pricing.m_w == pytest.approx(1.00170, abs=5e-5)
    assert pricing.m_s == pytest.approx(-0.00121, abs=5e-5)
    assert pricing.actual_step_s == pytest.approx(46.336, abs=1e-3)
    assert pricing.ideal_step_s == pytest.approx(23.4847, abs=1e-4)


def test_the_real_straggler_is_one_worker() -> None:
    verdict, _ = localize_timeline(read_timeline(STRAGGLER_AR))

    assert verdict.outcome is LocalizeOutcome.LOCALIZED
    (finding,) = verdict.findings
    assert finding.workers == (0,)
    assert dict(finding.where) == {"dp_rank": 0, "stage": 0}
    assert finding.failure_type == "slow_gpu"
    assert finding.lost_per_step_s == pytest.approx(23.4, abs=0.1)


@pytest.mark.parametrize(
    ("spec", "kinds", "workers"),
    [
        (BASE, [], set()),
        (replace(BASE, noise=0.05), [], set()),
        (replace(BASE, chunks=2), [], set()),
        (BASE.with_faults(Fault("gpu", 1.3, 3, 2)), ["slow_worker"], {14}),
        (replace(BASE, chunks=2).with_faults(Fault("gpu", 1.5, 3, 2)), ["slow_worker"], {14}),
        (replace(BASE, pp=1).with_faults(Fault("gpu", 1.5, 3, 0)), ["slow_worker"], {3}),
        (replace(BASE, dp=2).with_faults(Fault("gpu", 1.5, 1, 2)), ["slow_worker"], {6}),
        (BASE.with_faults(Fault("dp_ring", 4, 0, 1)), ["slow_group"], {1}),
        (BASE.with_faults(Fault("storage", 2.0, 3)), ["launch_delay"], {12, 13, 14, 15}),
        (
            replace(BASE, last_stage=1.3).with_faults(Fault("gpu", 1.5, 3, 2)),
            ["slow_worker", "stage_partition"],
            {14},
        ),
    ],
)
def test_simulated_causes(
    spec: JobSpec, kinds: list[str], workers: set[int], tmp_path: Path
) -> None:
    write_timeline(spec, tmp_path / "t.parquet")
    verdict, pricing = localize_timeline(read_timeline(tmp_path / "t.parquet"))

    assert sorted(one.kind for one in verdict.findings) == kinds
    if kinds:
        assert workers <= set(verdict.findings[0].workers)
        total = sum(one.lost_per_step_s for one in verdict.findings)
        # The ideal is a mean that the slow worker raises, so prices may exceed the loss a little.
        assert total <= 1.25 * (pricing.measured_step_s - pricing.ideal_step_s)
    else:
        assert verdict.outcome is LocalizeOutcome.HEALTHY


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (replace(BASE, last_stage=1.4), "stage_partition"),
        (replace(BASE, dp=2, last_stage=1.4), "stage_partition"),
        (replace(BASE, length_sigma=0.3), "sequence_length"),
        (replace(BASE, length_sigma=0.3, last_stage=1.25), "sequence_length"),
        (replace(BASE, noise=0.25), "jitter"),
    ],
)
def test_model_and_data_are_not_called_hardware(spec: JobSpec, kind: str, tmp_path: Path) -> None:
    write_timeline(spec, tmp_path / "t.parquet")
    verdict, _ = localize_timeline(read_timeline(tmp_path / "t.parquet"))

    assert verdict.findings[0].kind == kind
    assert verdict.outcome is LocalizeOutcome.IMBALANCE
    assert {one.layer for one in verdict.findings} == {"script"}
    assert {one.failure_type for one in verdict.findings} == {None}


def test_a_slow_host_is_told_from_a_slow_device(tmp_path: Path) -> None:
    write_timeline(BASE.with_faults(Fault("cpu", 1.5, 3, 2)), tmp_path / "t.parquet")
    verdict, _ = localize_timeline(read_timeline(tmp_path / "t.parquet"))

    assert verdict.findings[0].workers == (14,)
    assert verdict.findings[0].failure_type == "slow_host_cpu"


def _table(path: Path) -> dict[str, list[object]]:
    import pyarrow.parquet as parquet

    write_timeline(replace(BASE, dp=2, pp=2, micro_batches=4, steps=2), path)
    rows: dict[str, list[object]] = parquet.read_table(path).to_pydict()
    return rows


def _write(path: Path, rows: dict[str, list[object]]) -> Path:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    parquet.write_table(arrow.table(rows), path)
    return path


def test_bad_timelines_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    rows = _table(path)

    bad = {**rows, "duration": [*rows["duration"][:3], np.nan, *rows["duration"][4:]]}
    with pytest.raises(EvidenceError, match="row 4: duration is nan"):
        read_timeline(_write(path, bad))
    with pytest.raises(EvidenceError, match="'dance' is not one"):
        read_timeline(_write(path, {**rows, "optype": ["dance", *rows["optype"][1:]]}))
    with pytest.raises(EvidenceError, match="column 'seq_id' is missing"):
        read_timeline(_write(path, {k: v for k, v in rows.items() if k != "seq_id"}))
    with pytest.raises(EvidenceError, match="repeats"):
        read_timeline(_write(path, {k: [*v, v[-1]] for k, v in rows.items()}))


def test_steps_with_missing_ops_are_left_out_and_named(tmp_path: Path) -> None:
    rows = _table(tmp_path / "t.parquet")
    at = rows["step"].index(1)
    cut = {k: v[:at] + v[at + 1 :] for k, v in rows.items()}
    timeline = read_timeline(_write(tmp_path / "cut.parquet", cut))

    assert timeline.dropped_steps == (1,)
    assert list(timeline.steps) == [0]
