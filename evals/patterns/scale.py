"""How long the comparison takes for many workers: bars E1 and E2, and a million workers."""

from __future__ import annotations

import json
import subprocess
import sys

from rich.console import Console
from rich.table import Table

from rerail.evals.patterns.peak_memory import peak_bytes

_REPEATS = 3
_LIMIT_S = 600


def scale_table(out: Console) -> bool:
    """Measure in processes of their own, so that memory is theirs alone; return whether bars hold."""
    rows = {size: measured(*size) for size in ((10_000, 200), (100_000, 200), (100_000, 1000))}
    million = measured(1_000_000, 20)
    table = Table(title="differences() on synthetic patterns, 16 roles")
    for name in (
        "workers x functions",
        "CPU seconds",
        "memory / input",
        "found of 20",
        "false pairs",
    ):
        table.add_column(name, justify="right")
    for (workers, functions), row in [*rows.items(), ((1_000_000, 20), million)]:
        table.add_row(
            f"{workers:,} x {functions}", f"{row['s']:.2f}", f"{row['memory']:.1f}",
            f"{row['found']:.0f}", f"{row['false']:.0f}",
        )  # fmt: skip
    out.print(table)
    small, large = rows[10_000, 200], rows[100_000, 200]
    out.print(
        f"1,000,000 x 200, EXTRAPOLATED from 20 functions (cost is linear in functions, which are read "
        f"one after the other): {10 * million['s']:.0f} s",
        markup=False,
    )
    pairs = large["pairwise_s"]
    blind = large["blind_false"]
    out.print(
        f"sampled pairs (EROICA), extrapolated from 2 functions: {pairs:.0f} s, "
        f"{pairs / large['s']:.0f} times as long; without roles {blind:.0f} false pairs",
        markup=False,
    )
    wide = rows[100_000, 1000]
    bars = {
        "100,000 workers x 200 functions in about a second": large["s"] <= 1.5,
        "100,000 x 1,000 in under 10 s": wide["s"] < 10,
        "E1: 30 times faster than sampled pairs": pairs >= 30 * large["s"],
        "E1: time of 100,000 <= 15 x that of 10,000": large["s"] <= 15 * small["s"],
        "E1: memory <= 4 x input": max(r["memory"] for r in rows.values()) <= 4,
        "E2: without roles >= 100 x the false pairs": blind >= 100 * max(large["false"], 1),
    }
    for name, held in bars.items():
        out.print(f"{'held' if held else 'NOT HELD'}: {name}", markup=False)
    return all(bars.values())


def measured(workers: int, functions: int) -> dict[str, float]:
    """Return what one size measured, in seconds and as a ratio of memory to input."""
    command = [sys.executable, "-m", "rerail.evals.patterns.scale", str(workers), str(functions)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=True)
    row: dict[str, float] = json.loads(done.stdout)
    return row


def _measure(workers: int, functions: int) -> dict[str, float]:
    import time

    import numpy as np

    from rerail.evals.patterns.baselines import differential
    from rerail.tools.profiles.distance import differences

    random = np.random.default_rng(7)
    role = random.integers(0, 16, workers)
    usual = random.lognormal(-5.5, 1.0, (functions, 3, 16)).astype(np.float32)
    pattern = np.empty((functions, 3, workers), dtype=np.float32)
    for f in range(functions):
        noise = 1 + 0.03 * random.standard_normal((3, workers), dtype=np.float32)
        pattern[f] = usual[f][:, role] * noise
    guilty = set()
    for _ in range(20):
        f, w = int(random.integers(min(functions, 20))), int(random.integers(workers))
        pattern[f, 0, w] = max(pattern[f, 0, w], 0.01) * 1.6
        guilty.add((f, w))
    times = []
    for _ in range(_REPEATS):
        # Time of this process and not of the clock: others may use the machine.
        begin = time.process_time()
        found = differences(pattern, role)
        times.append(time.process_time() - begin)
    memory = peak_bytes() / pattern.nbytes
    named = set(zip(found.function.tolist(), found.worker.tolist(), strict=True))
    out = {
        "s": min(times), "memory": memory, "found": float(len(named & guilty)),
        "false": float(len(named - guilty)),
    }  # fmt: skip
    if (workers, functions) == (100_000, 200):
        begin = time.process_time()
        differential(pattern[:2], random)
        out["pairwise_s"] = (time.process_time() - begin) * functions / 2
        blind = differences(pattern, np.zeros(workers, dtype=np.int64))
        out["blind_false"] = float(len(blind.function))
    return out


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(int(sys.argv[1]), int(sys.argv[2]))) + "\n")
