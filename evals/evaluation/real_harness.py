"""lm-evaluation-harness with a tiny model: the spec of a run, and its own undivided run beside it."""

from __future__ import annotations

from pathlib import Path

from rerail.tools.evaluation.spec import EvaluationSpec, parse_evaluation


def harness_spec(folder: Path, sizes: dict[str, int], gpus: int = 2) -> EvaluationSpec:
    """Make model and tasks in the folder and return the spec that evaluates them."""
    from rerail.evals.evaluation import tiny_model

    tiny_model.make_model(folder / "model")
    tiny_model.make_tasks(folder / "tasks", sizes)
    return parse_evaluation(
        {
            "datasets": {
                name: {"inference_s": count / 10, "items": count, "metric_s": 1.0}
                for name, count in sizes.items()
            },
            "model": {
                "path": str(folder / "model"), "memory": str(folder / "memory"), "load_s": 1.0,
            },
            "cluster": {"nodes": 1, "gpus_per_node": gpus, "cpus_per_node": 1},
            "harness": {
                "kind": "lm_eval", "model": f"{tiny_model.__file__}:load",
                "tasks": str(folder / "tasks"),
            },
        }
    )  # fmt: skip


def direct_metrics(folder: Path, tasks: list[str]) -> dict[str, dict[str, float]]:
    """Return the metrics of the harness' own run over the whole tasks, errors left out."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    from rerail.evals.evaluation.tiny_model import load

    found = lm_eval.simple_evaluate(
        model=load(str(folder / "model")), tasks=list(tasks), bootstrap_iters=0,
        task_manager=TaskManager(include_path=str(folder / "tasks"), include_defaults=False),
    )  # fmt: skip
    return {
        name: {
            key: float(value)
            for key, value in values.items()
            if "," in key and "stderr" not in key and isinstance(value, int | float)
        }
        for name, values in found["results"].items()
    }
