"""Two thousand signatures: the product's own rules, and made-up ones of the same shapes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import yaml

import rerail.knowledge_base
from rerail.log_parsers.scan import Signature

_CLASSES = "CUDA NCCL RCCL ncclx IBV Gloo MPI UCX DeepSpeed Megatron FSDP DTensor Inductor Triton Ray Slurm Lustre GPFS Ceph NFS EXT4 XFS NVLink NVSwitch PCIe HBM ECC Xid DCGM Kubelet Pod Cgroup Torch Elastic Rendezvous Store TCPStore Gradient Optimizer Checkpoint Tensor Shard Dataset Tokenizer Loader Prefetch Pinned Allocator".split()  # noqa: E501
_NOUNS = "channel communicator transport proxy endpoint queue pair region handle stream event graph kernel launch bucket shard manifest archive replica lease quorum barrier watchdog heartbeat socket descriptor semaphore descriptor mapping fabric partition plane lane link port device context".split()  # noqa: E501
_VERBS = "rejected exhausted poisoned revoked unmapped desynchronized misaligned throttled quarantined fenced wedged unrecoverable unreachable truncated clobbered".split()  # noqa: E501
_TAILS = ("", "", r" \d{1,6}", r" code[= ]\d{1,4}", r".{0,40}errno", r" 0x[0-9a-f]{1,16}", r": .*")


def bench_signatures(count: int, *, seed: int = 5, rules: bool = True) -> list[Signature]:
    """Return `count` signatures: the rule set first, unless left out, then made-up ones.

    About a third is a class and a literal, the rest have bounded gaps, optional parts, digits or
    ignore case; none matches a routine line of the generated logs.
    """
    patterns = dict.fromkeys(_rule_patterns() if rules else ())
    rng = random.Random(seed)
    while len(patterns) < count:
        a, b, c, d = (rng.choice(words) for words in (_CLASSES, _NOUNS, _NOUNS, _VERBS))
        tail = rng.choice(_TAILS)
        shape = rng.randrange(6)
        if shape < 2:
            made = f"{a}(?:Error|Warning): {b} {c} {d}{tail}"
        elif shape == 2:
            made = f"{a} {b} .{{0,40}}{c} was {d}{tail}"
        elif shape == 3:
            made = rf"\b{a}: (?:the )?{b} {c} (?:was|is|got) {d}{tail}"
        elif shape == 4:
            made = f"(?i){a} {b} {d}: {c}{tail}"
        else:
            made = rf"{a}\[\d{{1,5}}\]: {b} {d} by {c}{tail}"
        patterns.setdefault(made)
    return [Signature(pattern) for pattern in list(patterns)[:count]]


def _rule_patterns() -> list[str]:
    folder = Path(next(iter(rerail.knowledge_base.__path__))) / "rules"
    found = []
    for path in sorted(folder.glob("*.yaml")):
        data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        found += [rule["pattern"] for rule in data.get("rules", ()) if "pattern" in rule]
    return found
