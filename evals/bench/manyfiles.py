"""`rerail diagnose` on 512 rank files: the scan sets its time, not the number of files."""

from __future__ import annotations

import shutil
from pathlib import Path

from rerail.evals.bench.bars import Bar
from rerail.evals.bench.generate import CULPRIT, Dataset, write_log
from rerail.evals.bench.scan import SIGNATURES
from rerail.evals.bench.signatures import bench_signatures
from rerail.evals.bench.startup import diagnose
from rerail.evals.bench.timing import best_interleaved, cost_of_call
from rerail.log_parsers.scan import make_scanner
from rerail.log_parsers.sources import Source
from rerail.log_parsers.survey import survey

_DISTINCT = 8


def measure(data: Dataset, *, files: int, size: int) -> list[Bar]:
    """Diagnose `files` rank files of `size` bytes: nine distinct ones, the others are copies."""
    job = data.folder / "many"
    shutil.rmtree(job, ignore_errors=True)
    job.mkdir()
    made: list[Path] = []
    for rank in range(files):
        path = job / f"rank_{rank}.log"
        if rank < _DISTINCT or rank == CULPRIT:
            write_log(path, size, seed=rank, rank=rank)
            if rank != CULPRIT:
                made.append(path)
        else:
            shutil.copyfile(made[rank % len(made)], path)
    total = sum(path.stat().st_size for path in job.iterdir())
    one = made[0].stat().st_size
    signatures = bench_signatures(SIGNATURES)
    scanner = make_scanner(signatures, cache=data.folder / "cache")
    home = data.folder / "home"

    def pass_over_one() -> None:
        survey(Source(made[0], made[0].name), signatures, scanner)

    title = f"{files} rank files of {size / 1e6:.0f} MB diagnosed"
    baseline = "CPU time of the pass alone over the same bytes"
    try:
        (alone,) = best_interleaved(5, lambda: cost_of_call(pass_over_one))
        whole = diagnose(job, home)
    except RuntimeError as error:
        return [Bar("manyfiles", title, 1.5, None, baseline, at_most=True, note=str(error))]
    finally:
        shutil.rmtree(job, ignore_errors=True)
    limit = alone.cpu_s / one * total
    note = (
        f"{total / 1e9:.1f} GB in {whole.wall_s:.0f} s wall, {_DISTINCT + 1} distinct files copied"
    )
    return [
        Bar("manyfiles", title, 1.5, whole.cpu_s / limit, baseline, at_most=True, note=note),
    ]
