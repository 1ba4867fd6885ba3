"""How fast a trace becomes columns, beside json.load and HolisticTraceAnalysis; and their figures."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from rerail.evals.patterns.peak_memory import peak_bytes

REAL = Path("tests/data/kineto")
_REPEATS = 3
_COPIES = 60
_LIMIT_S = 600
_READERS = ("rerail", "json.load", "HolisticTraceAnalysis")


def parse_table(out: Console, folder: Path = REAL) -> bool:
    """Measure bar T1 in interleaved processes, and compare figures of real traces with HTA's."""
    files = sorted(folder.rglob("*.json.gz"))
    if not files:
        out.print(f"skipped: reading traces ({folder} holds none)", markup=False)
        return True
    readers = [name for name in _READERS if name != _READERS[2] or find_spec("hta")]
    with TemporaryDirectory() as name:
        path = Path(name) / "rank0.json"
        grow(files[-1], path)
        size = path.stat().st_size / 1e6
        rows: dict[str, list[dict[str, float]]] = {reader: [] for reader in readers}
        for _ in range(_REPEATS):
            for reader in readers:
                rows[reader].append(_measured(reader, path))
    table = Table(title=f"one trace of {size:.0f} MB (a real one, repeated), median of {_REPEATS}")
    for column in ("reader", "CPU seconds", "MB/s", "memory MB"):
        table.add_column(column, justify="left" if column == "reader" else "right")
    took = {reader: median(one["s"] for one in rows[reader]) for reader in readers}
    memory = {reader: median(one["mb"] for one in rows[reader]) for reader in readers}
    for reader in readers:
        table.add_row(
            reader, f"{took[reader]:.2f}", f"{size / took[reader]:.0f}", f"{memory[reader]:.0f}"
        )
    out.print(table)
    bars = {"T1: 4 times faster than json.load": took["json.load"] / took["rerail"] >= 4}
    if _READERS[2] in readers:
        hta = _READERS[2]
        bars["T1: 6 times faster than HolisticTraceAnalysis"] = took[hta] / took["rerail"] >= 6
        bars["T1: at most 0.7 of its memory"] = memory["rerail"] <= 0.7 * memory[hta]
        bars["figures of real traces equal its own"] = _same_figures(out, files)
    else:
        out.print("skipped: HolisticTraceAnalysis is not installed (rerail[bench])", markup=False)
    for bar, held in bars.items():
        out.print(f"{'held' if held else 'NOT HELD'}: {bar}", markup=False)
    return all(bars.values())


def grow(real: Path, out: Path, copies: int = _COPIES) -> None:
    """Write a real trace several times in a row, each copy later, as one trace."""
    trace = json.loads(gzip.decompress(real.read_bytes()))
    events = trace.pop("traceEvents")
    timed = [e for e in events if e.get("ph") == "X"]
    span = max(e["ts"] + e["dur"] for e in timed) - min(e["ts"] for e in timed) + 1000

    def rows() -> Iterator[str]:
        for copy in range(copies):
            for event in events:
                if "ts" in event:
                    yield json.dumps({**event, "ts": event["ts"] + copy * span})
                elif not copy:
                    yield json.dumps(event)

    with out.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(trace)[:-1] + ', "traceEvents": [')
        for number, row in enumerate(rows()):
            stream.write(",\n" * bool(number) + row)
        stream.write("]}")


def _same_figures(out: Console, files: list[Path]) -> bool:
    done = subprocess.run(
        [sys.executable, "-m", "rerail.evals.patterns.parse", "figures", *map(str, files)],
        capture_output=True, text=True, timeout=_LIMIT_S, check=True,
    )  # fmt: skip
    rows = json.loads(done.stdout.splitlines()[-1])
    same = sum(row["ours"] == row["theirs"] for row in rows)
    out.print(
        f"kernels, their span, idle and compute time of {len(rows)} real traces: equal in {same}",
        markup=False,
    )
    for row in rows:
        if row["ours"] != row["theirs"]:
            out.print(f"differs: {row}", markup=False)
    return bool(same == len(rows))


def _measured(reader: str, path: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "rerail.evals.patterns.parse", reader, str(path)],
        capture_output=True, text=True, timeout=_LIMIT_S, check=True,
    )  # fmt: skip
    row: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return row


def _read(reader: str, path: Path) -> dict[str, float]:
    import time

    if reader == "rerail":
        import msgspec  # noqa: F401 - the import is not what is measured, as with the others

        from rerail.tools.profiles.read_trace import read_trace

        begin = time.process_time()
        read_trace(path)
    elif reader == "json.load":
        begin = time.process_time()
        with path.open(encoding="utf-8") as stream:
            json.load(stream)
    else:
        from hta.trace_analysis import TraceAnalysis

        begin = time.process_time()
        TraceAnalysis(trace_files={0: str(path)}, trace_dir=str(path.parent))
    took = time.process_time() - begin
    return {"s": took, "mb": peak_bytes() / 1e6}


def _figures(path: Path) -> dict[str, dict[str, int]]:
    """Return kernels, span, idle and compute microseconds by rerail's columns and by HTA."""
    import numpy as np
    from hta.trace_analysis import TraceAnalysis

    from rerail.tools.profiles.critical_path import Cover
    from rerail.tools.profiles.function_table import DEVICE_COMPUTE, classify
    from rerail.tools.profiles.read_trace import read_trace
    from rerail.tools.profiles.trace import COPY, KERNEL

    trace = read_trace(path)
    mine = np.isin(trace.kind, (KERNEL, COPY))
    start, end = trace.start_us[mine], (trace.start_us + trace.dur_us)[mine]
    kinds = [
        classify(trace.names[n], int(k))
        for n, k in zip(trace.name[mine], trace.kind[mine], strict=True)
    ]
    compute = np.array([kind is not None and kind.work in DEVICE_COMPUTE for kind in kinds])
    busy, computing = Cover(start, end), Cover(start[compute], end[compute])
    span = end.max() - start.min()
    ours = {
        "span": round(span), "idle": round(span - (busy.stop - busy.begin).sum()),
        "compute": round((computing.stop - computing.begin).sum()),
    }  # fmt: skip
    row = TraceAnalysis(
        trace_files={0: str(path)}, trace_dir=str(path.parent), include_last_profiler_step=True
    ).get_temporal_breakdown(visualize=False).iloc[0]  # fmt: skip
    theirs = {
        "span": round(row["kernel_time(us)"]), "idle": round(row["idle_time(us)"]),
        "compute": round(row["compute_time(us)"]),
    }  # fmt: skip
    return {"ours": ours, "theirs": theirs}


if __name__ == "__main__":
    what = sys.argv[1]
    stdout, sys.stdout = sys.stdout, open(os.devnull, "w")
    given = [Path(one).absolute() for one in sys.argv[2:]]
    answer = [_figures(one) for one in given] if what == "figures" else _read(what, given[0])
    stdout.write(json.dumps(answer) + "\n")
