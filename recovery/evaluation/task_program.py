"""The program of one task, run by a runner: stage the model, try a node out, infer, or score.

Argument: the task's folder with task.json. Each piece's output is a file as soon as it is there, so
that a task that dies has lost its last piece only. result.json tells how it ended.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from rerail.recovery.evaluation.files import RunFolder, claim
from rerail.recovery.evaluation.harness import EvaluationHarness, make_harness
from rerail.recovery.evaluation.identity import files_digest
from rerail.recovery.safe_files import write_file
from rerail.tools.evaluation.spec import EvaluationSpec, parse_evaluation


def stage_model(path: str, memory: str) -> Path | None:
    """Return the model's folder in the node's memory, copied there once per node.

    A copy is made beside and renamed, so that several tasks may do it at the same time. Its name tells
    which files were copied: another model of the same name is copied beside it.
    """
    if not path:
        return None
    source = Path(path)
    if not memory:
        return source
    target = Path(memory) / f"{source.name}-{files_digest(source)}"
    if target.exists():
        return target
    partial = target.with_name(f"{target.name}.{os.uname().nodename}.{os.getpid()}")
    partial.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, partial)
    else:
        shutil.copy2(source, partial)
    try:
        partial.rename(target)
    except OSError:
        # Another task was faster; its copy is as good.
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)
    return target


def run_task(folder: Path) -> None:
    """Do what task.json says."""
    task = json.loads((folder / "task.json").read_text())
    spec = parse_evaluation(task["spec"])
    run = RunFolder(Path(task["run"]))
    os.chdir(folder)
    named = (os.environ.get(one) for one in ("RERAIL_EVALUATION_NODE", "SLURMD_NODENAME"))
    node = next((one for one in named if one), "")
    write_file(folder / "where.json", json.dumps({"node": node}).encode())
    begin = time.monotonic()
    result: dict[str, Any] = {"kind": task["kind"], "pieces": []}
    if task["kind"] == "stage":
        stage_model(spec.model.path, spec.model.memory)
    elif task["kind"] == "probe":
        _loaded(spec)
    elif task["kind"] == "metric":
        result["errors"] = _score(spec, run, task["datasets"])
    else:
        _infer(spec, run, task["pieces"], result, folder, begin)
    result["seconds"] = time.monotonic() - begin
    ok = not result.get("errors")
    write_file(folder / "result.json", json.dumps({"ok": ok, **result}).encode())


def _loaded(spec: EvaluationSpec) -> EvaluationHarness:
    assert spec.harness is not None
    harness = make_harness(spec.harness)
    harness.load(stage_model(spec.model.path, spec.model.memory))
    return harness


def _infer(
    spec: EvaluationSpec, run: RunFolder, pieces: list[dict[str, Any]], result: dict[str, Any],
    folder: Path, begin: float,
) -> None:  # fmt: skip
    harness = _loaded(spec)
    result["load_s"] = time.monotonic() - begin
    for number, piece in enumerate(pieces):
        if not claim(folder, number):
            continue  # the coordinator has given it to another trial
        at = time.monotonic()
        outputs = harness.infer(piece["dataset"], piece["first"], piece["last"])
        run.write_output(piece["dataset"], piece["first"], piece["last"], outputs)
        result["pieces"].append({**piece, "took_s": time.monotonic() - at})
        write_file(folder / "progress.json", json.dumps(result).encode())


def _score(spec: EvaluationSpec, run: RunFolder, datasets: list[str]) -> dict[str, str]:
    """Write the metrics of each set; return why a set has none."""
    assert spec.harness is not None
    harness = make_harness(spec.harness)
    errors = {}
    for name in datasets:
        try:
            outputs = run.outputs(name, spec.datasets[name].items)
            run.write_metric(name, harness.score(name, outputs))
        except Exception as error:  # the other sets are scored all the same
            traceback.print_exc()
            errors[name] = f"{type(error).__name__}: {error}"
    return errors


def main() -> int:
    """Run the task of the given folder; 0 when done, 1 when it failed."""
    folder = Path(sys.argv[1])
    try:
        run_task(folder)
    except Exception as error:  # the coordinator reads why, whatever it was
        traceback.print_exc()
        told = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        write_file(folder / "result.json", json.dumps(told).encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
