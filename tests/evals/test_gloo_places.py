"""A real slow rank among real gloo processes is named from their profiler traces (bar L3)."""

from __future__ import annotations

import pytest

from rerail.evals.detectors.gloo_jobs import judge_job, torch_missing

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(torch_missing() is not None, reason=str(torch_missing())),
]


def test_the_delayed_rank_is_named() -> None:
    verdict = judge_job(world=4, slow=2, delay_s=0.05)

    assert verdict.findings[0].workers == (2,)
    assert verdict.findings[0].lost_per_step_s == pytest.approx(0.15, rel=0.5)
