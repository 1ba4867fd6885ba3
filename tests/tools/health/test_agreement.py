"""Slow is what is slow every time it is measured, by itself and not for want of a core."""

from rerail.tools.health.agreement import confirm
from rerail.tools.health.compute import ComputeResult, compare_speeds


def measured(slow=(), waited=(), nodes=8):
    return {
        f"n{i}": ComputeResult(
            "cpu",
            "m",
            50.0 if f"n{i}" in slow else 100.0 + i / 10,
            ("d",),
            0.4 * (f"n{i}" in waited),
        )
        for i in range(nodes)
    }


def test_who_is_slow_every_time_is_slow_and_who_is_not_is_unsure():
    rounds = iter([measured(["n1", "n2"]), measured(["n1"])])
    slow, unsure = compare_speeds(measured(["n1", "n2", "n3"]), lambda: next(rounds))
    assert set(slow) == {"n1"} and slow["n1"] < 0.6
    assert set(unsure) == {"n2", "n3"}


def test_nobody_is_measured_again_for_nothing_and_one_good_round_is_enough():
    def never():
        raise AssertionError("measured again")

    assert compare_speeds(measured(), never) == ({}, {})
    assert compare_speeds(measured(["n1"]), measured)[0] == {}
    asked = []
    assert confirm({"a": 0.5}, lambda: asked.append(1) or {}) == ({}, {"a": 0.5})
    assert len(asked) == 1


def test_who_waits_for_a_core_is_not_called_slow():
    slow, unsure = compare_speeds(
        measured(["n1", "n2"], waited=["n2"]), lambda: measured(["n1", "n2"])
    )
    assert (set(slow), set(unsure)) == ({"n1"}, {"n2"})
    # A node that is silent the second time was not found slow again.
    gone = measured(["n1"])
    del gone["n1"]
    assert compare_speeds(measured(["n1"]), lambda: gone) == ({}, {"n1": 0.498})
