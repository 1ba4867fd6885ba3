"""A host goes by the name that its lines write, and one that lines dispute is not named anywhere."""

from rerail.assistant.pipeline import diagnose_texts

INIT = (
    "{host}:2254:3254 [{gpu}] NCCL INFO Channel 00/0 : {rank}[{gpu}] -> 0[0] via P2P/CUMEM/read\n"
)
OOM = (
    "[rank9]: Traceback (most recent call last):\n"
    '[rank9]:   File "/w/train.py", line 12, in <module>\n'
    "[rank9]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"
)


def test_a_file_that_leaves_zeros_out_is_of_the_host_that_its_lines_name():
    files = {
        "node16.log": INIT.format(host="node016", gpu=0, rank=0),
        "node17.log": INIT.format(host="node017", gpu=1, rank=9) + OOM,
    }
    diagnosis = diagnose_texts(files).diagnosis
    assert diagnosis.first_fault.node == "node017"
    assert diagnosis.first_fault.rank == 9


def test_a_rank_that_the_log_puts_on_two_hosts_has_none_in_the_headline_either():
    line = "2026-03-01 02:00:00 [rank{rank}] rank={rank} host=gpu-{host:02d} pid={pid} started\n"
    told = [(8, 1, 810), (9, 1, 811), (9, 2, 911), (10, 2, 912)]
    text = "".join(line.format(rank=r, host=h, pid=p) for r, h, p in told) + OOM
    diagnosis = diagnose_texts({"train.log": text}).diagnosis
    assert diagnosis.first_fault.rank == 9
    assert diagnosis.first_fault.node is None
    assert "gpu-0" not in diagnosis.headline


def test_a_host_that_a_heading_names_without_its_domain_goes_by_the_name_that_it_gives_itself():
    text = (
        "$ parallel-ssh -i -H 'gn02 gn03' ./run.sh\n"
        "[1] 06:53:38 [FAILURE] gn03 Exited with error code 1\n"
        "ModuleNotFoundError: No module named 'apex'\n"
        "train.py FAILED\n"
        "Root Cause (first observed failure):\n"
        "[0]:\n"
        "  time      : 2026-06-03_06:53:35\n"
        "  host      : gn03.cluster\n"
        "  rank      : 8 (local_rank: 0)\n"
        "  exitcode  : 1 (pid: 19400)\n"
        "[2] 06:53:40 [FAILURE] gn02 Exited with error code 1\n"
    )
    assert diagnose_texts({"a.log": text}).diagnosis.first_fault.node == "gn03.cluster"
