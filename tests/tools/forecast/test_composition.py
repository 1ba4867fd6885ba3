"""The step-time model against numbers computed elsewhere and against brute force."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rerail.errors import UsageError
from rerail.evals.forecast import command
from rerail.evals.forecast.brute import agreement, cases
from rerail.evals.forecast.command import forecast_eval_command
from rerail.evals.forecast.reference import (
    LEAST_NEAR,
    composed,
    invariants,
    reference_checks,
    resampled_agreement,
)
from rerail.tools.forecast.durations import gamma, lognormal, max_moments, maximum, normal, total
from rerail.tools.forecast.engine import Draw, deterministic, simulate
from rerail.tools.forecast.fit import fit_pool, ks_distance, otsu_split
from rerail.tools.forecast.program import pipeline_program
from rerail.tools.forecast.schedule import zero_bubble_order
from rerail.tools.forecast.spec import Parallelism
from rerail.tools.forecast.step import StepModel
from rerail.tools.forecast.tails import slowest, standard_error


def test_every_reference_number_and_invariant_holds():
    assert [one for one in reference_checks() if not one.holds] == []
    assert [text for text, holds in invariants().items() if not holds] == []


def _without(**changes):
    """Return a composition that leaves something of the spec out."""
    return lambda spec: composed(spec.model_copy(update=changes))


def _alone(spec):
    """The maximum over replicas is forgotten."""
    return StepModel(spec).forecast(20_000, 5, errors=False).replica


def _widened(spec):
    """Deviations of the step are a fifth too large."""
    right = composed(spec)
    return right.widened(1.2)


@pytest.mark.parametrize(
    "wrong",
    [
        _alone,
        _widened,
        lambda spec: composed(spec).scaled(1.001),
        _without(parallel=Parallelism(tp=1, pp=4, dp=2)),
        _without(parallel=Parallelism(tp=4, pp=4, dp=3)),
    ],
)
def test_a_wrong_composition_does_not_pass_the_resampled_agreement(wrong):
    assert resampled_agreement(wrong) < LEAST_NEAR


@pytest.mark.parametrize(
    "number",
    [
        0,
        1,
        9,
        10,
        11,
        12,
        15,
        16,
        *(pytest.param(n, marks=pytest.mark.nightly) for n in (5, 6, 7, 13, 14)),
    ],
)
def test_the_composition_agrees_with_brute_force(number):
    found = agreement(*cases(quick=True)[number])
    assert found.holds, found


@pytest.mark.parametrize("make", [normal, gamma, lognormal])
def test_a_maximum_is_that_of_drawn_copies(make):
    one = make(1.0, 0.2)
    rng = np.random.default_rng(1)
    drawn = one.quantile(rng.random((20_000, 64))).max(axis=1)
    assert ks_distance(maximum(one, 64).table, drawn) < 0.015


def test_moments_of_unequal_ranks_are_those_of_drawn_ones():
    factors = np.array([[1.0, 1.1, 0.95, 1.02], [1.3, 1.0, 1.0, 1.0]])
    mean, sd = max_moments(normal(2.0, 0.1), factors)
    rng = np.random.default_rng(1)
    drawn = (rng.normal(2.0, 0.1, (200_000, 1, 4)) * factors).max(axis=2)
    assert mean == pytest.approx(drawn.mean(axis=0), rel=1e-3)
    assert sd == pytest.approx(drawn.std(axis=0), rel=0.02)


def test_a_sum_has_the_exact_moments_of_its_parts():
    found = total([(gamma(1.0, 0.5), 3), (normal(2.0, 0.1), 2)])
    assert found.mean == pytest.approx(7.0)
    assert found.sd == pytest.approx(np.sqrt(3 * 0.25 + 2 * 0.01))
    assert found.table.mean() == pytest.approx(7.0, rel=1e-6)


def test_replicas_that_differ_multiply_their_distributions():
    rng = np.random.default_rng(1)
    fast, slow = rng.normal(1.0, 0.05, 20_000), rng.normal(1.1, 0.05, 20_000)
    drawn = np.maximum(
        rng.normal(1.0, 0.05, (20_000, 63)).max(axis=1), rng.normal(1.1, 0.05, 20_000)
    )
    found = slowest([(fast, 63), (slow, 1)])
    assert ks_distance(found.table, drawn) < 0.03


@pytest.mark.parametrize(
    ("law", "ks", "p95"),
    [
        (stats.norm(10, 0.4), 0.06, 0.006),
        (stats.gamma(20), 0.06, 0.02),
        (stats.lognorm(0.8), 0.06, 0.08),  # too heavy for a parabola in the normal score
        (stats.pareto(4), 0.08, 0.12),
        (stats.uniform(), 0.25, 0.001),  # its maximum is nearly a constant
    ],
)
def test_the_slowest_of_512_is_known_from_20_000_samples_of_any_tail(law, ks, p95):
    u = (np.arange(999) + 0.5) / 999
    true = law.ppf(0.95 ** (1 / 512))
    apart, error = [], []
    for seed in range(6):
        found = slowest([(law.rvs(20_000, random_state=seed), 512)]).quantile(u)
        apart.append(np.abs(law.cdf(found) ** 512 - u).max())
        error.append(found[949] / true - 1)
    assert np.mean(apart) <= ks
    assert np.sqrt(np.mean(np.square(error))) <= p95


def test_the_standard_error_is_the_spread_of_repeated_forecasts():
    rng = np.random.default_rng(1)
    p95 = [
        slowest([(rng.normal(1.0, 0.05, 2000), 64)]).quantile(np.array([0.95]))[0]
        for _ in range(40)
    ]
    told = standard_error([(rng.normal(1.0, 0.05, 2000), 64)], 0.95)
    assert 0.5 < told / np.std(p95) < 2.0


@pytest.mark.parametrize(("stages", "micro"), [(4, 8), (8, 16), (8, 64)])
def test_zero_bubble_leaves_a_third_of_the_bubble(stages, micro):
    program = pipeline_program(stages, micro, "zero_bubble")
    took = deterministic(program, [0.0 if n.duration == "transfer" else 1.0 for n in program.nodes])
    # Qi et al. (ICLR'24): the bubble of ZB-H1 is (P - 1)(F + B - W), that of 1F1B (P - 1)(F + B + W).
    assert float(took) == 3 * micro + (stages - 1)


def test_zero_bubble_holds_no_more_micro_batches_than_the_first_stage_of_1f1b():
    for stage in range(8):
        held = most = 0
        for one in zero_bubble_order(stage, 8, 32):
            held += one.forward - one.weights
            most = max(most, held)
        assert most <= 8


def test_interleaving_divides_the_bubble_by_the_chunks():
    program = pipeline_program(4, 8, "interleaved", chunks=2)
    seconds = {"forward": 0.5, "backward": 1.0, "transfer": 0.0}
    took = deterministic(program, [seconds[n.duration] for n in program.nodes])
    assert float(took) == pytest.approx(8 * 3 + 3 * 3 / 2)


def test_any_number_of_threads_draws_the_same_steps():
    program = pipeline_program(4, 8)
    one = Draw(normal(1.0, 0.1))
    draws = [one] * len(program.nodes)
    first = simulate(program, draws, 25_000, 1, threads=1)
    assert (first == simulate(program, draws, 25_000, 1, threads=2)).all()


def test_a_pool_is_fitted_by_what_describes_it_best():
    rng = np.random.default_rng(1)
    assert fit_pool(rng.normal(1.0, 0.1, 800)).duration.kind == "normal"
    assert fit_pool(rng.gamma(2.0, 0.5, 800)).duration.kind == "gamma"
    assert fit_pool(rng.lognormal(0.0, 0.8, 800)).duration.kind == "lognormal"
    two = np.concatenate([rng.normal(1.0, 0.1, 400), rng.normal(9.0, 0.1, 400)])
    assert fit_pool(two).duration.kind == "empirical"


def test_waits_are_parted_from_transfers_and_one_population_is_left_whole():
    rng = np.random.default_rng(1)
    transfers, waits = rng.lognormal(-7, 0.2, 300), rng.lognormal(-3, 0.4, 100)
    cut = otsu_split(np.concatenate([transfers, waits]))
    assert transfers.max() <= cut < waits.min()
    assert otsu_split(transfers) == pytest.approx(transfers.max())


def test_an_unknown_table_is_refused():
    with pytest.raises(UsageError, match="reference, brute"):
        forecast_eval_command("nonsense")


def test_bars_that_were_not_run_are_told_and_are_no_success(monkeypatch, capsys):
    monkeypatch.setattr(command, "torch_missing", lambda: "torch is not installed")
    assert forecast_eval_command("real") == 1
    shown = capsys.readouterr().out
    assert shown.count("not run (torch is not installed): real job") == 2
    monkeypatch.setattr(command, "torch_missing", lambda: None)
    assert forecast_eval_command("real", real=False) == 0  # asked for
    assert capsys.readouterr().out.count("not run (--no-real): real job") == 2
    monkeypatch.setattr(command, "_TRACE", Path("nowhere.parquet"))
    assert forecast_eval_command("trace") == 1
    assert "not run (there is no nowhere.parquet" in capsys.readouterr().out


@pytest.mark.parametrize("replicas", [1, 2, 8, 64])
def test_two_populations_in_the_tail_are_not_smoothed_into_one(replicas):
    rng = np.random.default_rng(4)

    def step(count):
        seldom = rng.random(count) < 0.02
        return np.where(seldom, rng.normal(1.5, 0.02, count), rng.normal(1.0, 0.02, count))

    found = slowest([(step(20_000), replicas)])
    brute = step(8000 * replicas).reshape(8000, replicas).max(axis=1)
    for at in (0.5, 0.9, 0.95, 0.99):
        assert float(found.quantile(np.array([at]))[0]) == pytest.approx(
            np.quantile(brute, at), rel=0.02
        )
