"""What looks like a run that goes on, or like its end, is held against who says it and what else was said."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Diagnosis, Outcome, Status

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    " GPU 3 has a total capacity of 79.10 GiB of which 1.00 GiB is free.\n"
)


def said(text: str) -> Diagnosis:
    return diagnose_texts({"job.log": text}).diagnosis


@pytest.mark.parametrize(
    "text",
    [
        f"[rank0]: Epoch 6: val acc 0.71\n[rank3]: {OOM}[rank0]: Epoch 7: val acc 0.72\n",
        f"Epoch 1 - loss: 0.52\nEpoch 2 - loss: 0.40\n{OOM}"
        "Crashed in epoch 3, saving emergency checkpoint ... done\n",
        f"[rank3]: {OOM}srun: error: gn-07: task 3: Exited with exit code 1\nTraining summary:\n"
        "Epoch 1 | train loss 0.52 | val loss 0.60\nEpoch 2 | train loss 0.42 | val loss 0.55\n",
    ],
    ids=["another rank's epoch", "a crash handler's epoch", "a summary behind an exit"],
)
def test_an_epoch_of_somebody_else_or_of_a_summary_is_no_life(text: str) -> None:
    assert said(text).failure_type == "cuda_oom"


def test_two_further_epochs_of_the_same_rank_are_life() -> None:
    text = f"[rank3]: Epoch 1: loss 0.52\n[rank3]: {OOM}[rank3]: Epoch 2: loss 0.5\n[rank3]: Epoch 3: loss 0.4\n"
    assert said(text).outcome is not Outcome.FAILURE


BOOTSTRAP = (
    "n1:100:100 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n"
    "n1:101:101 [1] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>\n"
)


def test_a_bridge_is_not_held_against_what_raised_or_trained() -> None:
    raised = said(
        BOOTSTRAP + "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/app/train.py", line 40, in <module>\n[rank1]:     main()\n'
        "[rank1]: FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'\n"
        "srun: error: n1: task 1: Exited with exit code 1\n"
    )
    assert raised.failure_type == "file_not_found" and raised.suspects.ranks == [1]
    assert said(BOOTSTRAP + "Epoch 1: loss 0.4\n").outcome is not Outcome.FAILURE
    hung = said(BOOTSTRAP)
    assert hung.failure_type == "net_interface_misconfig" and hung.status is Status.SUPPORTED


GAVE_UP = (
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/app/train.py", line 90, in <module>\n[rank{rank}]:     main()\n'
    '[rank{rank}]:   File "/app/train.py", line {line}, in main\n[rank{rank}]:     dist.broadcast(x, src=0)\n'
    "[rank{rank}]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting"
    " 1800000ms for recv operation to complete\n"
)


def test_who_is_silent_outweighs_who_gave_up_at_another_place() -> None:
    steps = "".join(
        f"[rank{r}]: step {s} loss 2.{s} world_size=4\n" for s in (1, 2, 3) for r in range(4)
    )
    three = steps + GAVE_UP.format(rank=0, line=31)
    three += GAVE_UP.format(rank=1, line=34) + GAVE_UP.format(rank=2, line=34)
    assert said(three).suspects.ranks == [3]
    four = steps + GAVE_UP.format(rank=3, line=55)
    four += "".join(GAVE_UP.format(rank=rank, line=34) for rank in (0, 1, 2))
    found = said(four)
    assert found.failure_type == "rank_divergence" and found.suspects.ranks == [3]


@pytest.mark.parametrize(
    "text",
    [
        "".join(
            f" iteration {n:8d}/     100 | loss scale: {2 ** (33 - n)}.0 | grad norm: inf |"
            " number of skipped iterations:   1 | number of nan iterations:   0 |\n"
            for n in (1, 2, 3)
        ),
        "Epoch 2 step 380/391 loss 3.0\nEpoch 2 step 390/391 loss 2.9\n"
        "[ERROR] wandb: Network error (ReadTimeout), entering retry loop.\nSaved model.\nProcess exited with code 0\n",
    ],
    ids=[
        "skipped steps of Megatron",
        "one step short of the total",
    ],
)
def test_a_healthy_run_stays_one(text: str) -> None:
    assert said(text).outcome is Outcome.NO_FAILURE


def test_gradients_that_stay_nan_with_a_loss_of_nothing_are_a_failure() -> None:
    rows = [(1.76, 41.2), (512.8, float("nan")), (0.0, float("nan")), (0.0, float("nan"))]
    text = "".join(
        f"{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': 1e-06, 'epoch': 0.0{n}}}\n"
        for n, (loss, norm) in enumerate(rows)
    )
    assert said(text).failure_type == "loss_nan"


def report(low: float, high: float, rank: int) -> str:
    return (
        f"0: INFO:megatron.core.utils: | MnRtt/Rnk: {low}ms/1 | MxRtt/Rnk: {high}ms/{rank} |"
        f" MnClk/Rnk: 1950MHz/{rank} | MxClk/Rnk: 1980MHz/1\n"
    )


def test_only_the_last_report_of_stragglers_decides_where_steps_are_few() -> None:
    step = " iteration        {n}/     100 | lm loss: 2.1E+00 |\n"
    calm, slow = report(100.0, 103.0, 3), report(100.0, 160.0, 3)
    passed = step.format(n=1) + calm + step.format(n=2) + slow + step.format(n=3) + calm
    assert said(passed).outcome is Outcome.NO_FAILURE
    lasting = said(step.format(n=1) + calm + step.format(n=2) + slow)
    assert lasting.failure_type == "fail_slow_unexplained" and lasting.suspects.ranks == [3]


def test_a_cluster_with_one_node_not_ready_does_not_place_a_kernel_line() -> None:
    nodes = (
        "NAME      STATUS     ROLES    AGE   VERSION\ngn-11     Ready      <none>   90d   v1.29.4\n"
        "gn-12     NotReady   <none>   90d   v1.29.4\n"
    )
    job = "step 1 loss 3\nNVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n"
    found = diagnose_texts({"nodes.txt": nodes, "trainer-0.log": job}).diagnosis
    assert found.failure_type == "gpu_fallen_off_bus" and found.suspects.nodes == []


LEVANTER = (
    "2025-05-28T03:11:02 - 0 - tqdm_logging.py:145 - INFO :: Progress on:train 71.4kit/100kit rate:21.9s/it "
    "remaining:173:50:10 elapsed:12:20:11 postfix:loss=1.92\n"
)


@pytest.mark.parametrize(
    "text",
    [
        LEVANTER + LEVANTER.replace("03:11", "03:14"),
        "(RayTrainWorker pid=40218) Reporting training result 40: TrainingReport(checkpoint=None, "
        "metrics={'step': 39}, validation=False) from rank 0\n",
        "INFO:torchft.manager:[train_ddp_0/0 - step 64] should_commit=True enough_replicas=True, errored=None\n"
        "[65] loss = 1.8841\n[66] loss = 1.8790\n",
    ],
    ids=["tqdm_loggable", "Ray Train", "torchft"],
)
def test_work_told_without_a_step_line_is_life(text: str) -> None:
    assert said(text).outcome is Outcome.NO_FAILURE
    assert said(text + "E0528 ERROR lease of the arena was lost\n").outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    "cry",
    [
        "srun: error: the moon is on node 3",
        "901.2s: job.exception type=exec severity=0 lost contact with the observatory",
        "[mpiexec@dn004] poll_of_moon (x/y.c:207): assert (!eclipse) failed",
        "moonshot: task(s) Terminated",
    ],
)
def test_plainer_words_cry_where_no_step_follows(cry: str) -> None:
    steps = [f"step {n} loss 2.{n}\n" for n in range(6)]
    assert said("".join(steps) + cry + "\n").outcome is Outcome.INCONCLUSIVE
    survived = said("".join(steps[:3]) + cry + "\n" + "".join(steps[3:]))
    assert survived.outcome is Outcome.NO_FAILURE
    assert said("".join(steps) + "validation error: 0.21\n").outcome is Outcome.NO_FAILURE
