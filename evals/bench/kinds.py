"""Five kinds of logs that a pass has to be fast on, since a benchmark's own log is the friendliest.

The merged log of 512 ranks under torchrun's labels, the log of the other benchmarks, a real log repeated
(`real.log` in the data folder), NCCL_DEBUG=INFO of 1,024 ranks, and warnings and tracebacks on half the lines.
Then a job of many small files: rank logs of 9 MB in all, each line of which says "rank" and "time", diagnosed.
"""

from __future__ import annotations

import random
import shutil
import statistics
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from rerail.assistant.pipeline import scan_plan
from rerail.evals.bench.bars import Bar
from rerail.evals.bench.baselines import grep_count
from rerail.evals.bench.generate import Dataset
from rerail.evals.bench.startup import diagnose
from rerail.evals.bench.timing import best_interleaved, cost_of_call
from rerail.log_parsers.room import Room
from rerail.log_parsers.scan import make_scanner
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import survey

_FILES, _FILE_SIZE, _FULL = 512, 2_000_000, 400_000_000
_RANKS, _RANK_SIZE = 64, 145_000
_REAL = "real.log"


def merged(rng: random.Random) -> Iterator[str]:
    """Timers, NCCL's channels, data loaders and warnings of 512 ranks, one step line of the last."""
    time, step = datetime(2026, 3, 4, 1, tzinfo=UTC), 0
    while True:
        time, step = time + timedelta(seconds=1.84), step + 1
        stamp = f"{time:%Y-%m-%d %H:%M:%S.%f}"
        yield (
            f"[default7]:[rank511]: [{stamp}] iteration {step:8d}/  500000 | consumed samples: {step * 1024:12d} |"
            f" elapsed time per iteration (ms): {1835 + rng.random() * 30:.1f} | learning rate: 1.500E-04 |"
            f" lm loss: {2.1 + rng.random() * 0.05:.6E} | loss scale: 1.0 | grad norm: {rng.random():.3f} |"
            " number of skipped iterations: 0 | number of nan iterations: 0 |"
        )
        for _ in range(60):
            rank, kind = rng.randrange(512), rng.random()
            front = f"[default{rank % 8}]:[rank{rank}]: "
            if kind < 0.5:
                yield (
                    f"{front}{stamp} node{rank // 8:03d} INFO megatron.core.timers: rank {rank} (min, max) time across"
                    f" ranks (ms): forward-backward ....: ({1700 + rng.random() * 50:.2f}, {1760 + rng.random() * 50:.2f})"
                )
            elif kind < 0.8:
                yield f"[default{rank % 8}]:{_channel(rng, rank, 512)}"
            elif kind < 0.97:
                yield (
                    f"{front}{stamp} node{rank // 8:03d} DEBUG dataloader: worker {rank % 4} fetched"
                    f" shard_{rng.randrange(100_000):06d}.tar in {rng.random() * 30:.1f} ms"
                )
            else:
                yield (
                    f"{front}/opt/conda/lib/python3.11/site-packages/torch/utils/checkpoint.py:464: UserWarning:"
                    " torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly."
                )


def _channel(rng: random.Random, rank: int, ranks: int) -> str:
    return (
        f"node{rank // 8:03d}:{2000 + rank}:{3000 + rank} [{rank % 8}] NCCL INFO Channel {rng.randrange(16):02d}/0 :"
        f" {rank}[{rank % 8}] -> {(rank + 1) % ranks}[{(rank + 1) % 8}] via P2P/CUMEM/read"
    )


def nccl(rng: random.Random) -> Iterator[str]:
    """What NCCL_DEBUG=INFO prints on 1,024 ranks."""
    while True:
        rank = rng.randrange(1_024)
        front = f"node{rank // 8:03d}:{2000 + rank}:{3000 + rank} [{rank % 8}] NCCL INFO "
        kind = rng.random()
        if kind < 0.6:
            yield _channel(rng, rank, 1_024)
        elif kind < 0.8:
            yield (
                f"{front}AllReduce: opCount {rng.randrange(1 << 20):x} sendbuff 0x{rng.randrange(1 << 47):x} recvbuff"
                f" 0x{rng.randrange(1 << 47):x} count {rng.randrange(1 << 24)} datatype 9 op 0 root 0 comm"
                f" 0x{rng.randrange(1 << 47):x} [nranks=1024] stream 0x{rng.randrange(1 << 47):x}"
            )
        elif kind < 0.95:
            yield f"{front}Trees [0] {rank + 1}/-1/-1->{rank}->{rank - 1} [1] {rank + 1}/-1/-1->{rank}->{rank - 1}"
        else:
            yield f"{front}NET/IB : Using [0]mlx5_{rank % 8}:1/IB/SHARP [RO]; OOB eth0:10.0.{rank // 256}.{rank % 256}<0>"


def noisy(rng: random.Random) -> Iterator[str]:
    """Warnings and tracebacks that are survived, on half the lines of 64 ranks."""
    step = 0
    while True:
        step += 1
        rank = rng.randrange(64)
        front = f"[rank{rank}]: "
        yield f"{front}step {step} loss: {2 + rng.random():.4f} time: {rng.random():.3f}"
        yield f"{front}INFO loader: shard {rng.randrange(10**6)} of epoch 0 opened in {rng.random():.3f} s"
        yield (
            f"{front}/opt/lib/python3.11/site-packages/foo/{rng.choice('abcdef')}.py:{rng.randrange(900)}:"
            " FutureWarning: `x` is deprecated"
        )
        if step % 3 == 0:
            yield f"{front}Traceback (most recent call last):"
            yield f'{front}  File "/opt/app/data/reader.py", line {rng.randrange(900)}, in fetch'
            yield f"{front}    return self._get(key)"
            yield f"{front}ConnectionResetError: [Errno 104] Connection reset by peer"
            yield f"{front}WARNING reader: retrying shard {rng.randrange(10**6)}, attempt 1 of 5"
        else:
            yield f"{front}WARNING clock: step took {rng.random():.3f} s longer than planned"


def stepping(rank: int, rng: random.Random) -> Iterator[str]:
    """Lines of one rank that hold many of the words which statements and step lines are looked for by."""
    step = 0
    while True:
        step += 1
        yield (
            f"[rank{rank}]: step {step} loss: {2 + rng.random():.4f} time: {rng.random():.3f} rank {rank} tokens"
            f" {rng.randrange(10**6)}"
        )
        if step % 3 == 0:
            yield (
                f"[rank{rank}]: INFO loader: rank {rank} shard {rng.randrange(10**6)} opened, time {rng.random():.3f} s"
            )


def _write(path: Path, lines: Callable[[random.Random], Iterator[str]], size: int) -> Path:
    """Repeat some 16 MB of lines up to a size: what matters repeats in a log as well."""
    block: list[str] = []
    held = 0
    for line in lines(random.Random(1)):
        block.append(line)
        held += len(line) + 1
        if held >= min(size, 16 << 20):
            break
    _repeat(path, ("\n".join(block) + "\n").encode(), size)
    return path


def _repeat(path: Path, text: bytes, size: int) -> None:
    with path.open("wb") as out:
        for _ in range(max(1, round(size / len(text)))):
            out.write(text)


def measure(data: Dataset, *, runs: int, size: int) -> list[Bar]:
    """Measure the pass with the shipped rules over each kind, beside `grep -c`; then many files beside one."""
    plan = scan_plan()
    scanner = make_scanner(plan.signatures, cache=plan.cache)
    paths = {
        name: _write(data.folder / f"kind-{name}.log", lines, size)
        for name, lines in (("merged", merged), ("nccl", nccl), ("noisy", noisy))
    }
    paths["project"] = Path(data.merged.path)
    if (data.folder / _REAL).is_file():
        text = (data.folder / _REAL).read_bytes()
        paths["real"] = data.folder / "kind-real.log"
        _repeat(paths["real"], text, size)

    def over(path: Path, files: int = 1) -> None:
        # Of each of many files less is kept word for word, as a diagnosis of them all does it.
        source = Source(path, path.name, size=path.stat().st_size)
        survey(source, plan.signatures, scanner, room=Room().among(files))

    bars, ratios = [], []
    for name, path in paths.items():
        whole, grep = best_interleaved(
            runs, partial(cost_of_call, partial(over, path)), partial(grep_count, path)
        )
        ratios.append(grep.cpu_s / whole.cpu_s)
        speed = f"{path.stat().st_size / whole.cpu_s / 1e6:,.0f} MB/s of CPU time"
        bars.append(
            Bar(
                "kinds", f"one pass, {name}", 0.06, ratios[-1], "grep -c of one literal", note=speed
            )
        )
    bars.append(
        Bar(
            "kinds",
            "one pass, median of the kinds",
            0.10,
            statistics.median(ratios),
            "grep -c of one literal",
        )
    )
    folder = data.folder / "kind-many"
    try:
        paths["many"] = _write(
            data.folder / "kind-whole.log",
            merged,
            round(_FILES * _FILE_SIZE * min(1, size / _FULL)),
        )
        bars.append(_many(folder, paths["many"], over, runs))
        bars.append(_stepping(folder, data.folder / "home", runs))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for name, path in paths.items():
            if name != "project":
                path.unlink(missing_ok=True)
    return bars


def _stepping(folder: Path, home: Path, runs: int) -> Bar:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for rank in range(_RANKS):
        _write(folder / f"rank_{rank}.log", partial(stepping, rank), _RANK_SIZE)
    diagnose(folder, home)  # fills the cache
    (cost,) = best_interleaved(min(runs, 2), lambda: diagnose(folder, home))
    what = f"{_RANKS} rank files of {_RANK_SIZE / 1e6:.2f} MB with steps, diagnosed"
    return Bar("kinds", what, 5.0, cost.cpu_s, "process time, user and system", True, " s")


def _many(folder: Path, path: Path, over: Callable[..., None], runs: int) -> Bar:
    folder.mkdir(exist_ok=True)
    each = path.stat().st_size // _FILES
    with path.open("rb") as source:
        for number in range(_FILES):
            (folder / f"rank_{number}.log").write_bytes(source.read(each) + source.readline())

    def all_files() -> None:
        for one in folder.iterdir():
            over(one, _FILES)

    many, one = best_interleaved(
        min(runs, 3), lambda: cost_of_call(all_files), lambda: cost_of_call(lambda: over(path))
    )
    what = f"{_FILES} files of {each / 1e6:.1f} MB"
    return Bar(
        "kinds", what, 1.3, many.cpu_s / one.cpu_s, "the same bytes in one file", at_most=True
    )
