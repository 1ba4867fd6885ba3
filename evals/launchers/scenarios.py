"""The faults, the healthy runs, and what an expert says who reads only the logs.

No program knows of a fault: its data, its arguments or its host go wrong. Rank 3 is the culprit, and it
runs on the second host.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

RANK = 3
STEPS = 24
AT = 9
HANG_LEAVES = (
    "nccl_timeout_unexplained",
    "nccl_slow_rank_timeout",
    "gloo_connection_failure",
    "dataloader_hang",
    "job_time_limit",
)
# What is no fault in any run: MindSpore's warnings while its processes find each other, code in tracebacks of
# asyncio, and Spark's settings and the names of its parts.
_STARTS = (
    r"^(?!\[WARNING\] DISTRIBUTED\(|.*(?:timeout=timeout|asyncio[./]timeout|TimeoutError(?: from exc_val)?$"
    r"|Spark Executor Command|MasterHeartbeat)).*?"
)
VANISH_LEAVES = ("node_crash", "node_fail_scheduler", "host_hang", "tcp_network_failure")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One fault or healthy run.

    Attributes:
        leaves: Types that are right; empty where nothing failed.
        lines: Patterns of the lines that are the first fault, the better ones first: those of the first
            pattern that occurs are right.
        prepare: Puts the fault into the job's folder.
        options: Further arguments of the program.
        memory_mb: Memory limit of each host.
        vanish: Whether the second host vanishes while training.
        late_shard: Whether the shard of rank 3 appears only after the second try to open it.
    """

    name: str
    story: str
    leaves: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    prepare: Callable[[Path], None] = field(default=lambda folder: None)
    options: tuple[str, ...] = ()
    memory_mb: int | None = None
    vanish: bool = False
    late_shard: bool = False

    @property
    def healthy(self) -> bool:
        """Tell whether the job does what it should."""
        return not self.leaves


def write_shards(folder: Path, world: int) -> None:
    """Write a shard for each rank."""
    folder.mkdir(parents=True)
    for rank in range(world):
        rows = [
            json.dumps({"tokens": [(rank * 17 + step * 5 + i) % 256 for i in range(32)]})
            for step in range(STEPS + 4)
        ]
        (folder / f"shard_{rank:04d}.jsonl").write_text("\n".join(rows) + "\n")


def _change(folder: Path, change: Callable[[dict[str, object]], dict[str, object]]) -> None:
    path = folder / "data" / f"shard_{RANK:04d}.jsonl"
    rows = path.read_text().splitlines()
    rows[AT - 1] = json.dumps(change(json.loads(rows[AT - 1])))
    path.write_text("\n".join(rows) + "\n")


def _drop_tokens(folder: Path) -> None:
    _change(folder, lambda sample: {"text": "the quick brown fox", "id": 8812})


def _repeat(folder: Path) -> None:
    _change(folder, lambda sample: {**sample, "repeat": 25_000_000})


def _nan_weight(folder: Path) -> None:
    _change(folder, lambda sample: {**sample, "weight": float("nan")})


def _override(folder: Path) -> None:
    (folder / "overrides").mkdir()
    (folder / "overrides" / f"rank_{RANK}.args").write_text("--micro-batch 4k\n")


def _pipe(folder: Path) -> None:
    """Let the shard be a pipe that runs dry: whoever reads it waits."""
    import os

    path = folder / "data" / f"shard_{RANK:04d}.jsonl"
    rows = path.read_text().splitlines()[: AT - 1]
    path.unlink()
    os.mkfifo(path)
    # Both ends stay open in this process, so that the reader never sees an end.
    handle = os.open(path, os.O_RDWR)
    os.write(handle, ("\n".join(rows) + "\n").encode())
    _pipes.append(handle)


_pipes: list[int] = []


def close_pipes() -> None:
    """Close what the hanging shards hold open."""
    import os

    while _pipes:
        os.close(_pipes.pop())


SCENARIOS = (
    Scenario(
        "crash",
        "A sample of rank 3 lacks a key, the program ends by the exception.",
        ("data_schema_error", "python_exception"),
        (r"KeyError: 'tokens'|Exception: \"KeyError\('tokens'\)\"", r'"exc_type": "KeyError"'),
        _drop_tokens,
    ),
    Scenario(
        "hang",
        "Rank 3 waits for its storage for ever.",
        HANG_LEAVES,
        (
            rf"(?i){_STARTS}(?:timed out waiting|time limit|timed out|timeout|deadline exceeded|DUE TO TIME"
            r"|\bwait (?:sending|receiving) .*failed|Launch kernel failed|KernelMod launch failed)",
            r"(?i)cancelled|terminated|signal 15|KeyboardInterrupt",
        ),
        _pipe,
    ),
    Scenario(
        "oom",
        "Rank 3 needs more memory than its host's group may have; the kernel kills it.",
        ("cgroup_oom_kill", "host_oom_kill"),
        (
            r"Killed process \d+|invoked oom-killer|oom-kill:|oom-kill event|OOM Killed|OUT_OF_ME"
            r"|oom_kill event|[Oo]ut [Oo]f [Mm]emory",
            r"(?i)exitcode\s*:? ?-9|signal 9|SIGKILL|return code = -9|exit code[: ]+(-9|137|9\b)",
        ),
        _repeat,
        memory_mb=2300,
    ),
    Scenario(
        "vanish",
        "The second host is gone from one moment to the next, without a word.",
        VANISH_LEAVES,
        (
            rf"(?i){_STARTS}(?:not responding|unable to reliably start|ssh exited with exit code 255|lost communication"
            r"|node fail|lost (connection|contact)|unreachable|No route to host"
            r"|has died|unhealthy|closed by remote|disconnected|missed too many|heartbeat"
            r"|timed out waiting|connection closed by peer|timed out|connection reset|TIMEOUT self_rank"
            r"|failed to report back|remote host: |daemon exit status|exited with status 255"
            r"|\bwait (?:sending|receiving) .*failed|Launch kernel failed|KernelMod launch failed)",
        ),
        vanish=True,
    ),
    Scenario(
        "argument",
        "Rank 3 has an argument that is no number.",
        ("config_error",),
        (r"argument --micro-batch: invalid int value",),
        _override,
    ),
    Scenario(
        "nan",
        "The loss of rank 3 is not finite; the program's own check ends the run in order.",
        ("loss_nan",),
        (r"loss is nan|non-finite loss|is nan on",),
        _nan_weight,
    ),
    Scenario(
        "caught",
        "The program logs the full traceback of an exception that it caught, and trains to the end.",
        prepare=_drop_tokens,
        options=("--skip-bad-samples",),
    ),
    Scenario(
        "retried",
        "The shard of rank 3 cannot be opened at first; the next tries succeed, training ends well.",
        late_shard=True,
    ),
)
BY_NAME = {one.name: one for one in SCENARIOS}
