"""The rank of a fault whose own line names none: what was raised from it, who ended as Python does, whose GPU it is."""

from __future__ import annotations

JSON = (
    "gn-22: Traceback (most recent call last):\n"
    'gn-22:   File "/job/data.py", line 55, in __getitem__\n'
    "gn-22: json.decoder.JSONDecodeError: Unterminated string starting at: line 1 column 18230 (char 18229)\n"
    "gn-22: \n{joint}gn-22: \n"
    "gn-22: Traceback (most recent call last):\n"
    'gn-22:   File "/job/train.py", line 140, in <module>\n'
    "gn-22: RuntimeError: [rank 13] bad record /data/part-00911.jsonl:20417\n"
)
FROM = "gn-22: The above exception was the direct cause of the following exception:\n"
QUOTA = (
    "Traceback (most recent call last):\n"
    '  File "/job/train.py", line 266, in <module>\n'
    "OSError: [Errno 122] Disk quota exceeded\n"
    "E0502 04:00:55.280000 12 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 "
    "(pid: 300411) of binary: /usr/bin/python\n"
    "train.py FAILED\nRoot Cause (first observed failure):\n[0]:\n  time      : 2024-05-02_04:00:51\n"
    "  host      : r101u21n01\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 300411)\n"
    "[E ProcessGroupNCCL.cpp:475] [Rank 6] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=96213, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800431 milliseconds before timing out.\n"
)
DEEPSPEED = (
    "gn-2: [2024-02-08 14:20:08,340] [INFO] [launch.py:151:main] nnodes=2, num_local_procs=8, node_rank=1\n"
    "gn-2: Traceback (most recent call last):\n"
    'gn-2:   File "/job/train.py", line 9, in <module>\n'
    "gn-2: FileNotFoundError: [Errno 2] No such file or directory: '/data/index.bin'\n"
    "gn-2: [2024-02-08 15:03:46,811] [ERROR] [launch.py:322:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py', "
    "'--local_rank={last}'] exits with return code = 1\n"
)


def test_what_was_raised_from_an_exception_may_name_its_rank(diagnose):
    assert diagnose(JSON.format(joint=FROM)).first_fault.rank == 13
    assert diagnose(JSON.format(joint="gn-22: epoch 3 begins\n")).first_fault.rank is None


def test_of_the_workers_the_one_that_ended_as_python_does_raised(diagnose):
    found = diagnose(QUOTA).first_fault
    assert (found.rank, found.node) == (0, "r101u21n01")


def test_the_command_that_deepspeed_prints_is_that_of_the_last_process(diagnose):
    assert diagnose(DEEPSPEED.format(last=7)).first_fault.rank is None
    assert diagnose(DEEPSPEED.format(last=5)).first_fault.rank == 13


def test_a_start_line_ties_the_address_of_a_gpu_to_a_rank(diagnose):
    start = "".join(
        f"{r}: nid0051 rank {r} lrank {r - 16} ROCR_VISIBLE_DEVICES={r - 16} hip bus 0000:{bus}:00.0\n"
        for r, bus in ((16, "c1"), (17, "c6"), (18, "c9"), (19, "ce"))
    )
    fault = (
        "Jan 11 16:32:32 nid0051 kernel: amdgpu 0000:ce:00.0: amdgpu: uncorrectable hardware error"
        "(ERREVENT_ATHUB_INTERRUPT) detected!\n"
    )
    found = diagnose(start + fault).first_fault
    assert (found.rank, found.node) == (19, "nid0051")


def test_a_fault_of_the_week_before_is_not_this_jobs(diagnose):
    kernel = (
        "[Wed Mar 20 19:40:12 2024] NVRM: Xid (PCI:0000:3a:00): 31, pid=2211, name=python3, Ch 00000009, intr 00000000. MMU Fault\n"
        "[Fri Mar 29 05:52:38 2024] NVRM: Xid (PCI:0000:ba:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    )
    job = "[2024-03-29 05:52:51,640] torch.distributed.elastic.multiprocessing.api: [WARNING] Sending process 71 closing signal SIGTERM\n"
    assert diagnose({"train.log": job, "kern.log": kernel}).failure_type == "gpu_fallen_off_bus"


def test_the_map_of_open_mpi_places_the_ranks_below_each_host(diagnose):
    rows = "".join(
        f" Data for node: p10n2{n}\tNum slots: 2\tMax slots: 0\tNum procs: 2\n"
        + "".join(
            f" \tProcess OMPI jobid: [29973,1] App: 0 Process rank: {2 * n + i} Bound: N/A\n"
            for i in (0, 1)
        )
        for n in (0, 1)
    )
    fault = (
        "[1,3]<stderr>:torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    found = diagnose(rows + fault).first_fault
    assert (found.rank, found.node) == (3, "p10n21")
