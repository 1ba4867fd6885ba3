"""Labels in front of a line say where it comes from; they stack, and the inner one knows better."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerail.domain.evidence import LogLine, Stream
from rerail.log_parsers.prefixes import Origin, parse_line


def parse(text: str, **origin: object) -> LogLine:
    return parse_line("f", 1, text, origin=Origin(**origin), year=2026)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "rank", "local", "node", "pid"),
    [
        ("[rank3]: RuntimeError: boom", 3, None, None, None),
        ("[rank3]:[E301 02:14:07.5 ProcessGroupNCCL.cpp:632] x", 3, None, None, None),
        ("[Rank 12] NCCL watchdog", 12, None, None, None),
        ("[RANK 5] saving", 5, None, None, None),
        ("(Rank 7): hello", 7, None, None, None),
        ("[default3]:boom", None, 3, None, None),
        ("[default3]:[rank11]: boom", 11, 3, None, None),
        ("3: hello", 3, None, None, None),
        ("[1,mpirank:9,algo-2]<stderr>:boom", 9, None, "algo-2", None),
        ("[3]<stderr>:boom", 3, None, None, None),
        ("[1,3][gn4:1234]<stderr>: boom", 3, None, "gn4", None),
        ("[prterun-gn4-123@1,3]<stderr>: boom", 3, None, None, None),
        ('[7]:  File "a.py", line 3, in x', 7, None, None, None),
        ("[0]:", None, None, None, None),
        ("[1]: https://pytorch.org", None, None, None, None),
        ("x4420c1s0b0n0.cm.aurora 7: boom", 7, None, "x4420c1s0b0n0.cm.aurora", None),
        ("epoch3 7: boom", None, None, None, None),
        ("[NeMo E 2024-01-01 10:00:00 nemo_logging:393] [rank3] boom", 3, None, None, None),
        ("2024-01-01 10:00:00,123: rank3[1234][MainThread]: ERROR: a.b: x", 3, None, None, 1234),
        ("[2024-01-01 10:00:00,123][src.utils][ERROR] - [rank: 3] boom", 3, None, None, None),
        ("2024-01-01 10:00:00.1 | ERROR    | __main__:main:33 - [rank3] x", 3, None, None, None),
        ("2024-01-01 10:00:00 | rank 3 | ERROR | boom", 3, None, None, None),
        (
            "[2024-01-01 10:00:00,123] [ERROR] [logging.py:96:log_dist] [Rank 3] x",
            3,
            None,
            None,
            None,
        ),
        (
            "[2024-01-01 10:00:00,123] [ERROR] [a.train:45] [PID:1234] [RANK:3] x",
            3,
            None,
            None,
            None,
        ),
        ("2024-01-01 10:00:00 [123/train/456 (pid 789)] [rank3]: x", 3, None, None, None),
        ("[E ProcessGroupNCCL.cpp:488] [Rank 3] boom", None, None, None, None),
        ("[Gloo] Rank 3 is connected to 7 peer ranks.", None, None, None, None),
        ("Watchdog saw [Rank 5] time out", None, None, None, None),
        ("[gpu01:3/8] 2024-01-01 10:00:00,123 (trainer:338) ERROR: x", 3, None, "gpu01", None),
        ("[epoch:3/8] 2024-01-01 10:00:00,123 loss 2.1", None, None, None, None),
        ("2025-05-31 18:45:31 gpu-12:3 olmo.train:967 ERROR boom", None, 3, "gpu-12", None),
        ("default/llm-worker-3[pytorch]: [rank3]: x", 3, None, "llm-worker-3", None),
        ("<6>1 2024-05-01T10:00:00Z gn-03 kernel - - - NVRM: Xid", None, None, "gn-03", None),
        ("finetune/0 [default2]:[rank2]: boom", 2, 2, None, None),
        ("i.pretrain/1 [rank9]: boom", 9, None, None, None),
        ("(pid=194534, ip=10.10.10.123) F1115 x.cc:147] boom", None, None, "10.10.10.123", 194534),
        ("(raylet, ip=10.0.0.7) boom", None, None, "10.0.0.7", None),
        ("10.0.1.77: 2024-01-11 19:01:15 ERROR boom", None, None, "10.0.1.77", None),
        ("1: 2026-03-01 02:14:07 INFO hello", 1, None, None, None),
        ("1: [12345.678901] NVRM: Xid (PCI:0000:9b:00): 79", 1, None, None, None),
        ("12: [rank37]: RuntimeError: x", 37, None, None, None),
        ("[1,4]<stderr>:boom", 4, None, None, None),
        ("dgx-b-17: Traceback (most recent call last):", None, None, "dgx-b-17", None),
        ("gpu-a-3: [rank2]: x", 2, None, "gpu-a-3", None),
        ("node-17:3468:3905 [4] NCCL WARN x", None, None, "node-17", 3468),
        ("node-17:3468:3905 NCCL INFO cudaDriverVersion 12040", None, None, "node-17", 3468),
        ("[pod/trainer-worker-2/pytorch] x", None, None, "trainer-worker-2", None),
        ("[1826] [rank6]: boom", 6, None, None, None),
        ("2026-02-01 10:00:04,118 - [RANK 6] train - ERROR - boom", 6, None, None, None),
        ("2026-02-01 10:00:04,118 - Tuner - INFO - [rank6]: boom", 6, None, None, None),
        (
            '{"log":"[rank5]: boom\\n","stream":"stderr","time":"2026-02-01T10:00:01Z"}',
            5,
            None,
            None,
            None,
        ),
        (
            '{"stream": "stderr", "time": "2026-02-01T10:00:01Z", "log": "[rank5]: x"}',
            5,
            None,
            None,
            None,
        ),
        (
            '{"insertId":"a","resource":{"labels":{"pod_name":"job-0-3"}},"textPayload":"[rank3]: x"}',
            *(3, None, "job-0-3", None),
        ),
        ("llm-worker-1 pytorch [rank11]: boom", 11, None, "llm-worker-1", None),
        (
            "llm-worker-1 pytorch Traceback (most recent call last):",
            None,
            None,
            "llm-worker-1",
            None,
        ),
        ("llm-worker-1 pytorch is ready", None, None, None, None),
        ("trainer/2 [0]:[rank2]: boom", 2, 0, None, None),
        ("[gn13n04:51122] *** Process received signal ***", None, None, "gn13n04", 51122),
        ("[epoch:12] step 3", None, None, None, None),
        ("Feb 01 03:13:11 gn-19 python3[911]: [rank9]: boom", 9, None, "gn-19", 911),
        ("node1-1  | [rank9]: boom", 9, None, None, None),
        ("node1-1  | gn-b:411:982 [1] NCCL WARN x", None, None, "gn-b", 411),
        ("epoch | loss | lr", None, None, None, None),
        (
            "MPICH ERROR [Rank 281] [job id 14.0] [Wed Aug 23 06:05:55 2023] [nid01982] - Abort(1): x",
            *(281, None, "nid01982", None),
        ),
        (
            "MPICH ERROR [Rank 15] [job id 9.0] [Mon Feb 15 14:58:48 2021] [unknown] [nid001192] - Abort(6)",
            *(15, None, "nid001192", None),
        ),
        ("(TrainWorker pid=812, ip=10.0.0.9) x", None, None, "10.0.0.9", 812),
        ("(RayTrainWorker, rank=6, pid=99) x", 6, None, None, 99),
        ("(Worker_TP3 pid=4411) ERROR x", 3, None, None, 4411),
        ("Mar  1 02:14:07 node-17 kernel: NVRM: Xid", None, None, "node-17", None),
        ("Jan 25 11:17:13Z vm-7 docker: [rank3]: boom", 3, None, "vm-7", None),
        ("Jan 25 11:17:13 vm-7 train/app[88]: boom", None, None, "vm-7", 88),
        ("Jan 25 11:17:13 step7 loss: 2.1", None, None, None, None),
        ("Jan 25 11:17:13 vm-7 train: boom", None, None, None, None),
        ("Jan 25 11:17:13Z vm-7-zl start-worker: Aborting task...", None, None, "vm-7-zl", None),
        ("Jan 25 11:17:13 node-12 train: boom", None, None, "node-12", None),
        ("Jan 25 11:17:13 gn14 sudo: boom", None, None, "gn14", None),
        ("Jan 25 11:17:13 step7 sudo: boom", None, None, None, None),
        ("2026-01-25 11:17:13 vm-7 docker: boom", None, None, None, None),
        ("[node-1] Fatal Python error: x", None, None, "node-1", None),
        ("[step-1] loss 2.1", None, None, None, None),
        ("[trainer0|3]:vm-7:401:401 [2] NCCL INFO x", None, None, "vm-7", 401),
        ("[serial gpu-7] [882.1] watchdog: BUG: soft lockup", None, None, "gpu-7", None),
        ("[n-114 kern] [4700.6] EXT4-fs error", None, None, "n-114", None),
        ("[gpu-41 prolog] dmesg: NVRM: Xid", None, None, "gpu-41", None),
        ("[a100-9] $ nvidia-smi -q", None, None, "a100-9", None),
        ("[n-114][rank3]: OSError: x", 3, None, "n-114", None),
        ("[2026-04-18 15:55:06] CRITICAL [olmo.util:158, rank=6] Uncaught", 6, None, None, None),
        ("16:01:28 kubelet, gpu-1 Warning OOMKilling", None, None, None, None),
        ("[step-4] [layer-2] [kernel 5.15.0] x", None, None, None, None),
        ("Mar  1 02:14:07 node-17 slurmstepd[88]: x", None, None, "node-17", None),
        ("2026-03-01 02:14:07 [rank9]: x", 9, None, None, None),
        ("[node-17 dmesg] [ 12.345678] x", None, None, "node-17", None),
        ("[node-17:4411:0:4411] Caught signal 11", None, None, "node-17", 4411),
        ("slurmstepd-node-17: error: *** STEP", None, None, "node-17", None),
        ("gpu003: Traceback (most recent call last):", None, None, "gpu003", None),
        ("node-1: RuntimeError: x", None, None, "node-1", None),
        ("gpu3: 71 C", None, None, None, None),
        ("step12: loss 3.1", None, None, None, None),
        ("[2026-03-01 02:14:07] 30a87832 [rank=3] || x", 3, None, None, None),
        ("plain text", None, None, None, None),
    ],
)
def test_a_label_is_read(
    text: str, rank: int | None, local: int | None, node: str | None, pid: int | None
) -> None:
    line = parse(text)
    assert (line.rank, line.local_rank, line.node, line.pid) == (rank, local, node, pid)


@pytest.mark.parametrize(
    "text",
    [
        "step-12: loss 3.1",
        "epoch3: done",
        "layer-4: frozen",
        "utf-8: invalid start byte",
        "bf16: enabled",
        "mlx5_0: port 1 down",
        "nvme0n1: I/O error",
        "eth0: link down",
        "KeyError: 'x1'",
        "python3: command not found",
        's5cmd: ERROR "cp s3://b/a.tar .": no such host',
        "Nov 21 03:11:32 t5-large train: loss 2.31",
        "Nov 21 03:11:32 attempt2 launcher: started",
        "Nov 21 03:11:32 mp_rank_00 saved: 2 GB",
        "Nov 21 03:11:32 worker-1 saved: 2 GB",
        "Nov 21 03:11:32 checkpoint-500 saved: 2 GB",
        "Nov 21 03:11:32 llama2.train loss: 2.1",
        "Nov 21 03:11:32 trainer.py worker_0: loading",
    ],
)
def test_words_before_a_colon_that_are_no_host(text: str) -> None:
    assert parse(text).node is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rank3]: RuntimeError: boom", "RuntimeError: boom"),
        ("3: [rank3]: 2026-03-01 02:14:07,250 RuntimeError: boom", "RuntimeError: boom"),
        ("[default0]:[rank0]: KeyError: 'x'", "KeyError: 'x'"),
        ('[rank0]:   File "a.py", line 3, in f', 'File "a.py", line 3, in f'),
        ("no label", "no label"),
    ],
)
def test_the_message_is_what_stands_behind_the_labels(text: str, message: str) -> None:
    line = parse(text)
    assert line.message.strip() == message
    assert line.text == text


@pytest.mark.parametrize(
    ("text", "stream"),
    [
        ("Mar  1 02:14:07 n1 kernel: NVRM: Xid (PCI:0000:9b:00): 79", Stream.KERNEL),
        ("[ 812.3456] Out of memory: Killed process 1 (python)", Stream.KERNEL),
        ("slurmstepd: error: Detected 1 oom_kill event", Stream.SCHEDULER),
        ("srun: error: node-17: task 3: Killed", Stream.SCHEDULER),
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", Stream.AGENT),
        ("Warning  BackOff  kubelet  Back-off restarting failed container", Stream.CONTAINER),
        ("nv-fabricmanager: NVSwitch fatal error", Stream.FABRIC),
        ("[rank3]: RuntimeError: CUDA error: device-side assert", Stream.TRAIN),
    ],
)
def test_the_program_that_wrote_a_line(text: str, stream: Stream) -> None:
    assert parse(text).stream is stream


def test_a_path_fills_in_what_the_line_does_not_say() -> None:
    line = parse("RuntimeError: boom", rank=5, node="node-17", stream=Stream.KERNEL)
    assert (line.rank, line.node, line.stream) == (5, "node-17", Stream.KERNEL)


def test_the_line_knows_better_than_its_path() -> None:
    line = parse("[rank9]: RuntimeError: boom", rank=5)
    assert line.rank == 9


def test_lines_of_one_origin_carry_the_same_label() -> None:
    header = parse("3: [rank3]: Traceback (most recent call last):")
    end = parse("3: [rank3]: RuntimeError: boom")
    other = parse("4: [rank4]: RuntimeError: boom")
    assert header.label == end.label != other.label


@given(st.text(max_size=160))
def test_any_text_is_parsed_and_kept(text: str) -> None:
    line = parse(text)
    assert line.text == text
    assert text.endswith(line.message)


@pytest.mark.parametrize(
    ("text", "rank", "node"),
    [
        ("[Rank 17 | node h7] loading", 17, "h7"),
        ("[node h7 | rank 17] loading", 17, "h7"),
        ("[rank=5] step 3", 5, None),
        ("[r32] step 3", 32, None),
        ("rank 0 | step 3", 0, None),
        ("host=b200-1 rank=0 step 3", 0, "b200-1"),
        ("[Rank 0, DP 1] step 3", 0, None),
        ("rank=6 ERROR unexpected end of data", 6, None),
        ("2026-05-02 11:00:00 INFO [rank=7] step 3", 7, None),
        ("ERROR:trainer:[rank 7] step 3", 7, None),
        ("2026-11-21 10:00:00,123 ml-17 [rank3]: step 3", 3, "ml-17"),
        ("2026-11-21 10:00:00,123 gpu017 [rank3] step 3", 3, "gpu017"),
        ("2026-11-21 10:00:00,123 hostname [rank3]: step 3", 3, None),
        ("2026-11-21 10:00:00,123 step7 [rank3]: loss 3", 3, None),
        ("2026-11-21 10:00:00,123 lost [rank3] at step 3", None, None),
    ],
)
def test_ranks_as_programs_write_them_themselves(
    text: str, rank: int | None, node: str | None
) -> None:
    line = parse_line("a.log", 1, text, year=2026)
    assert (line.rank, line.node) == (rank, node)


@pytest.mark.parametrize("text", ["GPU[4] step 3", "[GPU 4] step 3", "INFO:root:[GPU4] step 3"])
def test_a_device_in_front_is_a_local_rank(text: str) -> None:
    line = parse_line("a.log", 1, text, year=2026)
    assert (line.rank, line.local_rank) == (None, 4)
    assert parse_line("a.log", 1, "GPU 4: NVIDIA H100 80GB HBM3", year=2026).local_rank is None


def test_a_container_without_a_name_is_called_by_the_address_of_its_host() -> None:
    front = "10.0.1.22: {}:34612:36818 [6] NCCL INFO proxy.cc:638 -> 6"
    assert parse_line("a.log", 1, front.format("50428e4af543"), year=2026).node == "10.0.1.22"
    named = parse_line("a.log", 1, front.format("gn-07"), year=2026)
    assert (named.node, named.alias) == ("gn-07", "10.0.1.22")
