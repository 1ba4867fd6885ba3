"""Words and numbers that look like a fault of a run and are none, and endings that are."""

import pytest

from rerail.domain.diagnosis import Outcome

STEPS = [f"step {n} loss {3 - n / 100:.3f} time 1.0{n % 3} s" for n in range(1, 31)]
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=4411, GPU has fallen off the bus."


@pytest.mark.parametrize(
    "line",
    [
        "rank 5 is slower than the median by 3 % (threshold 20 %)",
        "loaded checkpoint in 420.1 s",
        "checkpoint 500 corrupt: RuntimeError: PytorchStreamReader failed reading zip archive; falling back to 400",
    ],
)
def test_what_even_steps_and_the_sentence_itself_deny_is_no_failure(diagnose, line):
    assert diagnose("\n".join([line, *STEPS]) + "\n").outcome is Outcome.NO_FAILURE


@pytest.mark.parametrize(
    "line",
    [
        "eval: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "slurmstepd: error: *** STEP 88.0 STEPD TERMINATED ON gn-02 AT 2026-03-03T10:00:00 DUE TO JOB NOT ENDING WITH SIGNALS ***",
        "zsh: killed     python train.py",
    ],
)
def test_a_log_that_ends_with_an_error_is_not_called_good(diagnose, line):
    assert diagnose("\n".join([*STEPS, line]) + "\n").outcome is not Outcome.NO_FAILURE


def test_steps_that_have_more_to_do_are_not_slow_and_others_are(diagnose):
    slow = [f"step {n} loss 2.5 time 2.0{n % 3} s" for n in range(31, 61)]
    told = [f"{line} seq_len {4096 if at < 30 else 8192}" for at, line in enumerate(STEPS + slow)]
    announced = [*STEPS, "unfreezing backbone at step 31", *slow]
    assert diagnose("\n".join(told) + "\n").outcome is Outcome.NO_FAILURE
    assert diagnose("\n".join(announced) + "\n").outcome is Outcome.NO_FAILURE
    assert diagnose("\n".join(STEPS + slow) + "\n").failure_type == "fail_slow_unexplained"


def test_tests_that_passed_vouch_for_their_own_session_and_for_nothing_else(diagnose):
    begins, passed = f"{'=' * 20} test session starts {'=' * 20}", "===== 12 passed in 3.20s ====="
    assert diagnose(f"{begins}\n{XID}\nPASSED\n{passed}\n").outcome is Outcome.NO_FAILURE
    assert diagnose(f"{passed}\n{XID}\n").outcome is Outcome.FAILURE
    assert diagnose(f"{XID}\n{begins}\n{passed}\n").outcome is Outcome.FAILURE
    assert diagnose(f"{XID}\n{passed}\n").outcome is Outcome.FAILURE
    train = "\n".join([*STEPS, XID]) + "\n"
    both = {"train.log": train, "test.log": f"{begins}\n{passed}\n"}
    assert diagnose(both).outcome is Outcome.FAILURE


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: an illegal memory access was encountered; skipping final checkpoint",
        "FloatingPointError: Minimum loss scale reached (0.0001). Try lowering the learning rate, using gradient clipping.",
        "srun: error: gn-02: task 3: Segmentation fault (core dumped), continuing without it is impossible",
        "checkpoint 500 corrupt: RuntimeError: PytorchStreamReader failed reading zip archive; falling back to 400",
    ],
)
def test_the_last_words_of_a_log_were_not_handled(diagnose, line):
    assert diagnose("\n".join([*STEPS, line]) + "\n").outcome is Outcome.FAILURE


def test_an_announced_change_is_no_excuse_for_a_loss_that_stays_high(diagnose):
    high = [f"step {n} loss 9.{n % 7} time 1.0{n % 3} s" for n in range(31, 61)]
    text = "\n".join([*STEPS, "unfreezing backbone at step 31", *high]) + "\n"
    assert diagnose(text).failure_type == "loss_divergence"


def test_slowness_that_is_told_again_is_not_denied_by_steps_that_were_slow_from_the_start(diagnose):
    told = "straggler detected: rank 12 on gn-04 is 2.1x slower than the median"
    assert diagnose("\n".join([told, *STEPS, told]) + "\n").outcome is Outcome.FAILURE


def test_a_gradient_that_is_no_number_was_skipped_where_later_ones_are(diagnose):
    """A loss that is none, or gradients that never are numbers again, are the fault."""
    row = "Iter [{}/900] lr: 2e-05, time: 5.4, data_time: 0.02, loss: {}, grad_norm: {}\n"
    norms = ("nan", "41.2", "nan", "18.0", "nan", "15.4")
    rows = [row.format(50 * at + 50, f"{7 - at / 2}", norm) for at, norm in enumerate(norms)]
    assert diagnose("".join(rows)).outcome is Outcome.NO_FAILURE
    lost = [row.format(350 + 50 * at, "nan", "nan") for at in range(3)]
    found = diagnose("".join([*rows, *lost]))
    assert found.failure_type == "loss_nan"


def test_steps_that_wait_for_data_in_bursts_are_slow_where_that_takes_most_of_the_time(diagnose):
    row = "Epoch: [0][{:3d}/626]\tTime {:.3f} ({:.3f})\tData {:.3f} ({:.3f})\tLoss 7.08 (7.08)\n"
    steps = [(0, 81.4, 74.9), (10, 0.4, 0.0), (20, 67.6, 67.2), (30, 0.4, 0.0), (40, 71.2, 70.8)]
    found = diagnose("".join(row.format(step, t, 8.0, d, 7.4) for step, t, d in steps))
    assert found.failure_type == "slow_dataloading_storage"
    assert "[ 20/626]" in found.first_fault.text
    once = [(0, 81.4, 74.9), (10, 0.4, 0.0), (20, 67.6, 67.2), (30, 0.4, 0.0), (40, 0.4, 0.0)]
    found = diagnose("".join(row.format(step, t, 8.0, d, 7.4) for step, t, d in once))
    assert found.outcome is not Outcome.FAILURE


def test_a_timer_that_grows_as_the_steps_do_tells_why_a_few_are_slow(diagnose):
    row = "iteration {}/ 900 | elapsed time per iteration (ms): {} | lm loss: 2.1E+00 |\n"
    timers = "time (ms) | forward: {} | backward: {} | batch_input: {}\n"

    def log(*rows):
        shown = [row.format(100 * n, ms) + timers.format(*t) for n, (ms, *t) in enumerate(rows, 1)]
        return diagnose("".join(shown))

    fast = (10098.4, 2811.0, 6612.7, 11.9), (10100.9, 2813.5, 6615.0, 12.1)
    found = log(*fast, (17112.9, 2815.2, 6614.3, 7002.4), (18268.7, 2812.9, 6613.6, 8160.0))
    assert found.failure_type == "slow_dataloading_storage"
    assert "iteration 300/" in found.first_fault.text
    # Another timer grows as well: more work; or none by as much as the step.
    both = log(*fast, (17112.9, 5815.2, 9614.3, 1002.4), (18268.7, 5812.9, 9613.6, 1160.0))
    assert both.outcome is not Outcome.FAILURE
    little = log(*fast, (17112.9, 2815.2, 6614.3, 902.4), (18268.7, 2812.9, 6613.6, 960.0))
    assert little.outcome is not Outcome.FAILURE
