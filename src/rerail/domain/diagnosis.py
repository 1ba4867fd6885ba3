"""The verdict and its parts, as `rerail diagnose --json` prints them (schema version 1)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from rerail.domain.plain_values import AtLeast
from rerail.domain.record import Record

LineNumber = Annotated[int, AtLeast(1)]


class Outcome(StrEnum):
    """Whether the evidence shows a failure."""

    FAILURE = "failure"
    NO_FAILURE = "no_failure"
    INCONCLUSIVE = "inconclusive"


class Status(StrEnum):
    """How firmly the evidence holds the cause; a closed set of words, never a percentage."""

    ESTABLISHED = "established"
    SUPPORTED = "supported"
    HYPOTHESIS = "hypothesis"
    UNKNOWN = "unknown"


class Layer(StrEnum):
    """Whose layer failed (Acme, NSDI'24, table 3)."""

    INFRASTRUCTURE = "infrastructure"
    FRAMEWORK = "framework"
    SCRIPT = "script"


class Action(StrEnum):
    """The closed catalogue of recommended actions (taxonomy, section 1)."""

    NONE = "none"
    RESTART_AS_IS = "restart_as_is"
    DRAIN_NODE = "drain_node_and_restart_elsewhere"
    EXCLUDE_NODE = "restart_and_exclude_suspect_node"
    HEALTH_TESTS = "run_node_health_tests"
    REDUCE_MEMORY = "reduce_memory_then_restart"
    FIX_CONFIG = "fix_config_then_restart"
    FIX_CODE = "fix_code_or_config_do_not_restart"
    FIX_DATA = "fix_data_then_restart"
    ROLL_BACK = "roll_back_to_previous_checkpoint"
    ROLL_BACK_SKIP = "roll_back_checkpoint_and_skip_data"
    FREE_SPACE = "free_space_then_restart_from_checkpoint"
    UPGRADE = "restart_with_upgraded_library"
    REQUEUE = "requeue"
    PAGE_HUMAN = "page_human"
    RESULTS_COMPLETE = "no_action_results_complete"
    USER_STOP = "no_action_user_stop"


class FirstFault(Record):
    """The line where the failure began, and where in the machine that was."""

    file: str
    line: LineNumber
    text: str
    time: str | None = None
    rank: int | None = None
    node: str | None = None
    gpu: int | None = None
    rule: str | None = None


class GpuRef(Record):
    """One GPU: an index, a PCI address or a UUID, on a node if that is known."""

    node: str | None = None
    gpu: int | str


class Suspects(Record):
    """Who is held responsible; empty lists mean that nobody is accused."""

    ranks: list[int] = []
    nodes: list[str] = []
    gpus: list[GpuRef] = []


class Evidence(Record):
    """One cited line with its causal role."""

    id: str
    file: str
    line: LineNumber
    text: str
    role: Literal["initiating", "cascade", "teardown", "context"]
    time: str | None = None
    rank: int | None = None
    node: str | None = None
    rule: str | None = None


class Consequence(Record):
    """What the first fault did to others, folded to one entry per kind."""

    failure_type: str
    count: int
    ranks: list[int] = []
    what: str = ""


class RuledOut(Record):
    """A rival cause and why it lost."""

    failure_type: str
    because: str
    evidence: list[str] = []


class Reason(Record):
    """One link of the chain that places the first fault: what was concluded, why, and the cited line."""

    what: str
    because: str
    evidence: str | None = None


class Relation(Record):
    """One event that explains another one; both are cited lines."""

    cause: str
    effect: str
    because: str


class Missing(Record):
    """Evidence that was not to be had, and how to get it."""

    what: str
    how_to_get: str


class Targets(Record):
    """What the recommended action is aimed at."""

    nodes: list[str] = []
    ranks: list[int] = []


class Recovery(Record):
    """The recommended action; nothing is executed by a diagnosis."""

    action: Action
    targets: Targets = Targets()
    reason: str = ""


class Cost(Record):
    """What the failure cost: idle GPU hours and training steps lost since the last checkpoint.

    `detection_s` are the seconds until anything was reported, part of the idle time; `covers` says in
    words what each figure covers, `left_out` why a figure is missing.
    """

    idle_gpu_hours: float | None = None
    lost_steps: int | None = None
    gpus: int | None = None
    detection_s: float | None = None
    covers: list[str] = []
    left_out: list[str] = []


class AgainstForecast(Record):
    """Step times that were seen beside those of a forecast; seconds, ratio of the medians.

    `slower` says that the usual step is above the forecast's p95; `lost_s` is what the steps took more
    than the forecast's mean.
    """

    forecast: str
    steps: int
    observed_p50_s: float
    expected_p50_s: float
    expected_p95_s: float
    ratio: float
    slower: bool
    slower_from_start: bool
    lost_s: float
    says: str


class BesideGood(Record):
    """One number of the run beside good runs of the same job (`--baseline`).

    `status` is established, supported, hypothesis, unknown (it cannot be known), or same; `observed` and
    `expected` are levels from `since_step` on, `noise` is a relative standard deviation.
    """

    series: str
    what: str
    status: str
    says: str
    worse: bool = False
    since_step: int | None = None
    observed: float | None = None
    expected: float | None = None
    noise: float | None = None


class SlowFunction(Record):
    """A function that profiles show to behave differently on some ranks (64 at most); seconds a step."""

    function: str
    kind: str
    ranks: list[int]
    nodes: list[str]
    reason: str
    lost_per_step_s: float


class FromProfiles(Record):
    """What profiles among the evidence say, beside the verdict of the logs; the dearest function first.

    `outcome` is that of `rerail localize`; `ranks` and `steps` count what was profiled.
    """

    outcome: str
    ranks: int
    steps: int
    step_time_s: float
    says: str
    functions: list[SlowFunction] = []


class Attempt(Record):
    """One start of the job inside the evidence, and whether it made progress."""

    number: int
    first_step: int | None = None
    last_step: int | None = None
    ended: str = ""


class PastFailure(Record):
    """An earlier incident that was held against a node; `time` is ISO 8601 in UTC."""

    incident: str
    time: str
    failure_type: str


class NodeHistory(Record):
    """What the store knows of an accused node, as evidence for the choice of an action."""

    node: str
    days: float
    failures: list[PastFailure] = []
    says: str = ""


class Diagnosis(Record):
    """The verdict on one job attempt (contracts, `rerail diagnose --json`).

    `headline` is one sentence: who failed, at what, what it did to the others, since when. `summary`
    goes on with what is known of the cause. Records of before the headline have none.
    """

    schema_version: Literal[1] = 1
    outcome: Outcome
    status: Status
    failure_type: str | None
    category: str | None
    layer: Layer | None
    headline: str = ""
    summary: str
    first_fault: FirstFault | None
    suspects: Suspects = Suspects()
    evidence: list[Evidence] = []
    consequences: list[Consequence] = []
    ruled_out: list[RuledOut] = []
    place: list[Reason] = []
    relations: list[Relation] = []
    missing: list[Missing] = []
    recovery: Recovery
    cost: Cost = Cost()
    attempts: list[Attempt] = []
    forecast: AgainstForecast | None = None
    baseline: list[BesideGood] = []
    profiles: FromProfiles | None = None
    progress: dict[str, Any] = {}
    history: list[NodeHistory] = []
    incident: str | None = None
    model: dict[str, Any] | None = None
    elapsed_s: float = 0.0
