"""Localisation: simulated jobs with known faults, and the answers when nothing can be said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rerail.evals.jobsim.observe import observe
from rerail.evals.jobsim.spec import Fault, JobSpec
from rerail.tools.localize.findings import LocalizeOutcome
from rerail.tools.localize.heatmap_svg import HeatMap
from rerail.tools.localize.heatmap_text import render_text
from rerail.tools.localize.judge import localize
from rerail.tools.localize.observations import GroupTimes, JobTimes

JOB = JobSpec(dp=8, pp=4, tp=8, micro_batches=8, noise=0.03, first_stage=1.1, last_stage=1.25)


def ranks_of(spec: JobSpec, fault: Fault) -> set[int]:
    """The ranks that a fault's finding must name."""
    index = np.arange(spec.world_size).reshape(spec.dp, spec.pp, spec.tp)
    chosen = {
        "gpu": index[fault.dp, fault.stage, fault.tp],
        "node": index[fault.dp, fault.stage],
        "tp_link": index[fault.dp, fault.stage],
        "pp_link": index[fault.dp, fault.stage : fault.stage + 2, 0],
        "dp_ring": index[:, fault.stage, fault.tp],
    }[fault.kind]
    return {int(rank) for rank in np.ravel(chosen)}


@pytest.mark.parametrize(
    "fault",
    [
        Fault("gpu", 1.1, 3, 2, 5),
        Fault("gpu", 2.0, 0, 0, 0),
        Fault("node", 1.2, 7, 3),
        Fault("tp_link", 1.5, 2, 1),
        Fault("pp_link", 3.0, 5, 2),
        Fault("dp_ring", 2.0, 0, 1, 4),
    ],
    ids=lambda fault: f"{fault.kind} x{fault.ratio}",
)
def test_one_fault_is_the_only_finding(fault: Fault) -> None:
    verdict = localize(observe(JOB.with_faults(fault, seed=7)))

    assert [set(one.workers) for one in verdict.findings] == [ranks_of(JOB, fault)]
    assert verdict.outcome is LocalizeOutcome.LOCALIZED


def test_groups_whose_transfers_were_not_seen_hide_no_slow_link() -> None:
    fault = Fault("tp_link", 1.5, 2, 1)
    job = observe(JOB.with_faults(fault, seed=7))
    group = next(one for one in job.groups if one.kind == "tp")
    (slow,) = np.flatnonzero(np.isin(group.members, list(ranks_of(JOB, fault))).all(axis=1))
    seen = group.transfer_s.copy()
    seen[:, np.arange(seen.shape[1]) % 3 != slow % 3] = np.nan
    blind = replace(job, groups=(replace(group, transfer_s=seen),))

    (finding,) = localize(blind).findings

    assert set(finding.workers) == ranks_of(JOB, fault)


@pytest.mark.parametrize("inner", ["cp", "ep"])
def test_context_and_expert_groups_are_judged_alike(inner: str) -> None:
    job = replace(JOB, inner=inner)
    for fault in (Fault("gpu", 1.3, 3, 2, 5), Fault("tp_link", 1.5, 2, 1)):
        (finding,) = localize(observe(job.with_faults(fault, seed=2))).findings
        assert set(finding.workers) == ranks_of(job, fault)
    assert finding.kind == f"{inner}_link"


def test_overlapped_gradients_hide_no_slow_rank() -> None:
    job = replace(JOB, overlap_dp=True)
    fault = Fault("gpu", 1.3, 3, 2, 5)
    (finding,) = localize(observe(job.with_faults(fault))).findings
    assert set(finding.workers) == ranks_of(job, fault)


def test_several_faults_are_ranked_by_their_price() -> None:
    faults = (Fault("gpu", 2.0, 1, 1, 1), Fault("node", 1.2, 6, 2), Fault("pp_link", 4.0, 3, 0))
    verdict = localize(observe(JOB.with_faults(*faults, seed=3)))

    assert [set(one.workers) for one in verdict.findings] == [ranks_of(JOB, f) for f in faults]


def test_long_end_stages_are_no_fault_when_roles_are_known() -> None:
    assert localize(observe(JOB)).outcome is LocalizeOutcome.HEALTHY


def test_a_slow_half_has_no_reference() -> None:
    slow = tuple(Fault("node", 1.4, dp, stage) for dp in range(4) for stage in range(JOB.pp))
    verdict = localize(observe(JOB.with_faults(*slow)))

    assert verdict.outcome is LocalizeOutcome.NO_REFERENCE
    assert "neither is a reference" in verdict.missing[0]


def test_a_slow_fifth_is_found_whole() -> None:
    job = replace(JOB, dp=20, tp=4)
    slow = tuple(Fault("node", 1.4, dp, 2) for dp in range(4))
    verdict = localize(observe(job.with_faults(*slow)))

    assert set().union(*(one.workers for one in verdict.findings)) == set().union(
        *(ranks_of(job, fault) for fault in slow)
    )


def test_a_known_slow_phase_without_a_culprit_is_unexplained() -> None:
    assert localize(observe(JOB), slower_than_before=True).outcome is LocalizeOutcome.UNEXPLAINED


def test_without_compute_times_the_last_to_arrive_is_named() -> None:
    rng = np.random.default_rng(1)
    waits = rng.normal(0.0, 1e-4, (6, 1, 8))
    waits[:, 0, 5] += 0.01
    first = np.full((1, 8), 0.02)
    first[0, 5] = 0.86
    group = GroupTimes("dp", np.arange(8)[None], np.full((6, 1), 0.03), waits, first)
    verdict = localize(JobTimes("late", np.arange(8), np.zeros(8, int), groups=[group], steps=6))

    assert verdict.findings[0].workers == (5,)
    assert "no compute time per rank" in verdict.missing[0]


def test_equal_chances_of_arriving_last_name_nobody() -> None:
    rng = np.random.default_rng(2)
    group = GroupTimes(
        "dp", np.arange(8)[None], np.full((6, 1), 0.03), rng.normal(0, 1e-3, (6, 1, 8)),
        np.full((1, 8), 0.125),
    )  # fmt: skip
    verdict = localize(JobTimes("even", np.arange(8), np.zeros(8, int), groups=[group], steps=6))

    assert verdict.outcome is LocalizeOutcome.HEALTHY


def test_the_terminal_map_shows_the_slowest_rows_and_fits() -> None:
    ratio = np.ones((40, 300))
    ratio[17, 150:] = 2.0
    ratio[3, :] = 1.4
    rows = tuple(str(i) for i in range(40))
    columns = tuple(str(i) for i in range(300))
    text = render_text(HeatMap("t", ratio, rows, columns), 72).splitlines()

    assert max(len(line) for line in text) <= 72
    slow = next(line for line in text if line.startswith("17 |"))
    assert slow.endswith("@@@@|")
    assert slow.startswith("17 |   ")
    assert any(line.startswith(" 3 |---") for line in text)
    assert "30 more rows, none of them slower" in text
