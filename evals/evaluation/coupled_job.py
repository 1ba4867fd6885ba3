"""A job of the other rules: the same program start, harness and files as a trial, but coupled.

It loads the model from shared storage together with what else loads on the node, infers its pieces,
and computes the metrics of the sets named last while it still holds its slot.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rerail.evals.evaluation.sleeper import make
from rerail.recovery.evaluation.files import RunFolder
from rerail.recovery.evaluation.task_program import stage_model
from rerail.tools.evaluation.spec import parse_evaluation


def main(folder: str, node: str, pieces: str, scored: str) -> None:
    """Infer `pieces` ([[set, first, last], ...]) and score the sets `scored`, both JSON lists."""
    spec = parse_evaluation(json.loads((Path(folder) / "spec.json").read_text()))
    run = RunFolder(Path(folder))
    harness = make()
    wanted = json.loads(pieces)
    if wanted:
        stage_model(spec.model.path, "")
        harness.load_shared(int(node))
    for name, first, last in wanted:
        run.write_output(name, first, last, harness.infer(name, first, last))
    for name in json.loads(scored):
        outputs = run.outputs(name, spec.datasets[name].items)
        run.write_metric(name, harness.score(name, outputs))


if __name__ == "__main__":
    main(*sys.argv[1:5])
