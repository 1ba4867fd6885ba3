"""Turns kept runs into the recorded set of `tests/data/faultlab` (real text, only paths replaced).

Run it as `python -m rerail.evals.faultlab.record RUNS DESTINATION`; RUNS is the folder that
`rerail eval faultlab --keep RUNS` filled.
"""

from __future__ import annotations

import json
import pickle
import re
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rerail.evals.faultlab.scenarios import all_scenarios

FLIGHT_RECORDER = "nccl_trace_rank_"
OTHER_UUID = "GPU-00000000-1111-2222-3333-444444444444"
PACKAGE = Path(__file__).resolve().parent


def replacements() -> list[tuple[re.Pattern[str], str]]:
    """Return what is replaced: folders of the recording machine, serial number and UUID of its GPU."""
    package = "|".join(
        re.escape(str(path))
        for path in (PACKAGE, PACKAGE.parents[1] / "src" / "rerail" / "evals" / "faultlab")
    )
    # The Python of the system lives in /usr, as much else does that belongs to no one machine.
    base = [] if sys.base_prefix == "/usr" else [sys.base_prefix]
    return [
        (re.compile(r"/[\w./-]+/run-\w{8}(?=[/\s'\"),]|$)"), "/lab/run"),
        (re.compile(package), "/lab/job"),
        (re.compile(re.escape(sys.prefix)), "/lab/venv"),
        (re.compile(r"(?<=Board Serial Number: )\d+"), "1234567890123"),
        (re.compile(r"\bGPU-[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}\b"), OTHER_UUID),
        *((re.compile(re.escape(prefix)), "/lab/python") for prefix in base),
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
            known = ("exit_code", "timed_out", "wall_s", "versions", "hosts")
            run = {key: meta[key] for key in known}
            run |= meta.get("facts", {})
        elif target.is_dir() and name in old:
            run = {**old[name]["run"], "hosts": old[name]["hosts"]}
        else:
            continue
        entries[name] = {
            "family": scenario.family,
            "story": scenario.story,
            "truth": asdict(scenario.truth),
            "world": scenario.world,
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
        data = path.read_bytes()
        if path.name.startswith(FLIGHT_RECORDER):
            # A pickle counts the letters of its strings: they are replaced inside.
            dump = pickle.loads(data)  # noqa: S301 - written by the lab's own job
            data = pickle.dumps(_replaced_in(dump, rules), protocol=2)
        else:
            data = _replaced(data.decode("utf-8", "surrogateescape"), rules).encode(
                "utf-8", "surrogateescape"
            )
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
        total += len(data)
    return total


def _replaced(text: str, rules: list[tuple[re.Pattern[str], str]]) -> str:
    for pattern, new in rules:
        text = pattern.sub(new, text)
    return text


def _replaced_in(value: Any, rules: list[tuple[re.Pattern[str], str]]) -> Any:
    if isinstance(value, str):
        return _replaced(value, rules)
    if isinstance(value, dict):
        return {key: _replaced_in(part, rules) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_replaced_in(part, rules) for part in value)
    return value


if __name__ == "__main__":
    for one, size in record(Path(sys.argv[1]), Path(sys.argv[2])).items():
        print(f"{size:8d} {one}")
