"""Scanning for 2,000 signatures with the line of each hit, against `grep -c` of one literal."""

from __future__ import annotations

import re
from pathlib import Path

from rerail.evals.bench.bars import Bar
from rerail.evals.bench.baselines import grep_count, ripgrep_count
from rerail.evals.bench.generate import Dataset
from rerail.evals.bench.signatures import bench_signatures
from rerail.evals.bench.timing import Cost, best_interleaved, cost_of_call
from rerail.log_parsers.candidates import Candidates
from rerail.log_parsers.opening import open_source
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.scan import Scanner, Signature, make_scanner
from rerail.log_parsers.sources import Source, iter_chunks
from rerail.log_parsers.survey import CHUNK
from rerail.log_parsers.text import clean

SIGNATURES = 2_000


def lines_hit(
    path: Path, signatures: list[Signature], scanner: Scanner, *, chunk_size: int = CHUNK
) -> set[tuple[int, int]]:
    """Return (line, signature) of every confirmed hit: a scan and nothing else."""
    compiled: dict[int, re.Pattern[str]] = {}
    hits: set[tuple[int, int]] = set()
    candidates = Candidates(scanner)
    number = 1
    with open_source(Source(path, path.name)) as stream:
        for chunk in iter_chunks(stream, chunk_size):
            piece = Piece(chunk)
            pairs, _ = candidates.of(piece, number, bulk=False)
            for row, index, line in piece.with_lines(pairs):
                pattern = compiled.get(index)
                if pattern is None:
                    pattern = compiled[index] = re.compile(signatures[index].pattern)
                if pattern.search(clean(line)):
                    hits.add((number + row, index))
            number += chunk.count(b"\n")
    return hits


def measure(data: Dataset, *, runs: int) -> list[Bar]:
    """Measure the scan of the merged log."""
    path = Path(data.merged.path)
    cache = data.folder / "cache"
    signatures = bench_signatures(SIGNATURES)
    made_up = bench_signatures(SIGNATURES, rules=False)
    scanner = make_scanner(signatures, cache=cache)
    easy = make_scanner(made_up, cache=cache)
    found: dict[int, set[tuple[int, int]]] = {}

    def once() -> None:
        found[0] = lines_hit(path, signatures, scanner)

    ours, without_rules, grep = best_interleaved(
        runs,
        lambda: cost_of_call(once),
        lambda: cost_of_call(lambda: lines_hit(path, made_up, easy)),
        lambda: grep_count(path),
    )
    ripgrep = ripgrep_count(path)
    beside = f"; {ripgrep.cpu_s / ours.cpu_s:.2f}x ripgrep" if ripgrep is not None else ""
    same = lines_hit(path, signatures, scanner, chunk_size=1 << 16) == found[0]
    lines = {line for line, _ in found[0]}
    right = float(same and data.merged.cause_line in lines)
    baseline = "grep -c of one literal"
    return [
        Bar("scan", f"{SIGNATURES:,} signatures with file:line, all rules among them", 0.14,
            grep.cpu_s / ours.cpu_s, baseline, note=_speed(data, ours) + beside),
        Bar("scan", f"{SIGNATURES:,} made-up signatures, no rule among them", 0.14,
            grep.cpu_s / without_rules.cpu_s, baseline, note=_speed(data, without_rules)),
        Bar("scan", "hits equal for pieces of 64 kB and 512 kB, cause among them", 1.0,
            right, "ground truth", unit="", note=f"{len(lines):,} lines hit"),
    ]  # fmt: skip


def _speed(data: Dataset, cost: Cost) -> str:
    return f"{data.merged.size / cost.cpu_s / 1e6:,.0f} MB/s of CPU time"
