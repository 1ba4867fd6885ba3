"""What infers and scores: the interface, any commands, and who makes the one that a spec names."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from rerail.errors import ConfigError, EvidenceError
from rerail.recovery.evaluation.files import safe_name
from rerail.tools.evaluation.spec import Harness


class EvaluationHarness(Protocol):
    """Infers items of a data set on a loaded model, and scores them later without the model."""

    def load(self, model: Path | None) -> None:
        """Load the model from a folder."""

    def infer(self, dataset: str, first: int, last: int) -> list[Any]:
        """Return one output for each item, plain JSON values."""

    def score(self, dataset: str, outputs: Sequence[Any]) -> dict[str, float]:
        """Return the metrics of a data set from the outputs of all its items in order."""


def make_harness(spec: Harness) -> EvaluationHarness:
    """Return the harness of a spec.

    Raises:
        ConfigError: it is not installed, or its file or function is not there.
    """
    if spec.kind == "lm_eval":
        from rerail.recovery.evaluation.lm_eval_harness import LmEvalHarness

        return LmEvalHarness(spec)
    if spec.kind == "python":
        made: EvaluationHarness = function_of(spec.model)()
        return made
    return CommandHarness(spec)


def function_of(name: str) -> Any:
    """Return the function that FILE.py:FUNCTION names.

    Raises:
        ConfigError: there is no such file or function.
    """
    file, _, function = name.rpartition(":")
    found = importlib.util.spec_from_file_location("evaluated_model", file) if file else None
    if found is None or found.loader is None or not Path(file).is_file():
        raise ConfigError(
            f"harness.model: {name!r} names no Python file", subject="harness.model",
            hint="FILE.py:FUNCTION",
        )  # fmt: skip
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    if not hasattr(module, function):
        raise ConfigError(
            f"harness.model: {file} has no function {function!r}", subject="harness.model",
            hint="FILE.py:FUNCTION",
        )  # fmt: skip
    return getattr(module, function)


class CommandHarness:
    """Runs the site's own commands; they read and write JSON files."""

    def __init__(self, spec: Harness) -> None:
        self.spec = spec
        self.model: Path | None = None

    def load(self, model: Path | None) -> None:
        """Remember the model's folder; each command loads it by itself."""
        self.model = model

    def infer(self, dataset: str, first: int, last: int) -> list[Any]:
        """Run the infer command and return what it wrote to {output}: one entry per item."""
        output = Path(f"{safe_name(dataset)}-{first}-{last}.raw.json").absolute()
        self._run(self.spec.infer, dataset=dataset, first=first, last=last, output=output)
        found = json.loads(output.read_text())
        output.unlink()
        if not isinstance(found, list) or len(found) != last - first:
            raise EvidenceError(
                f"{dataset}: the infer command wrote no list of {last - first} outputs",
                subject=dataset, hint="write one JSON list entry per item to {output}",
            )  # fmt: skip
        return found

    def score(self, dataset: str, outputs: Sequence[Any]) -> dict[str, float]:
        """Run the metric command on a file of outputs and return the numbers that it wrote."""
        given = Path(f"{safe_name(dataset)}.outputs.json").absolute()
        output = Path(f"{safe_name(dataset)}.metric.json").absolute()
        given.write_text(json.dumps(list(outputs)))
        self._run(self.spec.metric, dataset=dataset, outputs=given, output=output)
        found = json.loads(output.read_text())
        return {str(name): float(value) for name, value in found.items()}

    def _run(self, command: Sequence[str], **values: object) -> None:
        filled = [_filled(part, {"model": self.model or "", **values}) for part in command]
        done = subprocess.run(filled, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EvidenceError(
                f"{filled[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}",
                subject=filled[0], hint=" ".join(filled),
            )  # fmt: skip


def _filled(part: str, values: dict[str, object]) -> str:
    """Fill in what is known; other braces (JSON, programs) are left as they are."""
    for name, value in values.items():
        part = part.replace(f"{{{name}}}", str(value))
    return part
