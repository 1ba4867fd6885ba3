"""The site's policy file (YAML): which rules may act, budgets, breaker, where jobs keep things.

Everything defaults to the careful side: without a file every rule observes and nothing is executed.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from rerail.domain.diagnosis import Action, Status
from rerail.domain.plan import Mode
from rerail.errors import ConfigError
from rerail.knowledge_base.taxonomy import leaves


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PolicyRule(_Part):
    """One rule: the first whose conditions hold decides. Empty conditions hold always.

    `auto_from` is the weakest status of the verdict with which `auto-low` may act on the job
    itself; hardware actions always need `established` or the scheduler's own word.
    """

    id: str
    actions: tuple[Action, ...] = ()
    failure_types: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    mode: Mode = Mode.OBSERVE
    auto_from: Status = Status.ESTABLISHED

    @field_validator("failure_types")
    @classmethod
    def _known_types(cls, wanted: tuple[str, ...]) -> tuple[str, ...]:
        # A rule that a typing error keeps from matching leaves its case to the rules below it.
        for name in wanted:
            if name not in leaves():
                near = get_close_matches(name, leaves(), 1)
                said = f"; {near[0]}?" if near else ""
                raise ValueError(f"no failure type is called {name!r}{said}")
        return wanted


class Budgets(_Part):
    """Upper bounds on what happens without a person; counts are per cluster or per incident."""

    nodes_per_hour: Annotated[int, Field(ge=0)] = 3
    nodes_ratio_per_hour: Annotated[float, Field(ge=0, le=1)] = 0.02
    plans_per_incident: Annotated[int, Field(ge=1)] = 2
    restarts_without_progress: Annotated[int, Field(ge=0)] = 3
    restarts_per_job: Annotated[int, Field(ge=0)] = 20

    def nodes_allowed(self, cluster_nodes: int) -> int:
        """Return how many nodes may be drained within an hour on a cluster of that size."""
        share = int(self.nodes_ratio_per_hour * max(cluster_nodes, 0))
        return min(self.nodes_per_hour, max(1, share))


class Breaker(_Part):
    """When to stop acting on the whole cluster; only a person closes the breaker again."""

    nodes_same_finding: Annotated[int, Field(ge=2)] = 4
    actions_in_window: Annotated[int, Field(ge=2)] = 20
    window_s: Annotated[float, Field(gt=0)] = 600.0


class Repeats(_Part):
    """From which failure on, within how many days, a node is no longer met with a plain restart."""

    failures: Annotated[int, Field(ge=2)] = 3
    window_days: Annotated[float, Field(gt=0, le=90)] = 7.0


class Slow(_Part):
    """When a running job is slow enough to act on; ratios are of the step's computing time.

    A job is looked at when its slowest group has cost `after_lost_s` seconds of waiting.
    """

    least_gain_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.05
    after_lost_s: Annotated[float, Field(ge=0)] = 300.0


class Approvals(_Part):
    """How long an approval is valid, and for which actions two persons are needed."""

    expires_s: Annotated[float, Field(gt=0)] = 1800.0
    two_persons_above: Literal["low", "medium", "high"] = "medium"
    approvers: tuple[str, ...] = ()


class JobLayout(_Part):
    """Where jobs of this site keep what recovery needs.

    Patterns may hold {folder} (the job's working folder), {job} and {user}. Further logs are
    evidence that the job can write; kernel logs, with {node}, are evidence that it cannot. Reports
    of health tests count as evidence where root, rerail's own account or one of `health_owners`
    owns them and nobody else may write them.
    """

    logs: tuple[str, ...] = ()
    kernel_logs: tuple[str, ...] = ()
    scheduler_logs: tuple[str, ...] = ()
    checkpoints: str = ""
    restart_file: str = ""
    speeds: str = ""
    micro_batch_file: str = ""
    heartbeat: str = ""
    stalled_after_s: Annotated[float, Field(gt=0)] = 900.0
    dump_signal: Literal["USR1", "USR2", "QUIT"] = "USR1"
    health_command: tuple[str, ...] = ("rerail",)
    health_output: str = "/var/log/rerail/health-%j.json"
    health_owners: tuple[str, ...] = ()
    dump_wait_s: Annotated[float, Field(ge=0)] = 5.0
    group_wait_s: Annotated[float, Field(ge=0)] = 30.0
    verify_within_s: Annotated[float, Field(gt=0)] = 1800.0
    keep_evidence_days: Annotated[float, Field(gt=0)] = 30.0


class Identities(_Part):
    """What is put before scheduler commands, so that reading and writing are two identities.

    A socket is that of a slurmrestd which runs as that identity; empty means commands alone.
    """

    reader: tuple[str, ...] = ()
    writer: tuple[str, ...] = ()
    reader_socket: str = ""
    writer_socket: str = ""


class Notify(_Part):
    """Where messages go: a file of JSON lines, a command that gets the message on its input."""

    file: str = ""
    command: tuple[str, ...] = ()


class SitePolicy(_Part):
    """The whole file."""

    schema_version: Literal[1] = 1
    dry_run: bool = True
    default_mode: Mode = Mode.OBSERVE
    rules: tuple[PolicyRule, ...] = ()
    budgets: Budgets = Budgets()
    breaker: Breaker = Breaker()
    repeats: Repeats = Repeats()
    slow: Slow = Slow()
    approvals: Approvals = Approvals()
    jobs: JobLayout = JobLayout()
    identities: Identities = Identities()
    notify: Notify = Notify()
    roots: dict[str, tuple[str, ...]] = {}
    """Shared roots (a switch, a rack, a file system) and the nodes under each."""

    def rule_for(self, action: Action, failure_type: str | None, state: str) -> PolicyRule:
        """Return the first rule whose conditions hold, or the default rule."""
        for rule in self.rules:
            if rule.actions and action not in rule.actions:
                continue
            if rule.failure_types and failure_type not in rule.failure_types:
                continue
            if rule.states and state not in rule.states:
                continue
            return rule
        return PolicyRule(id="default", mode=self.default_mode)


def load_policy(path: Path | None) -> SitePolicy:
    """Read the policy file; without a path the careful defaults hold.

    Raises:
        ConfigError: The file is missing, no YAML, or has a wrong key or value; names the key.
    """
    if path is None:
        return SitePolicy()
    import yaml

    try:
        content: Any = yaml.safe_load(path.expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"policy file {str(path)!r}: {error.strerror}",
            subject=str(path),
            hint="set RERAIL_POLICY_FILE",
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        what = " ".join(str(error).split())
        raise ConfigError(
            f"policy file {path} is no YAML: {what}",
            subject=str(path),
            hint="docs/recovery.md shows a whole file",
        ) from None
    try:
        return SitePolicy.model_validate(content or {})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ConfigError(
            f"policy file {path}: {key}: {first['msg']}",
            subject=key,
            hint="docs/recovery.md lists every key",
        ) from None
