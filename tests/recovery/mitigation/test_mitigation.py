"""Splits are exact, placements move little, escalation costs at most twice the optimum."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerail.errors import RecoveryError
from rerail.recovery.mitigation.escalation import Cause, Escalation, Option, Remedy, usable
from rerail.recovery.mitigation.loop import MicroBatchPlan
from rerail.recovery.mitigation.micro_batches import makespan_s, split, split_by_table
from rerail.recovery.mitigation.placement import gather_slow, serve_pipeline
from rerail.tools.forecast.replica_time import replica_time_s, table_s


def best_by_trying_all(times, total, overhead=0.0):
    best = math.inf
    for counts in product(range(1, total + 1), repeat=len(times) - 1):
        last = total - sum(counts)
        if last >= 1:
            best = min(best, makespan_s(times, [*counts, last], overhead))
    return best


@given(
    st.lists(st.floats(0.1, 10), min_size=2, max_size=4),
    st.integers(0, 8),
    st.sampled_from([0.0, 1.0, 3.0]),
)
def test_a_split_equals_the_best_of_all(times, more, overhead):
    total = len(times) + more
    counts = split(times, total, overhead_units=overhead)
    assert sum(counts) == total and min(counts) >= 1
    assert makespan_s(times, counts, overhead) == pytest.approx(
        best_by_trying_all(times, total, overhead)
    )
    tables = [[t * (m + overhead) for m in range(1, total + 1)] for t in times]
    assert makespan_s(times, split_by_table(tables, total), overhead) == pytest.approx(
        makespan_s(times, counts, overhead)
    )


def test_the_case_in_which_the_variance_objective_is_wrong():
    times = (1.04, 1.47, 2.74)
    counts = split(times, 14)
    assert makespan_s(times, counts) == pytest.approx(7.35)
    assert makespan_s(times, (6, 5, 3)) == pytest.approx(8.22)


@pytest.mark.parametrize(
    ("total", "wanted"),
    [
        (16, [1, 1.25, 1.425, 1.75, 1.9]),
        (32, [1, 1.188, 1.375, 1.662, 1.9]),
        (64, [1, 1.188, 1.312, 1.562, 1.9]),
    ],
)
def test_published_cases_of_four_groups(total, wanted):
    for slow in range(5):
        times = [1.9] * slow + [1.0] * (4 - slow)
        ratio = makespan_s(times, split(times, total)) / (total / 4)
        assert ratio == pytest.approx(wanted[slow], abs=6e-4)


@given(
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40), st.integers(1, 6), st.integers(1, 4)
)
def test_counts_respect_multiples_and_add_up(times, per_group, multiple):
    total = len(times) * per_group * multiple
    counts = split(times, total, multiple=multiple)
    assert sum(counts) == total and all(one % multiple == 0 and one > 0 for one in counts)


@pytest.mark.parametrize(
    ("times", "total", "more"),
    [
        ([], 4, {}),
        ([1, 0], 4, {}),
        ([1, math.nan], 4, {}),
        ([1, 1], 1, {}),
        ([1, 1], 5, {"multiple": 2}),
    ],
)
def test_what_cannot_be_split_is_an_error(times, total, more):
    with pytest.raises(RecoveryError):
        split(times, total, **more)


def test_1f1b_is_the_closed_form_for_equal_stages_and_waits_for_a_slow_one():
    for stages, batches in [(1, 5), (3, 4), (4, 8)]:
        assert replica_time_s((1.0,) * stages, batches) == pytest.approx(batches + stages - 1)
    slow = replica_time_s((1.0, 1.5, 1.0), 4)
    assert replica_time_s((1.0, 1.0, 1.0), 4) < slow <= 1.5 * 6
    assert table_s((1.0, 1.5), 9) == sorted(table_s((1.0, 1.5), 9))


def test_slow_nodes_are_gathered_with_few_moves():
    grid = np.ones((4, 4))
    grid[0, 1] = grid[2, 3] = grid[2, 0] = 2.0
    found = gather_slow(grid.tolist())
    rows = [row for row in found.slowdown if max(row) > 1]
    assert len(rows) == 1 and sorted(rows[0]) == [1, 2, 2, 2]
    assert len(found.swaps) == 1
    assert gather_slow(np.ones((2, 2)).tolist()).swaps == ()


def test_a_slow_link_moves_into_the_pipeline():
    move = serve_pipeline((0, 1), (2, 1), stages=3, slowdown={(0, 0): 1.5})
    assert move.swap == ((2, 1), (0, 2))
    assert serve_pipeline((0, 1), (0, 2), stages=3) is None
    assert serve_pipeline((0, 0), (1, 0), stages=1) is None


@pytest.mark.parametrize(("cost", "loss", "at"), [(60.0, 1.2, 50), (2.096, 0.4192, 5)])
def test_one_remedy_is_applied_when_its_cost_is_lost(cost, loss, at):
    phase = Escalation([Option(Remedy.RESTART, cost, 0.0)], Cause.COMPUTE, healthy_s=1.0)
    decided = [phase.step(1.0 + loss) for _ in range(at)]
    assert decided[-1] is Remedy.RESTART and set(decided[:-1]) == {None}


@given(st.floats(0.2, 3.0), st.floats(1, 500), st.integers(1, 600))
def test_the_cost_is_at_most_twice_that_of_knowing_the_length(loss, cost, length):
    phase = Escalation([Option(Remedy.RESTART, cost, 0.0)], Cause.COMPUTE, healthy_s=1.0)
    paid, applied = 0.0, False
    for _ in range(length):
        paid += 0.0 if applied else loss
        if phase.step(1.0 if applied else 1.0 + loss, None if not applied else loss):
            paid, applied = paid + cost, True
    # One step of loss more, because it decides after a step and not within it.
    assert paid <= 2 * min(cost, loss * length) + loss + 1e-6


@given(st.lists(st.floats(1.0, 5.0), min_size=1, max_size=200))
def test_micro_batches_are_never_moved_for_a_communication_fault(times):
    options = [
        Option(Remedy.MICRO_BATCHES, 1.0, 0.1),
        Option(Remedy.PLACEMENT, 30.0, 0.05),
        Option(Remedy.RESTART, 300.0, 0.0),
    ]
    phase = Escalation(options, Cause.COMMUNICATION, healthy_s=1.0, at_once_s=20.0)
    assert Remedy.MICRO_BATCHES not in {phase.step(one) for one in times}
    assert Remedy.MICRO_BATCHES in {one.remedy for one in usable(options, Cause.COMPUTE)}


def test_relief_cancels_what_has_added_up():
    phase = Escalation([Option(Remedy.RESTART, 10.0, 0.0)], Cause.COMPUTE, healthy_s=1.0)
    for _ in range(9):
        assert phase.step(2.0) is None
    for _ in range(3):
        phase.step(1.0)
    assert phase.over and phase.step(2.0) is None and phase.applied is Remedy.IGNORE


def test_all_groups_agree_on_the_data_and_leave_none_out():
    times = [0.1, 0.1, 0.3, 0.1]
    plans = [MicroBatchPlan(g, 4, 16, lambda mine: times, every=1) for g in range(4)]
    for plan in plans:
        plan.ran(0.1)
        assert plan.after_step()
        assert not plan.after_step()  # nothing measured: nothing changes
    assert sorted(n for plan in plans for n in plan.mine) == list(range(16))
    assert len(plans[2].mine) < len(plans[0].mine)
