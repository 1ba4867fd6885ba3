"""Which batches a job that ended for its loss should leave out, read from its own step lines."""

import pytest

from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.watch.progress import BadData, bad_data

GUARD = (
    "[rank0]: RuntimeError: loss spike: 5.6457 is above 1.3 times the median of the last losses\n"
)


def lines(losses, every=1):
    return "".join(
        f"2026-03-01 10:{n // 60:02d}:{n % 60:02d} [rank0] INFO step {every * (n + 1)} loss {loss} step_time 1.00s\n"
        for n, loss in enumerate(losses)
    )


def falling(count):
    return [f"{5 - 2 * n / count + (0.08 if n % 3 else -0.08):.4f}" for n in range(count)]


@pytest.mark.parametrize(
    ("log", "wanted"),
    [
        # one high loss at the end, and three of them
        (lines([*falling(60), "5.6457"]), BadData(61, 61)),
        (lines([*falling(60), "5.6457", "5.1", "5.4"]), BadData(61, 61)),
        # the guard ended the job before the step was logged
        (lines(falling(60)), BadData(61, 61)),
        # every tenth step is logged: any batch since the last good one is in doubt
        (lines([*falling(60), "5.6457"], every=10), BadData(601, 610)),
        (lines(falling(60), every=10), BadData(601, 610)),
        (lines(falling(4)), None),
    ],
)
def test_a_loss_that_jumped_and_stayed_finite(job, log, wanted):
    outcome = diagnose_paths([job(log + GUARD)])
    assert outcome.diagnosis.failure_type == "loss_divergence"
    assert bad_data(outcome) == wanted
