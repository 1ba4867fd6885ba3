"""Runs benchmarks and prints them beside their bars."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rerail.errors import UsageError
from rerail.evals.bench import (
    alive,
    compression,
    kinds,
    manyfiles,
    memory,
    mining,
    onepass,
    page,
    scan,
    similar,
    startup,
)
from rerail.evals.bench.bars import Bar
from rerail.evals.bench.generate import Dataset, make_dataset

DATA = Path("bench-data")
QUICK_GB = 0.1
"""Below one gigabyte start-up costs show; a quick run says that it works, not how fast it is."""

_FULL_MEMORY, _FULL_FILES, _FULL_FILE = 10e9, 512, 20e6


def _benches(gb: float, runs: int) -> dict[str, Callable[[Dataset], list[Bar]]]:
    part = min(1.0, gb / 1.2)  # everything shrinks with the log, down to a smoke test
    return {
        "scan": lambda data: scan.measure(data, runs=runs),
        "mining": lambda data: mining.measure(
            data, runs=min(3, runs), lines=max(2_000, int(mining.LINES * part))
        ),
        "onepass": lambda data: onepass.measure(data, runs=runs),
        "kinds": lambda data: kinds.measure(
            data, runs=min(3, runs), size=int(400e6 * part) + 1_000_000
        ),
        "memory": lambda data: memory.measure(data, total=int(_FULL_MEMORY * part)),
        "compression": lambda data: compression.measure(data, small=int(30e6 * part) + 50_000),
        "startup": lambda data: startup.measure(data, runs=max(2, runs)),
        "alive": lambda data: alive.measure(data, runs=max(1, runs // 2)),
        "page": lambda data: page.measure(data, runs=max(1, runs)),
        "similar": lambda data: similar.measure(data, most=max(500, int(1_000_000 * part))),
        "manyfiles": lambda data: manyfiles.measure(
            data, files=max(12, int(_FULL_FILES * part)), size=int(_FULL_FILE * part) + 20_000
        ),
    }


NAMES = tuple(_benches(1.0, 1))


def run_benches(
    names: Sequence[str], size_gb: float, data: Path, *, runs: int = 5, keep: bool = False
) -> list[Bar]:
    """Generate logs of `size_gb` GB under `data`, run the named benchmarks, delete the logs.

    The environment of drain3 stays, unless the folder was made here and everything goes.

    Raises:
        UsageError: when a name is not a benchmark.
    """
    benches = _benches(size_gb, runs)
    for name in names:
        if name not in benches:
            raise UsageError(
                f"no benchmark is called {name!r}", subject=name, hint=f"one of {', '.join(NAMES)}"
            )
    existed = data.exists()
    dataset = make_dataset(data, int(size_gb * 1e9))
    try:
        return [bar for name in names or NAMES for bar in benches[name](dataset)]
    finally:
        if not keep:
            _delete(data, everything=not existed)


def _delete(data: Path, *, everything: bool) -> None:
    if everything:
        shutil.rmtree(data, ignore_errors=True)
        return
    for folder in ("ranks", "small", "many", "home", "cache"):
        shutil.rmtree(data / folder, ignore_errors=True)
    for name in (
        "merged.log",
        "merged.log.gz",
        "labelled.log",
        "truth.json",
        "page-small.log",
        "page-medium.log",
    ):
        (data / name).unlink(missing_ok=True)


def bench_command(
    names: list[str],
    size_gb: float,
    data: Path,
    json_output: bool,
    *,
    runs: int = 5,
    keep: bool = False,
) -> int:
    """Run benchmarks, print the table, and return 0 if every bar measured is met, else 1.

    Raises:
        UsageError: when a name is not a benchmark.
    """
    bars = run_benches(names, size_gb, data, runs=runs, keep=keep)
    if json_output:
        rows = [{**asdict(bar), "met": bar.met} for bar in bars]
        print(json.dumps({"schema_version": 1, "size_gb": size_gb, "bars": rows}, indent=1))
    else:
        _print_table(bars, size_gb)
    return 1 if any(bar.met is False for bar in bars) else 0


def _print_table(bars: Sequence[Bar], size_gb: float) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Benchmarks on generated logs of {size_gb:g} GB")
    for column in ("bench", "what", "bar", "measured", "met", "baseline", "note"):
        table.add_column(column, justify="right" if column in ("bar", "measured") else "left")
    for bar in bars:
        sign = "<=" if bar.at_most else ">="
        measured = "-" if bar.measured is None else f"{_figures(bar.measured)}{bar.unit}"
        met = {True: "yes", False: "NO", None: "not measured"}[bar.met]
        wanted = f"{sign} {_figures(bar.bar)}{bar.unit}"
        table.add_row(bar.bench, bar.what, wanted, measured, met, bar.baseline, bar.note)
    Console().print(table)
    if size_gb < 1:
        Console().print("Below 1 GB start-up costs show: a smoke test, not a measurement.")


def _figures(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
