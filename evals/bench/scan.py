"""Scanning for 2,000 signatures with the line of each hit, against `grep -c` of one literal."""

from __future__ import annotations

import re
from pathlib import Path

from rerail.evals.bench.bars import Bar
from rerail.evals.bench.baselines import grep_count, ripgrep_count
from rerail.evals.bench.generate import Dataset
from rerail.evals.bench.signatures import bench_signatures
from rerail.evals.bench.timing import best_interleaved, cost_of_call
from rerail.log_parsers.scan import Scanner, Signature, make_scanner, searchable
from rerail.log_parsers.sources import Source, iter_chunks, open_source
from rerail.log_parsers.text import clean

SIGNATURES = 2_000


def lines_hit(
    path: Path, signatures: list[Signature], scanner: Scanner, *, chunk_size: int = 1 << 20
) -> set[tuple[int, int]]:
    """Return (line, signature) of every confirmed hit: a scan and nothing else."""
    compiled: dict[int, re.Pattern[str]] = {}
    hits: set[tuple[int, int]] = set()
    number = 1
    with open_source(Source(path, path.name)) as stream:
        for chunk in iter_chunks(stream, chunk_size):
            view = searchable(chunk)
            at, line = 0, number
            seen: set[tuple[int, int]] = set()
            for end, index in sorted(scanner.candidates(view)):
                start = view.rfind(b"\n", 0, max(0, end - 1)) + 1
                if (start, index) in seen:
                    continue
                seen.add((start, index))
                if start > at:
                    line += view.count(b"\n", at, start)
                    at = start
                stop = view.find(b"\n", start)
                pattern = compiled.get(index)
                if pattern is None:
                    pattern = compiled[index] = re.compile(signatures[index].pattern)
                text = clean(view[start : stop if stop >= 0 else len(view)])
                if pattern.search(text):
                    hits.add((line, index))
            number += chunk.count(b"\n")
    return hits


def measure(data: Dataset, *, runs: int) -> list[Bar]:
    """Measure the scan of the merged log."""
    path = Path(data.merged.path)
    signatures = bench_signatures(SIGNATURES)
    scanner = make_scanner(signatures, cache=data.folder / "cache")
    found: dict[int, set[tuple[int, int]]] = {}

    def once() -> None:
        found[0] = lines_hit(path, signatures, scanner)

    ours, grep = best_interleaved(runs, lambda: cost_of_call(once), lambda: grep_count(path))
    ripgrep = ripgrep_count(path)
    note = f"{data.merged.size / ours.cpu_s / 1e6:,.0f} MB/s of CPU time"
    if ripgrep is not None:
        note += f"; {ripgrep.cpu_s / ours.cpu_s:.2f}x ripgrep"
    same = lines_hit(path, signatures, scanner, chunk_size=1 << 16) == found[0]
    lines = {line for line, _ in found[0]}
    right = float(same and data.merged.cause_line in lines)
    return [
        Bar("scan", f"{SIGNATURES:,} signatures with file:line", 0.14, grep.cpu_s / ours.cpu_s,
            "grep -c of one literal", note=note),
        Bar("scan", "hits equal for chunks of 64 kB and 1 MB, cause among them", 1.0,
            right, "ground truth", unit="", note=f"{len(lines):,} lines hit"),
    ]  # fmt: skip
