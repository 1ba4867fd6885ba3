"""Which rank a line is of, where only a launcher's list tells: DeepSpeed, torchelastic with torchx, Ray."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rerail.domain.diagnosis import Diagnosis
from rerail.knowledge_base.placement.processes import Processes

Run = Callable[[str | dict[str, str]], Diagnosis]


def place(found: Diagnosis) -> tuple[int | None, str | None]:
    assert found.first_fault is not None
    return found.first_fault.rank, found.first_fault.node


OOM = "RuntimeError: CUDA out of memory. Tried to allocate 1.58 GiB (GPU {gpu}; 31.75 GiB total capacity; 1.20 GiB free)"
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    loss.backward()\n'


def test_the_gpu_of_a_deepspeed_host_is_a_rank_of_the_job(diagnose: Run) -> None:
    mapping = (
        "n7: [INFO] [launch.py:101:main] global_rank_mapping=defaultdict(<class 'list'>, "
        "{'n7': [0, 1, 2, 3], 'n8': [4, 5, 6, 7]})\n"
    )
    said = "".join(f"n8: {line}\n" for line in (TRACE + OOM.format(gpu=3)).split("\n"))
    found = diagnose(mapping + "n7: step=10, lr=0.1\n" + said)
    assert place(found) == (7, "n8")
    # Without the list the number of a GPU says nothing of the rank.
    assert place(diagnose("n7: step=10, lr=0.1\n" + said)) == (None, "n8")


def test_a_replica_of_torchx_lists_its_own_ranks_and_the_last_round_counts(diagnose: Run) -> None:
    rounds = "train/0   global_ranks=[4, 5]\ntrain/1   global_ranks=[0, 1]\n"
    last = "train/0   global_ranks=[0, 1]\ntrain/1   global_ranks=[2, 3]\n"
    said = "".join(f"train/1 [1]:{line}\n" for line in (TRACE + OOM.format(gpu=1)).split("\n"))
    assert place(diagnose(rounds + last + "train/0 [0]:step 1 loss 2.1\n" + said))[0] == 3


@pytest.mark.parametrize("front", ["[pod/train-worker-{}/pytorch] ", "train-worker-{} pytorch "])
def test_an_agent_in_a_pod_lists_the_ranks_of_its_workers(diagnose: Run, front: str) -> None:
    listed = "".join(
        front.format(pod) + f"  global_ranks={ranks}\n" for pod, ranks in ((0, [0, 1]), (1, [2, 3]))
    )
    said = "".join(
        front.format(1) + f"[default1]:{line}\n" for line in (TRACE + "KeyError: 'x'").split("\n")
    )
    assert place(diagnose(listed + said)) == (3, "train-worker-1")
    assert place(diagnose(said.replace("default1", "default0")))[0] != 3


def test_a_traceback_that_ray_s_driver_prints_is_of_the_remote_task(diagnose: Run) -> None:
    workers = (
        "(TorchTrainer pid=9) - (node_id=3b10aa, ip=10.1.0.5, pid=311) world_rank=0, local_rank=0, node_rank=0\n"
        "(TorchTrainer pid=9) - (node_id=77e1c4, ip=10.1.0.7, pid=311) world_rank=4, local_rank=0, node_rank=1\n"
        "(RayTrainWorker pid=311, ip=10.1.0.5) step 3 loss 0.7\n"
    )
    raised = (
        'Traceback (most recent call last):\n  File "worker.py", line 937, in get_objects\n    raise value\n'
        "ray.exceptions.RayTaskError(OutOfMemoryError): ray::_RayTrainWorker__execute.get_next() (pid=311, {ip}actor_id=b2)\n"
        '  File "/w/train.py", line 2, in f\n    loss.backward()\n' + OOM.format(gpu=0) + "\n"
    )
    found = diagnose(workers + raised.format(ip="ip=10.1.0.7, "))
    assert place(found) == (4, "10.1.0.7")
    # The id alone is that of two processes.
    assert place(diagnose(workers + raised.format(ip=""))) == (None, None)


@pytest.mark.parametrize(
    "between",
    [
        'Traceback (most recent call last):\n  File "driver.py", line 14, in main\n',
        "\nDuring handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "driver.py", line 14, in main\n',
        "",
    ],
)
def test_what_the_driver_raises_behind_a_remote_traceback_is_its_own(
    diagnose: Run, between: str
) -> None:
    remote = (
        'Traceback (most recent call last):\n  File "driver.py", line 10, in main\n    ray.get(ref)\n'
        "ray.exceptions.RayTaskError(ValueError): ray::Worker.step() (pid=311, ip=10.1.0.7, actor_id=b2)\n"
        '  File "worker.py", line 33, in step\n    raise ValueError("cache miss")\nValueError: cache miss\n'
    )
    assert place(diagnose(remote + between + OOM.format(gpu=0) + "\n")) == (None, None)


def test_ray_puts_the_task_before_each_traceback_of_a_remote_chain(diagnose: Run) -> None:
    chain = (
        "ray.exceptions.RayTaskError(OutOfMemoryError): ray::Worker.step() (pid=311, ip=10.1.0.7, actor_id=b2)\n"
        '  File "worker.py", line 33, in step\n    cache[key]\nKeyError: 7\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
        "ray::Worker.step() (pid=311, ip=10.1.0.7, actor_id=b2)\n"
        '  File "worker.py", line 35, in step\n    x.cuda()\n' + OOM.format(gpu=0) + "\n"
    )
    assert place(diagnose(chain)) == (None, "10.1.0.7")


def test_two_addresses_are_two_hosts() -> None:
    known = Processes()
    known.learn(311, rank=0, node="10.1.0.5")
    known.learn(311, rank=4, node="10.1.0.7")
    found = known.get(311, "10.1.0.7")
    assert found is not None
    assert found.rank == 4


def test_a_gpu_names_a_rank_only_where_it_can_be_its_own(diagnose: Run) -> None:
    log = (
        "n01: [INFO] [launch.py:99:main] global_rank_mapping=defaultdict(<class 'list'>, "
        "{{'n01': [0, 1, 2, 3], 'n02': [4, 5, 6, 7]}})\n"
        "n02: Traceback (most recent call last):\n"
        'n02:   File "/w/train.py", line 9, in <module>\n'
        "n02: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {gpu} has a total capacity of "
        "79.15 GiB of which 1.00 GiB is free. Process 4471 has 70.1 GiB memory in use.{more}\n"
    )
    assert diagnose(log.format(gpu=2, more="")).suspects.ranks == [6]
    # The only GPU that a process sees is its number 0, and others leave memory there by mistake.
    assert diagnose(log.format(gpu=0, more="")).suspects.ranks == []
    two = " Process 4472 has 8.1 GiB memory in use."
    assert diagnose(log.format(gpu=2, more=two)).suspects.ranks == []


PORT = "[{}] transport/net_ib.cc:136 NCCL WARN NET/IB : mlx5_7:1 Got async event : port error\n"
LOST = "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."


@pytest.mark.parametrize(("device", "rank"), [(5, 53), (4, None), (0, None)])
def test_the_only_rank_heard_on_a_host_has_the_device_that_nccl_names_there(
    device: int, rank: int | None, diagnose: Run
) -> None:
    said = {
        0: "step=10820 loss=2.0911\n",
        6: f"pre-worker-6:211:1904 {PORT.format(device)}",
        4: f"[rank37]: {LOST}\n",
    }
    log = "".join(f"[pod/pre-worker-{pod}/trainer] {text}" for pod, text in said.items())
    log += f"[pod/pre-worker-6/trainer] [rank53]: {LOST}\n"
    assert place(diagnose(log)) == (rank, "pre-worker-6")
