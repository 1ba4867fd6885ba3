"""The site's policy file (YAML): which rules may act, budgets, breaker, where jobs keep things.

Everything defaults to the careful side: without a file every rule observes and nothing is executed.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from rerail.domain.diagnosis import Action, Status
from rerail.domain.plan import ActionKind, Mode
from rerail.errors import ConfigError
from rerail.knowledge_base.taxonomy import leaves
from rerail.recovery.notify_services import Alertmanager, Apprise, PagerDuty, Slack, web_address


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


FIELDS = ("folder", "job", "user", "node")
"""What a pattern of the policy may hold in braces."""
STATES = (
    *("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "BOOT_FAIL", "DEADLINE"),
    *("COMPLETED", "CANCELLED", "RUNNING", "UNKNOWN"),
)
"""The scheduler's words for an attempt, of Slurm and of Kubernetes' kinds in Slurm's words.

RUNNING is a job that stands still or is slow; UNKNOWN one of which no scheduler told.
"""
PRIVILEGED_PORTS = 1024
"""Below this number only root can listen on a machine."""


def _check_fields(pattern: str, *, beyond_the_job: bool = False) -> str:
    """Return a pattern; refuse unknown fields, and those that lead to where jobs write.

    `beyond_the_job` is for evidence that must not come from the job.
    """
    known = [one for one in FIELDS if not beyond_the_job or one in ("job", "node")]
    for name in re.findall(r"\{(\w*)\}", pattern):
        if beyond_the_job and name in FIELDS and name not in known:
            raise ValueError(f"{{{name}}} in {pattern!r} is a place where the job can write")
        if name not in known:
            shown = ", ".join(f"{{{one}}}" for one in known)
            raise ValueError(f"unknown field {{{name}}} in {pattern!r}; known: {shown}")
    return pattern


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

    @field_validator("states")
    @classmethod
    def _known_states(cls, wanted: tuple[str, ...]) -> tuple[str, ...]:
        for name in wanted:
            if name not in STATES:
                raise ValueError(f"no state is called {name!r}; accepted: {', '.join(STATES)}")
        return wanted

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
    """How long an approval is valid, and for which actions two persons are needed.

    `approvers` may decide on everything, `approvers_of` on one kind of action each; where neither
    names anybody for an action, everybody who can read the key may. `agreed_before_auto` proposals
    in a row, agreed to and verified, carry a rule's `auto-low` (`rerail policy readiness`).
    """

    expires_s: Annotated[float, Field(gt=0)] = 1800.0
    two_persons_above: Literal["low", "medium", "high"] = "medium"
    approvers: tuple[str, ...] = ()
    approvers_of: dict[ActionKind, tuple[str, ...]] = {}
    agreed_before_auto: Annotated[int, Field(ge=1)] = 10

    def allowed(self, kind: ActionKind | None) -> tuple[str, ...]:
        """Return who may decide on an action, or on everything; empty where nobody is named."""
        own = () if kind is None else self.approvers_of.get(kind, ())
        return tuple(dict.fromkeys((*self.approvers, *own)))

    @property
    def names_somebody(self) -> bool:
        """Whether a name decides who may do what."""
        return bool(self.approvers or self.approvers_of)


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
    stalled_after_s: Annotated[float, Field(gt=0)] = 900.0
    dump_signal: Literal["USR1", "USR2", "QUIT"] = "USR1"
    health_command: tuple[str, ...] = ("rerail",)
    health_output: str = "/var/log/rerail/health-%j.json"
    health_owners: tuple[str, ...] = ()
    job_file_command: tuple[str, ...] = ("rerail-job-file",)
    resubmit: bool = False
    dump_wait_s: Annotated[float, Field(ge=0)] = 5.0
    group_wait_s: Annotated[float, Field(ge=0)] = 30.0
    verify_within_s: Annotated[float, Field(gt=0)] = 1800.0
    keep_evidence_days: Annotated[float, Field(gt=0)] = 30.0

    @field_validator(
        *("checkpoints", "restart_file", "speeds", "micro_batch_file", "health_output")
    )
    @classmethod
    def _known_fields(cls, pattern: str) -> str:
        return _check_fields(pattern)

    @field_validator("logs")
    @classmethod
    def _fields_of_logs(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_check_fields, patterns))

    @field_validator("kernel_logs", "scheduler_logs")
    @classmethod
    def _not_the_job_s(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(_check_fields(one, beyond_the_job=True) for one in patterns)

    @field_validator("kernel_logs")
    @classmethod
    def _of_one_node(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        # One file for all would be held against every node of the job.
        for one in patterns:
            if "{node}" not in one:
                raise ValueError(f"{one!r} has to hold {{node}}: of which node does it tell?")
        return patterns


class Dcgm(_Part):
    """Where DCGM's word on the nodes is read: evidence that no job can have written.

    `files` are exposition text or outputs of dcgmi that root, rerail's account or one of `owners`
    wrote, {node} in their path. `exporters` are URLs with {node}; on a node of the job, a job can
    listen on any port from 1024 on, so an exporter needs a certificate (https), a lower port, or
    the site's word that `jobs_cannot_listen` there. `commands` print an output of dcgmi for {node}
    and run as `identities.reader`. `prometheus` is a server's URL; `selector` has to single out the
    site's own exporters by labels that Prometheus sets itself, since a pod may serve any metric.
    """

    files: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    exporters: tuple[str, ...] = ()
    jobs_cannot_listen: bool = False
    commands: tuple[tuple[str, ...], ...] = ()
    prometheus: str = ""
    selector: str = ""
    node_label: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")] = "Hostname"
    ca_file: str = ""
    token_file: str = ""
    look_back_s: Annotated[float, Field(gt=0, le=86_400)] = 3600.0
    limit_s: Annotated[float, Field(gt=0, le=60)] = 5.0

    @property
    def configured(self) -> bool:
        """Whether any source is named."""
        return bool(self.files or self.exporters or self.commands or self.prometheus)

    @field_validator("files")
    @classmethod
    def _files_of_nodes(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for one in patterns:
            _check_fields(one, beyond_the_job=True)
            if "{node}" not in one:
                raise ValueError(f"{one!r} has to hold {{node}}: of which node does it tell?")
        return patterns

    @field_validator("commands")
    @classmethod
    def _commands_of_nodes(cls, found: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        for one in found:
            for word in one:
                _check_fields(word, beyond_the_job=True)
            if not any("{node}" in word for word in one):
                raise ValueError(f"{' '.join(one)!r} has to hold {{node}}")
        return found

    @model_validator(mode="after")
    def _cannot_be_forged(self) -> Dcgm:
        for url in (*self.exporters, self.prometheus):
            parts = urlsplit(url.replace("{node}", "node"))
            if url and (parts.scheme not in ("http", "https") or not parts.hostname):
                raise ValueError(f"{url!r} is no http:// or https:// address")
        for url in self.exporters:
            _check_fields(url, beyond_the_job=True)
            if "{node}" not in url:
                raise ValueError(f"{url!r} has to hold {{node}}")
            parts = urlsplit(url.replace("{node}", "node"))
            safe = parts.scheme == "https" or (parts.port or 80) < PRIVILEGED_PORTS
            if not safe and not self.jobs_cannot_listen:
                raise ValueError(
                    f"{url!r}: a job can listen on port {parts.port} of its node and answer for DCGM; "
                    "use https, a port below 1024, or say jobs_cannot_listen: true"
                )
        if self.prometheus and not re.search(r'\w+\s*=~?\s*".+"', self.selector):
            raise ValueError(
                "prometheus needs a selector, 'job=\"dcgm-exporter\"' for example: "
                "without one any pod that serves metrics could answer for DCGM"
            )
        return self


class Identities(_Part):
    """What is put before scheduler commands, so that reading and writing are two identities.

    A socket is that of a slurmrestd which runs as that identity; empty means commands alone.
    `job_user` writes order files and submits again as the job's user; empty means that rerail's own
    account writes them, and that nothing is submitted.
    """

    reader: tuple[str, ...] = ()
    writer: tuple[str, ...] = ()
    job_user: tuple[str, ...] = ()
    reader_socket: str = ""
    writer_socket: str = ""

    @field_validator("job_user")
    @classmethod
    def _names_the_user(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        if words and "{user}" not in words:
            raise ValueError("job_user has to hold the word {user}: whose account is it otherwise?")
        return words


class Webhooks(_Part):
    """What a sender of webhooks may name: logs only below these folders; none by default."""

    log_folders: tuple[str, ...] = ()


class Notify(_Part):
    """Where messages go: a file of JSON lines, a command that gets the message on its input, services.

    `page` is the address under which people reach `rerail serve`; messages of services link to it.
    """

    file: str = ""
    command: tuple[str, ...] = ()
    page: str = ""
    slack: Slack | None = None
    pagerduty: PagerDuty | None = None
    alertmanager: Alertmanager | None = None
    apprise: Apprise | None = None
    _known = field_validator("page")(web_address)


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
    dcgm: Dcgm = Dcgm()
    identities: Identities = Identities()
    notify: Notify = Notify()
    webhooks: Webhooks = Webhooks()
    stop_files: tuple[str, ...] = ()
    """Files whose mere presence stops all writing, besides `STOP` in the data folder."""
    roots: dict[str, tuple[str, ...]] = {}
    """Shared roots (a switch, a rack, a file system) and the nodes under each."""

    @field_validator("rules")
    @classmethod
    def _told_apart(cls, rules: tuple[PolicyRule, ...]) -> tuple[PolicyRule, ...]:
        # A step is held against the mode of the rule of its name.
        seen = {"default", "undo", "shared-root"}
        for rule in rules:
            if rule.id in seen:
                raise ValueError(f"the id {rule.id!r} is taken; each rule needs its own")
            seen.add(rule.id)
        return rules

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
        text = path.expanduser().read_text(encoding="utf-8")
        content: Any = yaml.safe_load(text)
        _refuse_doubles(yaml.compose(text, yaml.SafeLoader), path)
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
            f"policy file {path}: {key}: {_what_is_wrong(first)}",
            subject=key,
            hint="docs/recovery.md lists every key",
        ) from None


def _refuse_doubles(node: Any, path: Path, above: tuple[int, ...] = ()) -> None:
    """Refuse a mapping that holds a key twice: YAML would silently take the last one.

    Raises:
        ConfigError: Names the key and its line.
    """
    if node is None or isinstance(node.value, str) or id(node) in above:
        return  # an alias may lead back to what holds it
    seen: set[str] = set()
    for one in node.value:
        key, inner = one if isinstance(one, tuple) else (None, one)
        if key is not None:
            if key.value in seen and isinstance(key.value, str):
                raise ConfigError(
                    f"policy file {path} line {key.start_mark.line + 1}: {key.value} stands there twice",
                    subject=key.value,
                    hint="keep one of the two",
                )
            seen.add(str(key.value))
        _refuse_doubles(inner, path, (*above, id(node)))


def _what_is_wrong(error: ErrorDetails) -> str:
    """Return a finding of the checker with the word that was given, and the accepted ones."""
    said = error["msg"].removeprefix("Value error, ")
    if error["type"] in ("enum", "literal_error"):
        return f"{error['input']!r} is not accepted; {said[0].lower()}{said[1:]}"
    if error["type"] == "extra_forbidden":
        return "there is no such key"
    return said
