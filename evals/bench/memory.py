"""Peak memory of one worker over 10 GB, and with more distinct lines than the miner keeps."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from rerail.evals.bench.bars import Bar
from rerail.evals.bench.generate import Dataset
from rerail.evals.bench.scan import SIGNATURES
from rerail.evals.bench.signatures import bench_signatures
from rerail.log_parsers.scan import make_scanner, sieve_of
from rerail.log_parsers.skeletons import CAP, SkeletonMiner
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import survey

_CALL = "import sys; from rerail.evals.bench.memory import worker; worker(sys.argv[1:])"


def worker(arguments: list[str]) -> None:
    """Survey a named pipe, then overfill its miner; print peak memory in MB after each step."""
    pipe, cache, distinct = Path(arguments[0]), Path(arguments[1]), int(arguments[2])
    signatures = bench_signatures(SIGNATURES)
    scanner = make_scanner(signatures, cache=cache)
    result = survey(Source(pipe, "memory.log"), signatures, scanner, mine=True)
    print(result.size, _peak_mb())
    miner = result.miner or SkeletonMiner()
    for first in range(0, distinct, 5_000):
        lines = b"".join(b"INFO %s loaded\n" % _letters(i) for i in range(first, first + 5_000))
        miner.feed(lines, result.lines + first)
    print(len(miner), _peak_mb())


def _letters(number: int) -> bytes:
    return bytes(71 + number // 16**power % 16 for power in range(6)) * 4


def _peak_mb() -> float:
    # `ru_maxrss` outlives exec: it would count what the parent, which compiles the rules, once held.
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform != "darwin" else peak / 1024**2


def measure(data: Dataset, *, total: int) -> list[Bar]:
    """Feed the merged log again and again through a named pipe, `total` bytes in all."""
    path = Path(data.merged.path)
    repeats = max(1, round(total / data.merged.size))
    # Compiled beforehand, once for a set of rules: compiling takes more memory than reading.
    sieve_of(make_scanner(bench_signatures(SIGNATURES), cache=data.folder / "cache"))
    distinct = int(CAP * 1.3)
    with tempfile.TemporaryDirectory() as folder:
        pipe = Path(folder) / "pipe"
        os.mkfifo(pipe)
        command = [
            sys.executable,
            "-c",
            _CALL,
            str(pipe),
            str(data.folder / "cache"),
            str(distinct),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            feeder = threading.Thread(target=_feed, args=(path, pipe, repeats), daemon=True)
            feeder.start()
            out, _ = process.communicate()
    baseline = "256 MB"
    if process.returncode:
        return [Bar("memory", "peak of a worker", 256, None, baseline, at_most=True, unit=" MB")]
    streamed, overfull = (row.split() for row in out.splitlines())
    note = f"the same {data.merged.size / 1e9:.2f} GB {repeats} times, so few new kinds of line"
    return [
        Bar("memory", f"peak of a worker after {int(streamed[0]) / 1e9:.1f} GB", 256,
            float(streamed[1]), baseline, at_most=True, unit=" MB", note=note),
        Bar("memory", f"then {distinct:,} distinct lines more", 256, float(overfull[1]), baseline,
            at_most=True, unit=" MB", note=f"capped at {CAP:,}, {int(overfull[0]):,} kept"),
    ]  # fmt: skip


def _feed(path: Path, pipe: Path, repeats: int) -> None:
    # A worker that dies closes the pipe; its exit code tells.
    with contextlib.suppress(BrokenPipeError), pipe.open("wb", buffering=0) as out:
        for _ in range(repeats):
            with path.open("rb") as source:
                while chunk := source.read(1 << 20):
                    out.write(chunk)
