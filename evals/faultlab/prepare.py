"""Builds the folder of a run: token shards, checkpoints, and what the scenario breaks in them."""
# mypy: allow-untyped-calls, no-warn-unused-ignores

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

RANKS = 4
BATCH = 8
# Turing: the oldest that CUDA 13 still compiles for; its code runs on no other generation.
OTHER_GPU = "arch=compute_75,code=sm_75"


def write_shards(data: Path, batches: int = 60) -> None:
    """Write one shard of predictable token sequences for each rank."""
    data.mkdir(parents=True)
    for rank in range(RANKS):
        draw = random.Random(rank)
        with (data / f"shard_{rank:03d}.jsonl").open("w") as shard:
            for _ in range(batches * BATCH):
                first, stride = draw.randrange(128), draw.randrange(1, 4)
                tokens = [(first + stride * place) % 128 for place in range(33)]
                shard.write(json.dumps({"tokens": tokens, "weight": 1.0}) + "\n")


def edit(data: Path, rank: int, batch: int, change: dict[str, Any], count: int = 1) -> None:
    """Change fields of `count` samples of one batch; a value of None removes the field."""
    path = data / f"shard_{rank:03d}.jsonl"
    lines = path.read_text().splitlines()
    for index in range(batch * BATCH, batch * BATCH + count):
        sample = {**json.loads(lines[index]), **change}
        lines[index] = json.dumps(
            {key: value for key, value in sample.items() if value is not None}
        )
    path.write_text("\n".join(lines) + "\n")


def truncate_line(data: Path, rank: int, batch: int) -> None:
    """Cut one sample in the middle."""
    path = data / f"shard_{rank:03d}.jsonl"
    lines = path.read_text().splitlines()
    lines[batch * BATCH] = lines[batch * BATCH][:70]
    path.write_text("\n".join(lines) + "\n")


def write_checkpoint(root: Path, width: int = 32, extra: str = "") -> Path:
    """Let the trainer's own code write a checkpoint, in a process of its own."""
    path = root / "ckpt" / "step_000020.pt"
    command = [sys.executable, "-m", "rerail.evals.faultlab.prepare", str(path), str(width), extra]
    subprocess.run(command, check=True, timeout=120)
    return path


def shorten_shard(data: Path, rank: int, batches: int) -> None:
    """Leave only the first batches of a shard."""
    path = data / f"shard_{rank:03d}.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[: batches * BATCH]) + "\n")


def make_unreadable(data: Path, rank: int) -> None:
    """Give a shard to another user, for that user's eyes only."""
    path = data / f"shard_{rank:03d}.jsonl"
    path.chmod(0o600)
    os.chown(path, 65534, 65534)


def truncate_checkpoint(root: Path) -> None:
    """Cut a checkpoint in half, as a full disk or a killed writer leaves it."""
    path = write_checkpoint(root)
    os.truncate(path, path.stat().st_size // 2)


def zero_checkpoint(root: Path) -> None:
    """Leave a checkpoint of the right size without content, as a crashed host does."""
    path = write_checkpoint(root)
    path.write_bytes(bytes(path.stat().st_size))


def build_kernels(root: Path, options: tuple[str, ...] = ("-arch=native",)) -> None:
    """Build the CUDA kernels of `programs/` into a library, or into a program of their own."""
    kind = () if "-DPROGRAM" in options else ("-shared", "-Xcompiler", "-fPIC")
    source = Path(__file__).parent / "programs" / "rows.cu"
    target = root / ("rows" if not kind else "librows.so")
    command = ["nvcc", *options, *kind, "-o", str(target), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


PREPARATIONS: dict[str, Callable[[Path], object]] = {
    "": lambda root: None,
    "long_shards": lambda root: None,
    "token_out_of_range": lambda root: edit(root / "data", 3, 22, {"tokens": [500] * 33}),
    "zero_weights": lambda root: edit(root / "data", 1, 25, {"weight": 0.0}, count=BATCH),
    "missing_field": lambda root: edit(
        root / "data", 2, 22, {"tokens": None, "input_ids": [1] * 33}
    ),
    "truncated_line": lambda root: truncate_line(root / "data", 0, 27),
    "short_shard": lambda root: shorten_shard(root / "data", 3, 33),
    "missing_shard": lambda root: (root / "data" / "shard_003.jsonl").unlink(),
    "unreadable_shard": lambda root: make_unreadable(root / "data", 1),
    "truncated_checkpoint": truncate_checkpoint,
    "zeroed_checkpoint": zero_checkpoint,
    "wider_checkpoint": lambda root: write_checkpoint(root, width=48),
    "kernels": build_kernels,
    "kernels_of_another_gpu": lambda root: build_kernels(root, ("-gencode", OTHER_GPU)),
    "kernel_program": lambda root: build_kernels(root, ("-arch=native", "-lineinfo", "-DPROGRAM")),
    "unsafe_checkpoint": lambda root: write_checkpoint(root, extra="options"),
}


def prepare(name: str, root: Path) -> None:
    """Fill `root` for the preparation called `name` (empty: nothing is broken)."""
    (root / "ckpt").mkdir(parents=True)
    write_shards(root / "data", 160 if name == "long_shards" else 60)
    PREPARATIONS[name](root)


def main(path: str, width: str, extra: str) -> None:
    """Write one checkpoint (runs in a subprocess, because it needs torch)."""
    import torch

    from rerail.evals.faultlab.train import build_model

    model = build_model(int(width))
    optimizer = torch.optim.AdamW(model.parameters())
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 20}
    if extra:
        content["options"] = argparse.Namespace(width=int(width))
    torch.save(content, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
