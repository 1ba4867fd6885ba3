"""Carries out recovery on Slurm through scontrol and scancel; the writer's identity, never the reader's.

Every command is built here from checked names: no text of a log or of a job reaches an argument
except through the plan's own reason, which is reduced to plain words.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence

from rerail.domain.job import JobRef
from rerail.domain.plan import ActionKind, PlannedAction
from rerail.errors import ClusterError, RecoveryError
from rerail.recovery.clusters.slurm_rights import explained
from rerail.recovery.clusters.writer import Before, Check, nothing_before
from rerail.recovery.job_file import fill_user
from rerail.tools.clusters.command import run_command
from rerail.tools.clusters.host_list import expand, is_node_name
from rerail.tools.clusters.slurm_read import SlurmReader, checked_job
from rerail.tools.clusters.slurm_records import ENDED_BADLY, RUNNING

REQUEUES = (
    ActionKind.REQUEUE,
    ActionKind.REQUEUE_EXCLUDING,
    ActionKind.RESTART_FROM_CHECKPOINT,
    ActionKind.SKIP_DATA,
)
COMPLETING_S = 20.0
SIGNALS = frozenset({"USR1", "USR2", "QUIT"})


class SlurmWriter:
    """Slurm's write face. `prefix` is the writer's identity, `("sudo", "-n", "-u", "svc-writer")`.

    `job_user` is put before what runs as the job's user, its word `{user}` filled in; empty where
    the site does not allow that.
    """

    def __init__(
        self,
        reader: SlurmReader,
        *,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        dump_signal: str = "USR1",
        health_command: Sequence[str] = ("rerail",),
        health_output: str = "/dev/null",
        job_user: Sequence[str] = (),
    ) -> None:
        self.reader = reader
        self.prefix = tuple(prefix)
        self.job_user = tuple(job_user)
        self.environment = environment
        if dump_signal not in SIGNALS:
            raise RecoveryError(
                f"dump_signal {dump_signal!r} is not one of {', '.join(sorted(SIGNALS))}",
                subject="dump_signal",
                hint="a signal for which the job prints its stacks",
            )
        self.dump_signal = dump_signal
        self.health_command = tuple(health_command)
        self.health_output = health_output

    def commands(self, action: PlannedAction, job: JobRef, incident: str) -> list[list[str]]:
        """Return exactly what `carry_out` would run now.

        Raises:
            ClusterError: Slurm does not answer; a requeue depends on the job's present state.
            RecoveryError: The action is not one of Slurm's.
        """
        number = checked_job(job.job)
        if action.kind in (ActionKind.DRAIN, ActionKind.UNDRAIN):
            return [self._node_update(action, incident)]
        if action.kind is ActionKind.CANCEL:
            return [["scancel", number]]
        if action.kind is ActionKind.COLLECT_DUMPS:
            return [["scancel", f"--signal={self.dump_signal}", number]]
        if action.kind in REQUEUES:
            return self._requeue(action, job, number)
        if action.kind is ActionKind.HEALTH_TESTS:
            return [self._health_job(action, job)]
        if action.kind is ActionKind.RESUBMIT:
            return [self._submit_again(action, job, incident)]
        raise RecoveryError(f"{action.kind} is no action on a Slurm cluster", subject=action.kind)

    def prefix_of(self, action: PlannedAction, job: JobRef) -> tuple[str, ...]:
        """Return what is put before the commands of an action: the identity that runs them.

        Raises:
            ClusterError: Slurm does not answer.
            RecoveryError: It would have to run as the job's user, and the site does not allow that.
        """
        if action.kind is not ActionKind.RESUBMIT:
            return self.prefix
        owner = self.reader.attempts(job.job)[-1].uid
        prefix = fill_user(self.job_user, owner)
        if not prefix or not owner:
            raise RecoveryError(
                "nothing may be submitted as the job's user here",
                subject=job.job,
                hint="identities.job_user in the policy file",
            )
        return prefix

    def _submit_again(self, action: PlannedAction, job: JobRef, incident: str) -> list[str]:
        """Return the owner's own sbatch command, in the job's folder, marked as submitted again.

        The words are the owner's and run as the owner: they can do nothing new.
        """
        try:
            words = shlex.split(str(action.parameters.get("submit_line", "")))
        except ValueError:
            words = []
        if words[:1] != ["sbatch"] or len(words) < 2:
            raise RecoveryError("how the job was submitted is not known", subject=job.job)
        if any(word.startswith(("--comment", "--wrap")) for word in words):
            # A comment of the owner's would hide the mark by which a second submission is noticed.
            raise RecoveryError("it was submitted with --comment or --wrap", subject=job.job)
        excluded = [str(node) for node in action.parameters.get("exclude", [])]
        if not all(map(is_node_name, excluded)):
            raise RecoveryError("an excluded name is no node name", subject=job.job)
        folder = self.reader.files(job.job).folder
        return [
            *("sbatch", f"--comment={_mark(job, incident)}"),
            *((f"--chdir={folder}",) if folder else ()),
            *((f"--exclude={','.join(excluded)}",) if excluded else ()),
            *words[1:],
        ]

    def _submitted_again(self, job: JobRef) -> list[str]:
        """Return the states of jobs that carry the mark of having been submitted again for a job."""
        shown = run_command(
            ("squeue", "-h", "-t", "all", "-o", "%T|%k"), environment=self.reader.environment
        )
        rows = (line.partition("|") for line in shown.splitlines())
        return [state for state, _, mark in rows if mark.startswith(_mark(job, ""))]

    def _health_job(self, action: PlannedAction, job: JobRef) -> list[str]:
        """Return the job that tests nodes: one task a node, alone on it, the report as its output."""
        nodes = [str(node) for node in action.parameters.get("nodes", [])]
        if not nodes or not all(map(is_node_name, nodes)):
            raise RecoveryError("the plan names no nodes to test", subject=action.kind)
        # srun starts the first task on the first node, where the batch script runs as well.
        script = (
            "export MASTER_ADDR=$(hostname) MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)); "
            f"srun --nodes={len(nodes)} --ntasks={len(nodes)} --ntasks-per-node=1 "
            f"{shlex.join([*self.health_command, 'healthcheck', '--json'])}"
        )
        return [
            *("sbatch", "--parsable", f"--job-name={_health_name(job)}", f"--nodes={len(nodes)}"),
            *(f"--nodelist={','.join(nodes)}", "--ntasks-per-node=1", "--exclusive"),
            *(f"--output={self.health_output}", "--no-requeue", "--wrap", script),
        ]

    def _node_update(self, action: PlannedAction, incident: str) -> list[str]:
        if not is_node_name(action.target):
            raise RecoveryError(f"{action.target!r} is no node name", subject=action.target)
        command = ["scontrol", "update", f"NodeName={action.target}"]
        if action.kind is ActionKind.UNDRAIN:
            return [*command, "State=RESUME"]
        return [*command, "State=DRAIN", f"Reason={drain_reason(action, incident)}"]

    def _requeue(self, action: PlannedAction, job: JobRef, number: str) -> list[list[str]]:
        excluded = [str(node) for node in action.parameters.get("exclude", [])]
        wrong = [node for node in excluded if not is_node_name(node)]
        if wrong:
            raise RecoveryError(f"{wrong[0]!r} is no node name", subject=wrong[0])
        update = ["scontrol", "update", f"JobId={number}"]
        exclusion = [[*update, f"ExcNodeList={','.join(excluded)}"]] if excluded else []
        # Slurm makes a requeued job wait two minutes unless it is told to start now.
        start = [*update, "StartTime=now"]
        if self.reader.attempts(number)[-1].attempt > job.attempt:
            return [*exclusion, start]  # Slurm has requeued it by itself
        if not excluded:
            return [["scontrol", "requeue", number], start]
        # Held first, so that it cannot start on the excluded node in between.
        return [
            ["scontrol", "requeuehold", number],
            *exclusion,
            ["scontrol", "release", number],
            start,
        ]

    def preconditions(self, action: PlannedAction, job: JobRef) -> str:
        """Return which precondition does not hold (any more), or an empty string."""
        if action.kind in (ActionKind.DRAIN, ActionKind.UNDRAIN):
            return self._node_preconditions(action, job)
        last = self.reader.attempts(job.job)[-1]
        if action.kind is ActionKind.RESUBMIT:
            if last.state not in ENDED_BADLY:
                return f"the job is {last.state.lower()}"
            return "it was submitted again already" if self._submitted_again(job) else ""
        if action.kind is ActionKind.COLLECT_DUMPS:
            return "" if last.state in RUNNING else f"the job is {last.state.lower()}, not running"
        if action.kind in REQUEUES:
            if last.attempt > job.attempt and last.state != "PENDING":
                return f"attempt {last.attempt} has started already ({last.state.lower()})"
            if last.state in ("COMPLETED", "CANCELLED"):
                return f"the job is {last.state.lower()}"
            if last.state == "RUNNING" and not action.parameters.get("running"):
                return "the job runs; only a stalled one may be ended to be restarted"
            if why := self.reader.cannot_requeue(job.job):
                return f"it cannot be requeued: {why}"
            return self._asked_by_name(action, job)
        return ""

    def _node_preconditions(self, action: PlannedAction, job: JobRef) -> str:
        nodes = self.reader.nodes([action.target])
        if not nodes:
            return f"Slurm has no node {action.target}"
        if action.kind is ActionKind.UNDRAIN:
            return "" if nodes[0].drained or nodes[0].lost else "the node is not drained"
        if nodes[0].drained:
            return f"{action.target} is drained already: {nodes[0].reason or 'no reason given'}"
        allocated = {name for one in self.reader.attempts(job.job) for name in one.nodes}
        return "" if action.target in allocated else f"{action.target} was never the job's"

    def _asked_by_name(self, action: PlannedAction, job: JobRef) -> str:
        """Return why a job cannot run without the excluded nodes, or an empty string.

        Slurm takes such an exclusion and lets the job wait for ever (BadConstraints).
        """
        excluded = {str(node) for node in action.parameters.get("exclude", [])}
        if not excluded:
            return ""
        shown = run_command(
            ("squeue", "-h", "-t", "all", "-j", checked_job(job.job), "-o", "%n"),
            environment=self.reader.environment,
        )
        both = sorted(excluded & set(expand(shown.strip())))
        if not both:
            return ""
        return f"the job asks for {', '.join(both)} by name; its owner has to submit it anew"

    def rehearse(self, action: PlannedAction, job: JobRef, incident: str) -> str:
        """Build the commands and send none: Slurm has no dry run of an update, requeue or cancel.

        Raises:
            ClusterError: Slurm does not answer.
            RecoveryError: The action is not one of Slurm's.
        """
        self.commands(action, job, incident)
        if action.kind is not ActionKind.HEALTH_TESTS:
            return "Slurm has no dry run: the preconditions were read, nothing was sent"
        # sbatch can say when and where a job would start, and submits nothing then.
        submit = self._health_job(action, job)
        tried = [submit[0], "--test-only", *submit[1:]]
        run_command((*self.prefix, *tried), environment=self.environment)
        return "sbatch --test-only accepts it"

    def carry_out(
        self, action: PlannedAction, job: JobRef, incident: str, before: Before = nothing_before
    ) -> None:
        """Run the commands in their order; the first failure ends it.

        Raises:
            ClusterError: recoverable where the controller was away.
        """
        if action.kind in REQUEUES and not self._cleaned_up(job):
            raise ClusterError(
                f"Slurm still cleans up after attempt {job.attempt} of job {job.job}",
                subject=job.job,
                recoverable=True,
            )
        for command in self.commands(action, job, incident):
            if command[-1] == "StartTime=now":
                self._hasten(command, before)
                continue
            whole = (*self.prefix_of(action, job), *command)
            before(whole)
            self._run(action, whole)

    def _run(self, action: PlannedAction, command: Sequence[str]) -> None:
        """Run one command; a refusal names the right that is missing."""
        try:
            run_command(command, environment=self.environment)
        except ClusterError as error:
            raise explained(error, action.kind) from None

    def _cleaned_up(self, job: JobRef) -> bool:
        """Wait while the last attempt is completing: Slurm refuses to requeue it meanwhile."""
        deadline = time.monotonic() + COMPLETING_S
        while time.monotonic() < deadline:
            if not self.reader.completing(job.job):
                return True
            time.sleep(0.3)
        return False

    def _hasten(self, command: list[str], before: Before) -> None:
        """Start a requeued job now, once Slurm has cleaned up after its last attempt.

        Slurm refuses while the job is completing. Where that takes too long, the job starts by
        itself after Slurm's own two minutes, so this never fails an action.
        """
        deadline = time.monotonic() + COMPLETING_S
        job = command[2].removeprefix("JobId=")
        while time.monotonic() < deadline:
            state = self.reader.attempts(job)[-1].state
            if state == "RUNNING":
                return
            # An order given while the last attempt is completing is overwritten at its end.
            if state == "PENDING" and not self.reader.completing(job):
                before((*self.prefix, *command))
                try:
                    run_command((*self.prefix, *command), environment=self.environment)
                    return
                except ClusterError as error:
                    if error.recoverable:
                        raise
            time.sleep(0.3)

    def effect(self, action: PlannedAction, job: JobRef) -> Check:
        """Say whether the action has taken effect, is under way, or never happened."""
        if action.kind is ActionKind.DRAIN:
            nodes = self.reader.nodes([action.target])
            return Check.DONE if nodes and nodes[0].drained else Check.ABSENT
        if action.kind is ActionKind.UNDRAIN:
            nodes = self.reader.nodes([action.target])
            return Check.DONE if nodes and not nodes[0].drained else Check.ABSENT
        if action.kind is ActionKind.HEALTH_TESTS:
            shown = run_command(
                ("squeue", "-h", "-t", "all", "-n", _health_name(job), "-o", "%T"),
                environment=self.reader.environment,
            ).split()
            if not shown:
                return Check.ABSENT
            running = {"PENDING", "RUNNING", "CONFIGURING", "COMPLETING"}
            return Check.PENDING if set(shown) & running else Check.DONE
        if action.kind is ActionKind.RESUBMIT:
            states = self._submitted_again(job)
            if not states:
                return Check.ABSENT
            return Check.DONE if set(states) & {"RUNNING", "COMPLETED"} else Check.PENDING
        last = self.reader.attempts(job.job)[-1]
        if action.kind is ActionKind.CANCEL:
            return Check.DONE if last.state == "CANCELLED" else Check.ABSENT
        if action.kind is ActionKind.COLLECT_DUMPS:
            return Check.DONE  # a signal leaves no trace; sending it once more does no harm
        return Check.DONE if self._requeued(action, job) else Check.ABSENT

    def _requeued(self, action: PlannedAction, job: JobRef) -> bool:
        last = self.reader.attempts(job.job)[-1]
        if last.attempt <= job.attempt:
            return False
        if not action.parameters.get("exclude") or last.state != "PENDING":
            return True
        shown = run_command(
            ("squeue", "-h", "-t", "all", "-j", checked_job(job.job), "-o", "%x|%r"),
            environment=self.reader.environment,
        )
        excluded, _, reason = shown.strip().partition("|")
        wanted = {str(node) for node in action.parameters["exclude"]}
        return wanted <= set(expand(excluded)) and "Held" not in reason

    def running_elsewhere(self, action: PlannedAction, job: JobRef) -> Check:
        """Say whether a later attempt runs, and not on an excluded node."""
        last = self.reader.attempts(job.job)[-1]
        if last.attempt <= job.attempt:
            return Check.ABSENT
        if last.state in ENDED_BADLY or last.state == "CANCELLED":
            return Check.ABSENT
        excluded = {str(node) for node in action.parameters.get("exclude", [])}
        if last.state in ("RUNNING", "COMPLETED") and not excluded & set(last.nodes):
            return Check.DONE
        return Check.PENDING


def drain_reason(action: PlannedAction, incident: str) -> str:
    """Return the reason that Slurm shows for a drained node, reduced to plain words."""
    why = re.sub(r"[^A-Za-z0-9_. -]", "", str(action.parameters.get("reason", "")))[:60]
    return f"rerail {incident} {why}".rstrip()


def _mark(job: JobRef, incident: str) -> str:
    return f"rerail-again-of-{job.job}-{incident}"


def _health_name(job: JobRef) -> str:
    return f"rerail-health-{job.job}-{job.attempt}"
