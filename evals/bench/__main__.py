"""`python -m rerail.evals.bench`: the benchmarks without the rest of the command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rerail.evals.bench.command import DATA, NAMES, QUICK_GB, bench_command


def main() -> int:
    """Parse the command line, run the benchmarks and return the exit code."""
    parser = argparse.ArgumentParser(prog="rerail.evals.bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"among {', '.join(NAMES)}")
    parser.add_argument("--size-gb", type=float, default=1.2)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_GB} GB, one run")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--keep", action="store_true", help="keep the generated logs")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    return bench_command(
        given.names,
        QUICK_GB if given.quick else given.size_gb,
        given.data,
        given.json,
        runs=1 if given.quick else given.runs,
        keep=given.keep,
    )


if __name__ == "__main__":
    sys.exit(main())
