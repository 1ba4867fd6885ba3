"""What is to be evaluated and on what: data sets with their usual times, the model, the machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from rerail.tools.spec_file import SpecPart, WrongKey, check_spec, read_spec_file

MOST_SLOTS = 32_768  # GPUs, and CPUs for metrics: a plan of some seconds
MOST_ITEMS = 100_000_000
MOST_SETS = 10_000

Seconds = Annotated[float, Field(ge=0, le=1e9)]  # up to thirty years
Count = Annotated[int, Field(ge=1, le=MOST_ITEMS)]
Machines = Annotated[int, Field(ge=1, le=MOST_SLOTS)]


class DataSet(SpecPart):
    """One data set: seconds of preparation, inference on one GPU and metrics on a CPU, and its items.

    The times are priors (a former run); where they are wrong, the rest is planned anew. `generates`
    matters to the rule of OpenCompass only.
    """

    inference_s: Seconds
    prepare_s: Seconds = 0.0
    metric_s: Seconds = 0.0
    items: Count = 1
    generates: bool = True


class Model(SpecPart):
    """The model: seconds to load it from shared storage when alone, and from the node's own memory.

    With c loads at a time on a node each takes load_s x (1 + contention (c - 1)). `path` is copied to
    `memory` (a folder in the node's memory) once per node before trials start.
    """

    load_s: Seconds = 0.0
    local_load_s: Seconds = 0.0
    contention: Annotated[float, Field(ge=0, le=1000)] = 0.05
    path: str = ""
    memory: str = ""


class Cluster(SpecPart):
    """Nodes, GPUs (slots for trials) and CPUs (slots for metrics) of each."""

    nodes: Machines = 1
    gpus_per_node: Machines = 8
    cpus_per_node: Machines = 8


class Harness(SpecPart):
    """Who evaluates: lm-evaluation-harness with its task names, or any commands.

    lm_eval: `model` is a harness model name with `model_args`, or FILE.py:FUNCTION that gets the
    model's folder; `tasks` is a folder of task files. python: `model` is FILE.py:FUNCTION that returns an
    object with load, infer and score (`rerail.recovery.evaluation.harness`). command: `infer` and `metric` are run with
    {model}, {dataset}, {first}, {last}, {output} and {outputs} filled in.
    """

    kind: Literal["lm_eval", "command", "python"] = "lm_eval"
    model: str = ""
    model_args: str = ""
    tasks: str = ""
    infer: tuple[str, ...] = ()
    metric: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> Harness:
        if self.kind == "command" and not (self.infer and self.metric):
            raise ValueError("a command harness needs infer and metric commands")
        if self.kind == "python" and ".py:" not in self.model:
            raise ValueError("a python harness needs model: FILE.py:FUNCTION")
        if self.kind == "lm_eval" and not self.model:
            raise ValueError("lm_eval needs model: a harness model, or FILE.py:FUNCTION")
        return self


class EvaluationSpec(SpecPart):
    """The whole spec."""

    datasets: Annotated[dict[str, DataSet], Field(min_length=1, max_length=MOST_SETS)]
    model: Model = Model()
    cluster: Cluster = Cluster()
    harness: Harness | None = None
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    drift: Annotated[float, Field(gt=1, le=1000)] = 1.3

    @model_validator(mode="after")
    def _feasible(self) -> EvaluationSpec:
        cluster = self.cluster
        for kind in ("gpus", "cpus"):
            each = getattr(cluster, f"{kind}_per_node")
            if cluster.nodes * each > MOST_SLOTS:
                text = f"{cluster.nodes:,} nodes of {each:,} are more than {MOST_SLOTS:,} {kind[:3].upper()}s"
                raise WrongKey(f"cluster.{kind}_per_node", text)
        items = sum(one.items for one in self.datasets.values())
        if items > MOST_ITEMS:
            raise WrongKey("datasets", f"{items:,} items in all are more than {MOST_ITEMS:,}")
        return self

    @property
    def gpus(self) -> int:
        """Return the number of slots for trials."""
        return self.cluster.nodes * self.cluster.gpus_per_node

    @property
    def cpus(self) -> int:
        """Return the number of slots for metrics."""
        return self.cluster.nodes * self.cluster.cpus_per_node


def parse_evaluation(content: Any, source: str = "spec") -> EvaluationSpec:
    """Check a spec that was read from YAML.

    Raises:
        ConfigError: a key is wrong; the message names it.
    """
    return check_spec(EvaluationSpec, content, source, "docs/evaluation.md")


def read_evaluation(path: Path) -> EvaluationSpec:
    """Read a spec from a YAML file.

    Raises:
        ConfigError: the file is missing, is no YAML, or a key is wrong.
    """
    return parse_evaluation(read_spec_file(path, "rerail schedule-eval spec.yaml"), str(path))
