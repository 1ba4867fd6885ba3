"""A fault is felt, told again and gone on with by those who can have: on its host, in its group, of its kind."""

from __future__ import annotations

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Diagnosis

WATCHDOG = (
    "[{host}] [rank{rank}]:[E814 21:57:0{rank}.201887 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=29921, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600013 milliseconds "
    "before timing out.\n"
)
SEAT = (
    "[{host}] 2025-08-14 20:11:0{rank} | INFO | rank={rank} local_rank={local}{on} cuda:{local}\n"
)
QUOTA = "9: OSError: [Errno 122] Disk quota exceeded: '/scratch/p310/ckpt/step2000/__9_1.distcp'\n"
TRACE = '{label}Traceback (most recent call last):\n{label}  File "/opt/train.py", line 77, in train_loop\n{label}    freq[tok] += 1\n'
INDEX = "IndexError: index 50257 is out of bounds for axis 0 with size 50257\n"


def diagnosis(**files: str) -> Diagnosis:
    return diagnose_texts(files).diagnosis


def test_who_raises_the_very_same_felt_the_fault_of_the_file_system() -> None:
    job = (
        "0: [NeMo I 2025-02-02 22:41:11 nemo_logging:381] Global Checkpoint Save : Rank: 0 : Iteration: 2000 : Start time: 1738536071.002s\n"
        + TRACE.format(label="9: ")
        + QUOTA
        + "0: megatron.core.dist_checkpointing.core.CheckpointingException: Worker failure: ['rank 9']\n"
        "srun: error: jwb0902: task 9: Exited with exit code 1\nsrun: error: jwb0901: tasks 0-7: Terminated\n"
    )
    kernel = (
        "[22:41:29] LustreError: 11-0: scratch-OST0012-osc-ffff9d61c3910800: operation ost_write to node 10.1.1.5@o2ib "
        "failed: rc = -122\n"
    )
    found = diagnosis(**{"slurm.out": job, "kernel.log": kernel})
    assert found.failure_type == "disk_full_or_quota"
    assert (found.suspects.ranks, found.suspects.nodes) == ([9], ["jwb0902"])


def test_of_exits_alike_that_one_line_lists_the_one_told_by_itself_stands_out_in_nothing() -> None:
    text = (
        TRACE.format(label="")
        + "RuntimeError: NCCL error in: /pytorch/torch/lib/c10d/../c10d/NCCLUtils.hpp:82, invalid argument, NCCL version 2.4.8\n"
        "srun: error: gn-1-1: tasks 8-13,15: Exited with exit code 1\nsrun: error: gn-1-1: task 14: Exited with exit code 1\n"
    )
    assert diagnosis(a=text).suspects.ranks == []
    alone = text.replace("tasks 8-13,15: Exited with exit code 1", "tasks 8-13,15: Terminated")
    assert diagnosis(a=alone).suspects.ranks == [14]
    # What stands above the list, or on another host, is none of it.
    rows = text.splitlines(keepends=True)
    assert diagnosis(a="".join([*rows[:-2], rows[-1], rows[-2]])).suspects.ranks == [14]
    assert diagnosis(a=text.replace("gn-1-1: tasks", "gn-1-2: tasks")).suspects.ranks == [14]


def test_an_exception_is_known_by_its_last_line_where_a_driver_repeats_it_whole() -> None:
    seats = "".join(
        f"(TorchTrainer pid=8120) - (node_id=a{rank // 2}, ip=10.164.43.24{3 * (rank // 2)}, pid=830{rank}) "
        f"world_rank={rank}, local_rank={rank % 2}, node_rank={rank // 2}\n"
        for rank in range(4)
    )
    own = "(RayTrainWorker pid=8303, ip=10.164.43.243) [rank3]: "
    driver = "ray.exceptions.RayTaskError(IndexError): ray::_Inner.train() (pid=8120, ip=10.164.43.240, repr=TorchTrainer)\n"
    finished = (
        "Training finished iteration 3 at 2025-03-06 01:10:14. Total running time: 12min 2s\n"
    )
    told = (
        'Traceback (most recent call last):\n  File "/env/ray/_private/worker.py", line 863, in get_objects\n'
        "    raise value.as_instanceof_cause()\n"
        + driver
        + '  File "/opt/train.py", line 77, in train_loop\n    freq[tok] += 1\n'
    )
    found = diagnosis(a=seats + finished + own + INDEX + told + INDEX)
    assert (found.suspects.ranks, found.first_fault and found.first_fault.node) == (
        [3],
        "10.164.43.243",
    )


def test_no_host_is_lost_by_a_time_limit() -> None:
    text = (
        TRACE.format(label="")
        + "RuntimeError: CUDA error: invalid device ordinal\nsrun: error: ag-03: tasks 1-7: Exited with exit code 1\n"
        "slurmstepd: error: *** STEP 1180342.0 ON ag-03 CANCELLED AT 2024-06-03T11:43:02 DUE TO TIME LIMIT ***\n"
    )
    found = diagnosis(a=text)
    assert found.failure_type == "dist_env_misconfig"
    assert not any("was lost" in one.because for one in found.ruled_out)


def test_what_another_host_was_busy_with_is_not_what_the_missing_rank_did() -> None:
    hosts = {rank: f"tk-0{3 + rank // 4}" for rank in range(8)}
    busy = "[tk-03] 2025-08-14 21:46:02 | INFO | running validation, 4112 samples\n"
    waited = "".join(WATCHDOG.format(host=hosts[r], rank=r) for r in hosts if r != 6)

    def seats(on: str) -> str:
        return "".join(
            SEAT.format(host=h, rank=r, local=r % 4, on=on and f"{on}{h}") for r, h in hosts.items()
        )

    found = diagnosis(a=seats(" host=") + busy + waited)
    assert (found.suspects.ranks, found.suspects.nodes) == ([6], ["tk-04"])
    assert found.failure_type == "nccl_timeout_unexplained"
    # Where nothing tells the host of the missing rank, that of the printing one is not its host.
    found = diagnosis(a=seats("") + busy + waited)
    assert (found.suspects.ranks, found.suspects.nodes) == ([6], ["tk-04"])  # by their labels
    found = diagnosis(a=busy + waited)
    assert (found.suspects.ranks, found.suspects.nodes) == ([6], ["tk-04"])  # by its block
    dealt = "".join(WATCHDOG.format(host=f"tk-0{3 + r % 2}", rank=r) for r in hosts if r != 6)
    found = diagnosis(a=busy + dealt)
    assert (found.suspects.ranks, found.suspects.nodes) == ([6], [])


def test_hccl_counts_a_rank_in_its_group() -> None:
    text = (
        "[rank{own}]: [ERROR] 2025-10-12-14:50:34 (PID:2969, Device:0, RankID:{own}) ERR00100 PTA call acl api failed.\n"
        "[rank{own}]: EI0002: The wait execution of the Notify register times out. Reason: The Notify register has not received the "
        "Notify record from remote rank: [24]. group information: [group:[group_name_1654], rankSize[32], rankId[25 24]]\n"
        "[rank{own}]: RuntimeError: The Inner error is reported as above. The process exits for this inner error, and the "
        "current working operator name is HcclAllreduce.\n"
    )
    assert diagnosis(a=text.format(own=7)).suspects.ranks == [24]
    found = diagnosis(a=text.format(own=101))
    assert found.suspects.ranks == []


def test_horovod_of_old_names_the_missing_ranks_in_brackets() -> None:
    text = (
        "[1,0]<stderr>:[2019-05-02 09:12:31.858021: W horovod/common/operations.cc:588] One or more tensors were submitted to be "
        "reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"
        "[1,0]<stderr>:Stalled ops:HorovodBroadcast_dense_1_bias_0 [missing ranks: 1]\n^Cmpirun: killing job...\n"
    )
    assert diagnosis(a=text).suspects.ranks == [1]
