"""What a fault-lab scenario is: how the job is started, and the truth about its failure.

The truth is what an expert can say who reads only the logs of the run, not what the lab did: where
the logs leave two answers open, both are accepted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Need = Literal[
    "root", "mount_namespace", "memory_cgroup", "pids_cgroup", "cpu_cgroup",
    "cuda", "nvcc", "compute_sanitizer", "triton", "cupy", "jax", "lightning", "transformers",
]  # fmt: skip
STANDALONE = ("--standalone", "--nproc-per-node", "4")


@dataclass(frozen=True)
class Truth:
    """The verdict that the logs support.

    Attributes:
        outcome: failure or no_failure.
        leaf: The best leaf of the taxonomy, or None for no failure.
        rank: The one culprit, or None where no single rank can be accused.
        action: The best recovery action.
        accept_outcomes: Other outcomes that an expert would accept.
        accept_leaves: Other leaves that an expert would accept.
        accept_actions: Other actions that an expert would accept.
        node: The one culprit node, where nodes have names.
        any_rank: Whether naming some ranks is fair although the fault is not theirs (they are the
            ones whose errors name the cause).
    """

    outcome: str
    leaf: str | None
    rank: int | None
    action: str
    accept_outcomes: tuple[str, ...] = ()
    accept_leaves: tuple[str, ...] = ()
    accept_actions: tuple[str, ...] = ()
    node: str | None = None
    any_rank: bool = False


@dataclass(frozen=True)
class Scenario:
    """One way to fail (or not to fail).

    Attributes:
        name: Unique name; never shown to the job or to the diagnosis.
        family: Group for the table.
        story: What happens, in one sentence.
        truth: The verdict that the logs support.
        hooks: Name of the hooks in the `faults_*` modules; empty for none.
        torchrun: Options of torchrun besides the log options; `{port}` and `{root}` are filled in.
        script: Arguments of the training script after the usual ones.
        env: Environment of the job; `{root}` is filled in.
        program: File in `programs/` that runs instead of `train.py`; `script` is all its arguments.
        launcher: What starts the program: torchrun, Python alone, or nothing (then `script` is the
            whole command).
        world: Number of ranks.
        neighbour: Arguments of `programs/neighbour.py`, which shares the GPU; empty for none.
        smi: What nvidia-smi writes into the logs: its table after the run, its details as well, or
            one row a second during the run.
        alone: Whether nothing else may run on the machine at the same time.
        needs: What the machine must offer.
        prepare: Name of the preparation of the run folder (`prepare.py`).
        setup: Shell commands run before torchrun in the same process; may mount and set limits.
        wrapper: Program that torchrun starts instead of Python, with its arguments.
        agent_signal: Signal sent to torchrun once the job trains.
        busy_port: Whether another process listens on `{port}`.
        memory_limit_mb: Limit of the memory cgroup around the job; 0 for none.
        pids_limit: Limit of the pids cgroup around the job; 0 for none.
        cpu_percent: Quota of the CPU cgroup offered to the hooks; 0 for none.
        kernel_log: Whether new lines of the kernel log belong to the evidence.
        limit_s: Wall-clock limit of the run.
        cannot: Why this scenario never runs here; empty if it can.
        quick: Whether the test suite runs it.
    """

    name: str
    family: str
    story: str
    truth: Truth
    hooks: str = ""
    torchrun: tuple[str, ...] = STANDALONE
    script: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    program: str = ""
    launcher: Literal["torchrun", "python", "none"] = "torchrun"
    world: int = 4
    neighbour: tuple[str, ...] = ()
    smi: Literal["", "after", "details", "beside"] = ""
    alone: bool = False
    needs: tuple[Need, ...] = ()
    prepare: str = ""
    setup: str = ""
    wrapper: tuple[str, ...] = ()
    agent_signal: str = ""
    busy_port: bool = False
    memory_limit_mb: int = 0
    pids_limit: int = 0
    cpu_percent: int = 0
    kernel_log: bool = False
    limit_s: float = 120
    cannot: str = ""
    quick: bool = False


def all_scenarios() -> dict[str, Scenario]:
    """Return every scenario by name, in the order of the tables."""
    from rerail.evals.faultlab import scenarios_gpu, scenarios_host, scenarios_job, scenarios_nccl

    table = (
        *(*scenarios_job.SCENARIOS, *scenarios_host.SCENARIOS),
        *(*scenarios_gpu.SCENARIOS, *scenarios_nccl.SCENARIOS),
    )
    found = {scenario.name: scenario for scenario in table}
    if len(found) != len(table):
        raise ValueError("two fault-lab scenarios have the same name")
    return found
