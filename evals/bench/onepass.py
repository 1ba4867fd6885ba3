"""Everything in one pass (read, scan, mine, steps), per core, on two processes, and from gzip."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rerail.evals.bench.bars import Bar
from rerail.evals.bench.baselines import grep_count
from rerail.evals.bench.generate import Dataset, compress
from rerail.evals.bench.scan import SIGNATURES
from rerail.evals.bench.signatures import bench_signatures
from rerail.evals.bench.timing import best_interleaved, cost_of_call
from rerail.log_parsers.scan import Scanner, Signature, make_scanner
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import FileSurvey, survey

_worker: tuple[list[Signature], Scanner] | None = None


def one_pass(path: Path, signatures: list[Signature], scanner: Scanner) -> FileSurvey:
    """Read one file as `rerail diagnose` does, with template mining."""
    source = Source(path, path.name, size=path.stat().st_size)
    return survey(source, signatures, scanner, mine=True)


def _start(cache: Path) -> None:
    global _worker
    signatures = bench_signatures(SIGNATURES)
    _worker = signatures, make_scanner(signatures, cache=cache)


def _work(path: Path) -> int:
    assert _worker is not None
    return one_pass(path, *_worker).lines


def _wall(paths: list[Path], cache: Path, processes: int) -> float:
    with ProcessPoolExecutor(processes, initializer=_start, initargs=(cache,)) as pool:
        list(pool.map(_work, paths[:processes]))  # the pool is up and warm
        start = time.perf_counter()
        list(pool.map(_work, paths))
        return time.perf_counter() - start


def measure(data: Dataset, *, runs: int) -> list[Bar]:
    """Measure the pass over the merged log and over the rank logs."""
    path = Path(data.merged.path)
    cache = data.folder / "cache"
    signatures = bench_signatures(SIGNATURES)
    scanner = make_scanner(signatures, cache=cache)
    packed = compress(path)
    plain, grep, gz = best_interleaved(
        runs,
        lambda: cost_of_call(lambda: one_pass(path, signatures, scanner)),
        lambda: grep_count(path),
        lambda: cost_of_call(lambda: one_pass(packed, signatures, scanner)),
    )
    paths = [Path(truth.path) for truth in data.ranks]
    ratios = []
    for _ in range(runs):
        one, two = _wall(paths, cache, 1), _wall(paths, cache, 2)
        ratios.append(one / two)
    speed = f"{data.merged.size / plain.cpu_s / 1e6:,.0f} MB/s of CPU time"
    return [
        Bar("onepass", "everything in one pass, one core", 0.075, grep.cpu_s / plain.cpu_s,
            "grep -c of one literal", note=speed),
        Bar("onepass", "two processes", 1.7, max(ratios), "one process, wall clock, rank logs",
            note="needs two idle cores; best of the runs"),
        Bar("onepass", "from gzip", 0.65, plain.cpu_s / gz.cpu_s, "the same log uncompressed"),
    ]  # fmt: skip
