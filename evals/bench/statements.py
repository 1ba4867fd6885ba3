# ruff: noqa: E501 - log lines are quoted whole
"""The print statements of a made-up training job, each with its slots.

The shapes are those of Megatron-LM, DeepSpeed, torchtitan, the Hugging Face trainer, NCCL and
tqdm; the values are random. `{name}` is a slot, see `SLOTS`. The number of a statement is the
ground truth for grouping: two lines belong together if one statement printed them.
"""

from __future__ import annotations

import random

# Slot: printf format, and the half-open range of each integer that fills it. `T` and `S` are
# filled by time and step (padded to 8 where Megatron pads).
SLOTS: dict[str, tuple[bytes, tuple[tuple[int, int], ...]]] = {
    "int": (b"%d", ((0, 100_000),)),
    "small": (b"%d", ((0, 64),)),
    "pad": (b"%5d", ((0, 5_000),)),
    "dec": (b"%d.%03d", ((0, 900), (0, 1_000))),
    "exp": (b"%d.%06dE%+03d", ((1, 10), (0, 1_000_000), (-6, 2))),
    "hex": (b"%x", ((0, 1 << 20),)),
    "ptr": (b"0x%x", ((1 << 44, 1 << 47),)),
    "pct": (b"%3d", ((0, 100),)),
    "ip": (b"10.%d.%d.%d", ((0, 255), (0, 255), (1, 255))),
    "uuid": (
        b"%08x-%04x-4%03x-a%03x-%012x",
        ((0, 1 << 32), (0, 1 << 16), (0, 1 << 12), (0, 1 << 12), (0, 1 << 47)),
    ),
    "ms": (b"%03d", ((0, 1_000),)),
}

MEGATRON = (
    "[{T}.{ms}] iteration {S}/  500000 | consumed samples: {int} | elapsed time per iteration (ms):"
    " {dec} | throughput per GPU (TFLOP/s/GPU): {dec} | learning rate: {exp} | global batch size:"
    "  2048 | lm loss: {exp} | loss scale: 1.0 | grad norm: {dec} | number of skipped iterations:"
    "   0 | number of nan iterations:   0 |"
)

# (weight: lines per block and rank, text). A carriage return makes progress frames.
STATEMENTS: tuple[tuple[int, str], ...] = (
    (6, MEGATRON),
    (4, "[{T},{ms}] [INFO] [logging.py:96:log_dist] step={S}, skipped=0, lr=[{exp}], mom=[(0.9, 0.95)]"),
    (3, "[{T},{ms}] [INFO] [timer.py:260:stop] epoch=0/micro_step={S}/global_step={S}, RunningAvgSamplesPerSec={dec}, CurrSamplesPerSec={dec}, MemAllocated={dec}GB, MaxMemAllocated={dec}GB"),
    (4, "[titan] {T},{ms} - root - INFO - \x1b[31mstep: {S}  \x1b[32mloss: {dec}  \x1b[33mmemory: {dec}GiB({dec}%)  \x1b[34mtps: {int}  \x1b[36mtflops: {dec}  \x1b[35mmfu: {dec}%\x1b[39m"),
    (3, "{{'loss': {dec}, 'grad_norm': {dec}, 'learning_rate': {exp}, 'epoch': {dec}}}"),
    (1, "    forward-compute ................................: ({dec}, {dec})"),
    (1, "    backward-compute ...............................: ({dec}, {dec})"),
    (1, "    optimizer-inner-step ...........................: ({dec}, {dec})"),
    (6, "gpu-node{small}:{int}:{int} [{small}] NCCL INFO Channel {small}/0 : {small}[{small}] -> {small}[{small}] via P2P/CUMEM/read"),
    (8, "gpu-node{small}:{int}:{int} [{small}] NCCL INFO AllReduce: opCount {hex} sendbuff {ptr} recvbuff {ptr} count {int} datatype 9 op 0 root 0 comm {ptr} [nranks=64] stream {ptr}"),
    (3, "gpu-node{small}:{int}:{int} [{small}] NCCL INFO Broadcast: opCount {hex} sendbuff {ptr} recvbuff {ptr} count {int} datatype 7 op 0 root 0 comm {ptr} [nranks=64] stream {ptr}"),
    (3, "\rEpoch 0:  {pct}%|####      | {int}/100000 [00:{small}<01:{small}, {dec}it/s, loss={dec}]\rEpoch 0:  {pct}%|#####     | {int}/100000 [00:{small}<01:{small}, {dec}it/s, loss={dec}]\rEpoch 0:  {pct}%|######    | {int}/100000 [00:{small}<01:{small}, {dec}it/s, loss={dec}]"),
    (3, "{T},{ms} DEBUG request {uuid} fetched shard {int} in {dec} ms from cache"),
    (2, "{T},{ms} DEBUG dataloader worker {small} prefetched batch {int} ({int} tokens)"),
    (1, "{T},{ms} INFO garbage collection took {dec} ms, {int} objects"),
    (1, "{T},{ms} INFO heartbeat to {ip}:{int} ok, rtt {dec} ms"),
    (1, "/opt/venv/lib/python3.11/site-packages/torch/utils/checkpoint.py:{int}: UserWarning: None of the inputs have requires_grad=True. Gradients will be None"),
    (1, "[W {T}.{ms} ProcessGroupNCCL.cpp:{int}] Warning: TORCH_NCCL_AVOID_RECORD_STREAMS=1 has no effect for point-to-point collectives."),
)  # fmt: skip

_SUBJECTS = (
    "scheduler allocator tokenizer profiler sampler router planner exporter monitor cache".split()
)
_VERBS = "registered resized rebuilt skipped flushed attached loaded renamed split verified".split()
_OBJECTS = "bucket shard layer hook buffer handle group stream index table queue view".split()
_ENDS = (
    "after warmup|before first step|on demand|by request|as configured|once more|for reuse".split(
        "|"
    )
)


def rare_statements(rng: random.Random, count: int) -> list[str]:
    """Return `count` different statements that each print a line or two in the whole job."""
    found: dict[str, None] = {}
    while len(found) < count:
        a, b, c = rng.choice(_SUBJECTS), rng.choice(_VERBS), rng.choice(_OBJECTS)
        name = "".join(rng.choice("ghijklmnopqrstuvwxyz") for _ in range(rng.randint(4, 9)))
        found[f"{{T}},{{ms}} INFO {a} {name}: {b} {c} {{int}} {rng.choice(_ENDS)}"] = None
    return list(found)


# What ends the job, by name: lines of the rank at fault; the last but one statement is the cause.
CAUSES: dict[str, tuple[str, ...]] = {
    "cuda_oom": (
        "Traceback (most recent call last):",
        '  File "/workspace/train.py", line 812, in <module>',
        "    main()",
        '  File "/workspace/train.py", line 540, in train_step',
        "    loss.backward()",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 1 has a total capacity of 79.11 GiB of which 1.02 GiB is free.",
    ),
    "illegal_memory": (
        "Traceback (most recent call last):",
        '  File "/workspace/train.py", line 540, in train_step',
        "RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
    "disk_full": (
        "Traceback (most recent call last):",
        '  File "/workspace/checkpoint.py", line 77, in save',
        "OSError: [Errno 28] No space left on device",
    ),
    "nan_loss": (
        "Traceback (most recent call last):",
        '  File "/workspace/train.py", line 533, in check_loss',
        "AssertionError: Rank 17: found NaN in local forward loss calculation. Device: 1, node: gpu-node2",
    ),
    "host_oom": ("slurmstepd: error: Detected 1 oom_kill event in StepId=812.0. Some of the step tasks have been OOM Killed.",),
}  # fmt: skip

CASCADE: tuple[str, ...] = (
    "[E {T}.{ms} ProcessGroupNCCL.cpp:607] [Rank {small}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={int}, OpType=ALLREDUCE, NumelIn={int}, NumelOut={int}, Timeout(ms)=600000) ran for 600{ms} milliseconds before timing out.",
    "Traceback (most recent call last):",
    '  File "/workspace/train.py", line 540, in train_step',
    "    torch.distributed.all_reduce(flags)",
    "torch.distributed.DistBackendError: NCCL communicator was aborted on rank {small}.",
)  # fmt: skip
