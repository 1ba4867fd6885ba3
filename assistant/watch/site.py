"""Puts the parts of recovery together for this site: policy, adapters, worker, executor."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from rerail.assistant.watch.evidence import fill
from rerail.assistant.watch.progress import step_of_live_logs
from rerail.assistant.watch.readers import slurm_reader
from rerail.assistant.watch.worker import Worker
from rerail.domain.incident import EntrySource, TimelineEntry
from rerail.domain.job import JobEvent, JobRef
from rerail.domain.plan import ActionKind, ActionState, RecoveryPlan
from rerail.errors import ClusterError, RecoveryError, RerailError
from rerail.knowledge_base.store.clock import now_iso
from rerail.knowledge_base.store.engine import data_folder, reading, writing
from rerail.knowledge_base.store.incidents import append
from rerail.recovery.brake import Brake, brake_for
from rerail.recovery.clusters.kubernetes_write import KubernetesWriter
from rerail.recovery.clusters.slurm_rest_write import SlurmRestWriter
from rerail.recovery.clusters.slurm_write import SlurmWriter
from rerail.recovery.clusters.writer import ClusterWriter
from rerail.recovery.executor import Executor
from rerail.recovery.job_file import JobFile, fill_user
from rerail.recovery.live_policy import LivePolicy, open_policy
from rerail.recovery.mitigation.orders import Measured, MicroBatchWriter, read_speeds
from rerail.recovery.signing import signing_key
from rerail.recovery.site_policy import SitePolicy
from rerail.recovery.store import queue
from rerail.recovery.store.plans import ActionRow
from rerail.settings import Settings, load_settings
from rerail.tools.clusters.kubernetes_read import KubernetesReader
from rerail.tools.clusters.reader import ClusterReader
from rerail.tools.clusters.slurm_read import JobFiles, SlurmReader
from rerail.tools.clusters.slurm_rest import SlurmRest


@dataclass(frozen=True, slots=True)
class Site:
    """What every recovery command needs; the writer is only made for who executes."""

    settings: Settings
    policy: SitePolicy
    data: Path
    reader: ClusterReader | None
    live: LivePolicy | None = None

    @property
    def own_cluster(self) -> str | None:
        """The cluster whose scheduler is asked here, or None without a scheduler."""
        return None if self.reader is None else self.settings.cluster

    def writer(self) -> ClusterWriter | None:
        """Return the cluster adapter with the writer's identity, or None without a cluster."""
        if isinstance(self.reader, KubernetesReader):
            return KubernetesWriter(self.reader, self.reader.api)
        if not isinstance(self.reader, SlurmReader):
            return None
        identities, jobs = self.policy.identities, self.policy.jobs
        if identities.writer_socket:
            return SlurmRestWriter(
                self.reader,
                SlurmRest(identities.writer_socket),
                prefix=identities.writer,
                dump_signal=jobs.dump_signal,
                health_command=jobs.health_command,
                health_output=jobs.health_output,
                job_user=identities.job_user,
            )
        return SlurmWriter(
            self.reader,
            prefix=identities.writer,
            dump_signal=jobs.dump_signal,
            health_command=jobs.health_command,
            health_output=jobs.health_output,
            job_user=identities.job_user,
        )

    def worker(self, engine: Engine, clock: Callable[[], float] = time.time) -> Worker:
        """Return what turns events into plans."""
        return Worker(
            *(engine, self.policy, self.data, self.reader, clock),
            brake=self.brake(),
            order_hindrance=self.order_hindrance,
        )

    def brake(self) -> Brake:
        """Return what stops all writing of this site."""
        return brake_for(self.data, self.policy.stop_files)

    def executor(
        self,
        engine: Engine,
        clock: Callable[[], float] = time.time,
        say: Callable[[str], None] = lambda text: None,
    ) -> Executor:
        """Return what carries plans out; `say` is told of what people have to know.

        Raises:
            RecoveryError: The key of approvals cannot be used.
        """
        writer = self.writer()
        return Executor(
            engine,
            self.policy,
            signing_key(self.data),
            clock,
            writer_for=lambda plan: writer,
            restart_file=self.restart_file,
            live_step=self.live_step,
            finished=self.finished,
            job_writer=self.job_writer(),
            on_change=lambda row, state, note: self._changed(engine, row, state, note, say),
            say=say,
            cluster=self.own_cluster,
            memory=self.data / "finished",
            live=self.live,
            brake=self.brake(),
        )

    def _changed(
        self,
        engine: Engine,
        row: ActionRow,
        state: ActionState,
        note: str,
        say: Callable[[str], None],
    ) -> None:
        if state in (ActionState.FAILED, ActionState.UNKNOWN, ActionState.EXPIRED) and note:
            what = f"{row.action.kind} {row.action.target}".rstrip()
            say(f"{row.plan.id} step {row.action.step}, {what}: {state}: {note}")
        self._tell_timeline(engine, row, state, note)
        if row.action.kind is ActionKind.COLLECT_DUMPS and state is ActionState.VERIFIED:
            # The restart that follows may overwrite the job's output, so it is read again first.
            time.sleep(self.policy.jobs.dump_wait_s)
            with reading(engine) as connection:
                event = queue.event_of(connection, f"{row.plan.job.key}/stalled")
            if event is not None:
                self.worker(engine).look_again(event)
        if row.action.kind is ActionKind.HEALTH_TESTS and state is ActionState.VERIFIED:
            with reading(engine) as connection:
                event = queue.event_of(connection, row.plan.job.key)
            if event is not None:
                self._plan_again(engine, row, event)

    def _plan_again(self, engine: Engine, row: ActionRow, event: JobEvent) -> None:
        """Decide anew with the report of the tests; what hinders it is for a person to read."""
        try:
            plan = self.worker(engine).plan_again(event)
            text = f"{plan.id} was made with the report of the health tests"
        except RerailError as error:
            text = f"no plan was made with the report of the health tests: {explain(error)}"
        with writing(engine) as connection:
            append(
                connection,
                row.plan.incident,
                TimelineEntry(
                    time=now_iso(), source=EntrySource.RECOVERY, kind="tested", text=text
                ),
            )

    def restart_file(self, plan: RecoveryPlan) -> JobFile | None:
        """Return where the job of a plan reads its restart orders."""
        return self._order_file(self.policy.jobs.restart_file, plan.job)

    def _order_file(
        self, pattern: str, job: JobRef, files: JobFiles | None = None, uid: int | None = None
    ) -> JobFile | None:
        """Return a file that orders something of a job, and as whom it is written."""
        path = self._job_file(pattern, job, files)
        if path is None or self.reader is None:
            return None
        owner = self.reader.attempts(job.job)[-1].uid if uid is None else uid
        if owner is None:
            raise RecoveryError(
                f"whose job {job.job} is, is not known: nothing is written to {path}",
                subject=job.job,
                hint="is accounting set up? rerail doctor",
            )
        as_user = fill_user(self.policy.identities.job_user, owner)
        return JobFile(path, owner, as_user, self.policy.jobs.job_file_command)

    def order_hindrance(self, job: JobRef, kind: ActionKind) -> str:
        """Return why no order could be written into the job's folder now, or an empty string."""
        jobs = self.policy.jobs
        micro = kind is ActionKind.MICRO_BATCHES
        try:
            file = self._order_file(jobs.micro_batch_file if micro else jobs.restart_file, job)
            if file is not None:
                file.check()
        except ClusterError as error:
            if error.recoverable:
                raise
            return error.message
        except RecoveryError as error:
            return error.message
        return ""

    def _job_file(self, pattern: str, job: JobRef, files: JobFiles | None = None) -> Path | None:
        """Return a file of one job from its pattern in the policy, or None where it is not known."""
        if not pattern or self.reader is None:
            return None
        files = self.reader.files(job.job) if files is None else files
        if "{folder}" in pattern and not files.folder:
            return None
        event = JobEvent(job=job, source="plan", state="", time=now_iso())
        # Not a glob here: the folder's own characters are taken as they are.
        return Path(
            fill(pattern.replace("{folder}", "\0"), event, files).replace("\0", files.folder or "")
        )

    def job_writer(self) -> MicroBatchWriter:
        """Return what writes to the files of running jobs."""
        return MicroBatchWriter(self.micro_batch_file, self.speeds, self._runs)

    def micro_batch_file(self, job: JobRef) -> JobFile | None:
        """Return where a job reads its micro-batch orders."""
        return self._order_file(self.policy.jobs.micro_batch_file, job)

    def speeds(
        self, job: JobRef, files: JobFiles | None = None, uid: int | None = None
    ) -> Measured | None:
        """Return what a job measured of its groups last, or None.

        The scheduler is asked for `files` and `uid` of the job where the caller does not know them.
        """
        path = self._job_file(self.policy.jobs.speeds, job, files)
        if path is None or self.reader is None:
            return None
        return read_speeds(path, self.reader.attempts(job.job)[-1].uid if uid is None else uid)

    def _runs(self, job: JobRef) -> bool:
        last = self.reader.attempts(job.job)[-1] if self.reader is not None else None
        return last is not None and last.state == "RUNNING" and last.attempt == job.attempt

    def finished(self, plan: RecoveryPlan) -> bool:
        """Return whether a later attempt of a plan's job has ended well."""
        if self.reader is None:
            return False
        last = self.reader.attempts(plan.job.job)[-1]
        return last.state == "COMPLETED" and last.attempt > plan.job.attempt

    def live_step(self, plan: RecoveryPlan) -> int | None:
        """Return the step that the log of a plan's job shows now, or None."""
        if self.reader is None:
            return None
        files = self.reader.files(plan.job.job)
        owner = self.reader.attempts(plan.job.job)[-1].uid
        logs = [Path(name) for name in {files.stdout, files.stderr} if name]
        return step_of_live_logs(logs, owner)

    def _tell_timeline(self, engine: Engine, row: ActionRow, state: ActionState, note: str) -> None:
        text = (
            f"{row.plan.id} step {row.action.step}, {row.action.kind} {row.action.target}".strip()
        )
        with writing(engine) as connection:
            append(
                connection,
                row.plan.incident,
                TimelineEntry(
                    time=now_iso(),
                    source=EntrySource.RECOVERY,
                    kind=str(state),
                    text=f"{text}: {state}" + (f" ({note})" if note else ""),
                    actor="rerail",
                    data={"plan": row.plan.id, "step": row.action.step, "state": str(state)},
                ),
            )


def load_site() -> Site:
    """Return the site as settings and policy file describe it.

    Raises:
        ConfigError: A setting or the policy file is not usable.
        ClusterError: Kubernetes is chosen and its client or configuration is missing.
    """
    settings = load_settings()
    live = open_policy(settings.policy_file)
    policy = live.began
    reader: ClusterReader | None = None
    if settings.scheduler == "slurm":
        reader = slurm_reader(policy)
    elif settings.scheduler == "kubernetes":
        reader = KubernetesReader()
    return Site(settings, policy, data_folder(settings), reader, live)


def explain(error: RerailError) -> str:
    """Return an error as one line for a daemon's log."""
    return f"{error.message}" + (f" (try: {error.hint})" if error.hint else "")
