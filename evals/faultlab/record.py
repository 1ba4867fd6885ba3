"""Turns kept runs into the recorded set of `tests/data/faultlab` (real text, only paths replaced).

Run it as `python -m rerail.evals.faultlab.record RUNS DESTINATION`; RUNS is the folder that
`rerail eval faultlab --keep RUNS` filled.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

from rerail.evals.faultlab.scenarios import all_scenarios

PACKAGE = Path(__file__).resolve().parent


def replacements() -> list[tuple[re.Pattern[str], str]]:
    """Return what is replaced: folders of the machine that recorded, nothing else."""
    package = "|".join(
        re.escape(str(path))
        for path in (PACKAGE, PACKAGE.parents[1] / "src" / "rerail" / "evals" / "faultlab")
    )
    return [
        (re.compile(r"/[\w./-]+/run-\w{8}(?=[/\s'\"),]|$)"), "/lab/run"),
        (re.compile(package), "/lab/job"),
        (re.compile(re.escape(sys.prefix)), "/lab/venv"),
        (re.compile(re.escape(sys.base_prefix)), "/lab/python"),
    ]


def record(runs: Path, destination: Path) -> dict[str, int]:
    """Copy every kept run with its paths replaced; return the bytes of each.

    Runs that the destination holds and `runs` does not are kept with their truth of today.
    """
    rules = replacements()
    sizes = {}
    entries = {}
    truth_file = destination / "truth.json"
    old = json.loads(truth_file.read_text())["runs"] if truth_file.exists() else {}
    for name, scenario in all_scenarios().items():
        kept, target = runs / name, destination / name
        if (kept / "logs").is_dir():
            shutil.rmtree(target, ignore_errors=True)
            sizes[name] = _copy(kept / "logs", target, rules)
            meta = json.loads((kept / "meta.json").read_text())
            run = {
                key: meta[key] for key in ("exit_code", "timed_out", "wall_s", "versions", "hosts")
            }
        elif target.is_dir() and name in old:
            run = {**old[name]["run"], "hosts": old[name]["hosts"]}
        else:
            continue
        entries[name] = {
            "family": scenario.family,
            "story": scenario.story,
            "truth": asdict(scenario.truth),
            "world": 4,
            "hosts": run.pop("hosts"),
            "run": run,
        }
    truth_file.write_text(json.dumps({"schema_version": 1, "runs": entries}, indent=1) + "\n")
    return sizes


def _copy(source: Path, target: Path, rules: list[tuple[re.Pattern[str], str]]) -> int:
    total = 0
    for path in sorted(source.rglob("*")):
        if not path.is_file():
            continue
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        for pattern, new in rules:
            text = pattern.sub(new, text)
        data = text.encode("utf-8", "surrogateescape")
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
        total += len(data)
    return total


if __name__ == "__main__":
    for one, size in record(Path(sys.argv[1]), Path(sys.argv[2])).items():
        print(f"{size:8d} {one}")
