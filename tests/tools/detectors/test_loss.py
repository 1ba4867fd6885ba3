import numpy as np

from rerail.tools.detectors.bocd import Bocd, find_changes
from rerail.tools.detectors.events import EventKind
from rerail.tools.detectors.loss import (
    find_fall_to_zero,
    find_frozen,
    find_grad_norm_spikes,
    find_loss_faults,
)
from rerail.tools.detectors.loss_scale import find_scale_collapse


def curve(n, seed=0, sigma=0.01):
    rng = np.random.default_rng(seed)
    return (2 + 8 * (1 + np.arange(n) / 50) ** -0.5) * np.exp(rng.normal(0, sigma, n))


def kinds(values, **more):
    return [e.kind for e in find_loss_faults(np.arange(len(values)), values, **more)]


def test_healthy_curves_are_quiet():
    assert all(kinds(curve(5000, seed)) == [] for seed in range(10))


def noisy(seed, n=1000, sigma=0.3):
    return 0.5 * np.exp(sigma * 0.7 * np.random.default_rng(seed).standard_t(3, n))


def test_a_flat_loss_that_is_noisy_does_not_diverge():
    """A few low rows in front of the usual ones are no rise."""
    found = [kinds(noisy(seed, n)) for seed in range(20) for n in (150, 1000)]
    assert not any(EventKind.LOSS_DIVERGENCE in one for one in found)


def test_a_noisy_loss_that_leaves_its_noise_diverges():
    for seed in range(10):
        values = noisy(seed)
        values[500:] *= 8
        assert kinds(values)[-1] is EventKind.LOSS_DIVERGENCE


def test_a_loss_that_falls_to_exactly_zero_and_stays_there_diverges():
    values = curve(300)
    values[200:] = 0.0
    (event,) = find_fall_to_zero(np.arange(300), values)
    assert (event.kind, event.step, event.after) == (EventKind.LOSS_DIVERGENCE, 200, 0.0)


def test_a_loss_that_goes_down_to_zero_or_was_zero_before_does_not():
    down = np.round(2.0 * 0.95 ** np.arange(400), 4)
    assert down[-50:].max() == 0.0
    hinge = curve(300)
    hinge[::20] = 0.0
    hinge[250:] = 0.0
    short = curve(300)
    short[290:] = 0.0
    back = curve(300)
    back[100:200] = 0.0
    for values in (down, hinge, short, back, np.zeros(300)):
        assert find_fall_to_zero(np.arange(len(values)), values) == []


def test_spike_and_recovery():
    values = curve(3000)
    values[1500:1540] *= 1 + 0.5 * np.exp(-np.arange(40) / 15)
    assert kinds(values) == [EventKind.LOSS_SPIKE, EventKind.LOSS_RECOVERY]
    spike = find_loss_faults(np.arange(3000), values)[0]
    assert abs(spike.step - 1500) <= 1
    assert spike.detected_at_step <= 1503


def test_slow_divergence_is_not_followed():
    values = curve(4000)
    values[2000:] *= 1 + 0.01 * np.expm1(np.minimum(np.arange(2000) / 150, 5))
    assert kinds(values) == [EventKind.LOSS_DIVERGENCE]


def test_learning_rate_drop_and_restart_are_quiet():
    values = curve(3000)
    values[1000:] *= 0.95
    again = np.concatenate([values[:2000], curve(3000, 1)[1500:2500]])
    assert kinds(again, restarts=(2000,)) == []


def test_negative_losses_are_taken():
    values = -5 + np.random.default_rng(0).normal(0, 0.02, 500)
    assert kinds(values) == []


def test_frozen_scores_but_not_round_ones():
    steps = np.arange(4)
    assert (
        find_frozen(steps, np.full(4, 646.0821975894278), least=3)[0].kind is EventKind.LOSS_FROZEN
    )
    assert find_frozen(steps, np.zeros(4), least=3) == []
    assert find_frozen(steps, np.full(4, 0.5), least=3) == []


def test_scale_collapse_but_not_start_up():
    def found(scales):
        return find_scale_collapse(np.arange(len(scales)), np.array(scales, dtype=float))

    assert found([64, 32, 16, 8, 4, 2, 1])[0].kind is EventKind.SCALE_COLLAPSE
    assert found([65536, 32768, 16384, 8192, 4096, 4096, 4096, 8192]) == []
    assert found([1.0] * 10) == []
    assert len(found([2.0**k for k in range(16, 0, -1)])) == 1


def test_gradient_norm_spike():
    norms = np.exp(np.random.default_rng(0).normal(0, 0.2, 300))
    assert find_grad_norm_spikes(np.arange(300), norms) == []
    norms[200] = 60
    assert [e.step for e in find_grad_norm_spikes(np.arange(300), norms)] == [200]


def test_run_length_posterior_rises_within_three_steps():  # E5
    rng = np.random.default_rng(0)
    values = rng.normal(1, 0.01, (5, 300))
    values[:, 200:] *= 1.2
    model = Bocd(values[:, :30])
    short = np.array([model.update(values[:, row]) for row in range(300)])
    assert (short[100:200] < 0.9).all()
    assert (short[200:203].max(axis=0) > 0.9).all()
    # P(r = 0) is the hazard whatever the data, which is why the sum of short runs is the test.
    assert np.allclose(np.exp(model.log_p[:, 0]), model.hazard)


def test_bocd_with_verification_finds_a_clean_jump():
    values = np.random.default_rng(0).normal(1, 0.01, (1, 400))
    values[:, 200:] *= 1.3
    (change,) = find_changes(values)[0]
    assert abs(change.at - 200) <= 3
