"""lm-evaluation-harness, inference and metrics apart.

Inference runs its own evaluator with `predict_only` on chosen items; the metrics are its own task
objects' on the kept answers, in another process without the model.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rerail.errors import ConfigError
from rerail.recovery.evaluation.harness import function_of
from rerail.tools.evaluation.spec import Harness


class LmEvalHarness:
    """Tasks of lm-evaluation-harness; data sets of the spec are task names."""

    def __init__(self, spec: Harness) -> None:
        if importlib.util.find_spec("lm_eval") is None:
            raise ConfigError(
                "harness.kind: lm_eval is not installed", subject="harness.kind",
                hint="pip install 'rerail[evaluation]'",
            )  # fmt: skip
        self.spec = spec
        self.model: Any = None
        self._tasks: dict[str, Any] = {}
        self._manager: Any = None

    def load(self, model: Path | None) -> None:
        """Load the model: one of the harness by name, or what FILE.py:FUNCTION returns."""
        if ".py:" in self.spec.model:
            self.model = function_of(self.spec.model)(str(model) if model is not None else "")
            return
        from lm_eval.api.registry import get_model

        arguments = self.spec.model_args.format(model=model or "")
        self.model = get_model(self.spec.model).create_from_arg_string(arguments)

    def infer(self, dataset: str, first: int, last: int) -> list[Any]:
        """Return the filtered answers of the items, by filter name."""
        import lm_eval

        found = lm_eval.simple_evaluate(
            model=self.model, tasks=[dataset], task_manager=self._task_manager(),
            samples={dataset: list(range(first, last))}, predict_only=True, log_samples=True,
            bootstrap_iters=0,
        )  # fmt: skip
        answers: dict[int, dict[str, Any]] = {}
        for sample in found["samples"][dataset]:
            of_item = answers.setdefault(int(sample["doc_id"]), {})
            of_item[str(sample.get("filter", "none"))] = sample["filtered_resps"]
        # Items come back numbered within the request or within the set, by version.
        order = sorted(answers)
        return [answers[number] for number in order]

    def score(self, dataset: str, outputs: Sequence[Any]) -> dict[str, float]:
        """Return the task's own metrics, aggregated by its own rules."""
        task = self._task(dataset)
        docs = list(task.eval_docs)
        values: dict[str, list[Any]] = {}
        for doc, of_item in zip(docs, outputs, strict=True):
            for name, answers in of_item.items():
                for metric, value in task.process_results(doc, answers).items():
                    values.setdefault(f"{metric},{name}", []).append(value)
        rules = task.aggregation()
        return {key: float(rules[key.split(",")[0]](found)) for key, found in values.items()}

    def _task_manager(self) -> Any:
        if self._manager is None:
            from lm_eval.tasks import TaskManager

            folder = self.spec.tasks
            self._manager = TaskManager(include_path=folder or None, include_defaults=not folder)
        return self._manager

    def _task(self, dataset: str) -> Any:
        if dataset not in self._tasks:
            from lm_eval.tasks import get_task_dict

            self._tasks |= get_task_dict([dataset], self._task_manager())
        return self._tasks[dataset]
