"""The daemon: takes events from the spool and the scheduler, works them off, moves plans forward.

Every round is whole in itself, and everything between rounds is in the store: it may be killed at
any moment and started again, and several may run beside each other.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from pydantic import ValidationError
from sqlalchemy import Connection, Engine

from rerail.assistant.watch.evidence import prune_evidence, prune_files
from rerail.assistant.watch.progress import step_of_live_logs
from rerail.assistant.watch.site import Site, explain
from rerail.assistant.watch.triggers import Triggers, attempts_hit
from rerail.assistant.watch.waste import Waste
from rerail.domain.job import JobEvent, JobRef, NodeEvent
from rerail.errors import RerailError
from rerail.knowledge_base.store.clock import to_iso
from rerail.knowledge_base.store.engine import reading, writing
from rerail.recovery import spool
from rerail.recovery.executor import is_gone, worker_name
from rerail.recovery.mitigation.orders import Measured
from rerail.recovery.store import audit, control, queue
from rerail.recovery.store.queue import SLOW, STALLED
from rerail.tools.clusters.kubernetes_pods import PodKeeper, PodWatch
from rerail.tools.clusters.kubernetes_read import KubernetesReader
from rerail.tools.clusters.kubernetes_watch import KubernetesWatch

CURSOR = "poll_since"
OVERLAP_S = 300.0
BATCH = 16


@dataclass
class Daemon:
    """One `rerail watch`. `say` gets one line per thing that happened."""

    site: Site
    engine: Engine
    say: Callable[[str], None] = print
    clock: Callable[[], float] = time.time
    poll_s: float = 15.0
    stop: bool = False
    _polled: float = 0.0
    _tidied: float = 0.0
    _away: bool = False
    _steps: dict[str, tuple[int | None, float]] = field(default_factory=dict)
    _waste: dict[str, Waste] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.worker = self.site.worker(self.engine, self.clock)
        self.executor = self.site.executor(self.engine, self.clock)
        self.name = worker_name()
        self._began = self.clock()
        self.triggers = Triggers()
        self.stream: KubernetesWatch | None = None
        if isinstance(self.site.reader, KubernetesReader):
            self.stream = KubernetesWatch(self.site.reader, self.say)
            self._keep_pods(self.site.reader, self.stream)

    def _keep_pods(self, reader: KubernetesReader, stream: KubernetesWatch) -> None:
        """Let failed pods be written down, and be read where the server has them no longer."""
        keeper = PodKeeper(self.site.data / "pods")
        reader.kept = keeper
        stream.kinds.append(PodWatch(reader, "Pod", lambda heard: None, self.say, keeper=keeper))

    def run(self, interval_s: float) -> None:
        """Run rounds until a signal asks to stop; the round under way is finished."""

        def end(number: int, frame: FrameType | None) -> None:
            self.stop = True

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        if self.stream is not None:
            self.stream.start()
        while not self.stop:
            busy = self.round()
            if not busy and not self.stop:
                time.sleep(interval_s)
        if self.stream is not None:
            self.stream.end()

    def round(self) -> bool:
        """Do everything that is due once; return whether there may be more at once."""
        self.tidy()
        took = self.take_spool() + self.follow_triggers() + self.take_stream()
        self.poll()
        done = self.work_off()
        moved = self.advance()
        return took + done + moved > 0

    def drain(self, limit_s: float) -> None:
        """Work until no event waits any more, or the time is over."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if self.round():
                continue
            with reading(self.engine) as connection:
                left = queue.counts(connection)
            if not left.get("waiting") and not left.get("claimed") and not self.triggers.known:
                return
            time.sleep(0.2)

    def tidy(self) -> None:
        """Remove old copies of evidence, once an hour."""
        now = self.clock()
        if now - self._tidied >= 3600.0:
            self._tidied = now
            days = self.site.policy.jobs.keep_evidence_days
            prune_evidence(self.site.data / "evidence", days, now)
            prune_files(self.site.data / "finished", days, now)
            prune_files(self.site.data / "pods", days, now)

    def take_spool(self) -> int:
        """Move what hooks left into the queue; return how many files were taken."""
        files = spool.waiting(self.site.data / spool.FOLDER)
        self.triggers.keep_only(files)
        taken: list[Path] = []
        with writing(self.engine) as connection:
            for path in files:
                if path in self.triggers.known:
                    continue
                try:
                    content = json.loads(path.read_bytes())
                    if isinstance(content, dict) and "what" in content:
                        self._hear_trigger(connection, path, NodeEvent.model_validate(content))
                        continue
                    event = JobEvent.model_validate(content)
                except FileNotFoundError:
                    continue
                except (ValueError, ValidationError, RecursionError):
                    self._refuse(connection, path, "no JobEvent")
                    continue
                if why := self._not_ours(event):
                    self._refuse(connection, path, why)
                    continue
                self._put(connection, event)
                taken.append(path)
        # Removed only after the commit: a crash in between takes them twice, which changes nothing.
        for path in taken:
            path.unlink(missing_ok=True)
        return len(taken)

    def _hear_trigger(self, connection: Connection, path: Path, event: NodeEvent) -> None:
        """Keep a trigger in the spool until it is old: its jobs may end only after it."""
        if why := self._another_cluster(event.cluster):
            self._refuse(connection, path, why)
        elif self.site.reader is None:
            why = "no scheduler is set (RERAIL_SCHEDULER) to say which jobs ran there"
            self._refuse(connection, path, why)
        else:
            self.triggers.hear(path, event)
            audit.note(connection, event.source, "trigger_received", event.key)
            self.say(f"trigger {event.what}: {event.job or ', '.join(event.nodes)}")

    def follow_triggers(self) -> int:
        """Ask which attempts the triggers hit; return how many events were new."""
        reader, now = self.site.reader, self.clock()
        if reader is None:
            return 0
        new = 0
        for path, event in self.triggers.due(now):
            try:
                found = attempts_hit(reader, event)
            except RerailError as error:
                self.say(f"trigger {event.key}: {explain(error)}; asked again")
                continue
            with writing(self.engine) as connection:
                for one in found:
                    told = JobEvent(
                        job=self._ref(one.job, one.attempt),
                        source=event.source,
                        state=one.state,
                        time=_iso(one.end or now),
                        exit_code=one.exit_code,
                        signal=one.signal,
                        extra={"trigger": event.what, "nodes": list(event.nodes)},
                    )
                    if self._put(connection, told):
                        new += 1
                        self.say(f"job {one.job} attempt {one.attempt}: {one.state}")
            if self.triggers.is_old(event, now):
                self.triggers.forget(path)
                path.unlink(missing_ok=True)
        return new

    def _refuse(self, connection: Connection, path: Path, why: str) -> None:
        spool.set_aside(path)
        audit.note(connection, "rerail", "event_refused", path.name, why=why)
        self.say(f"event refused: {why}; kept as {path.parent / spool.REJECTED / path.name}")

    def _not_ours(self, event: JobEvent) -> str:
        """Return why an event from outside must not lead to anything here, or an empty string."""
        if event.state in (STALLED, SLOW):
            # Such a verdict ends a job that runs: only what this daemon measured itself may do that.
            return f"{event.state} is measured by rerail watch and never taken from outside"
        return self._another_cluster(event.job.cluster)

    def _another_cluster(self, name: str) -> str:
        cluster = self.site.settings.cluster
        if self.site.reader is not None and name != cluster:
            # The same job number exists on each cluster.
            return f"cluster {name!r} is not the one watched here ({cluster!r}, RERAIL_CLUSTER)"
        return ""

    def _put(self, connection: Connection, event: JobEvent) -> bool:
        wait = self.site.policy.jobs.group_wait_s
        new = queue.put(connection, event, now=self.clock(), wait_s=wait)
        if new:
            audit.note(*(connection, event.source, "event_received", event.key), state=event.state)
        return new

    def take_stream(self) -> int:
        """Put what the watch streams heard into the queue; return how many events were new.

        The first list of a stream shows old failures too: those from before the first start are
        left alone, as in polling.
        """
        heard = self.stream.taken() if self.stream is not None else []
        if not heard:
            return 0
        new = 0
        with writing(self.engine) as connection:
            known = control.get(connection, CURSOR)
            since = float(known) if known is not None else self._began
            for one in heard:
                if one.ended is not None and one.ended < since:
                    continue
                event = JobEvent(
                    job=self._ref(one.job, one.attempt),
                    source="kubernetes-watch",
                    state=one.state,
                    time=_iso(one.ended or self.clock()),
                )
                if self._put(connection, event):
                    new += 1
                    self.say(f"job {one.job} attempt {one.attempt}: {one.state}")
        return new

    def poll(self) -> None:
        """Ask the scheduler what ended badly and what stands still; a controller away is said once."""
        reader = self.site.reader
        now = self.clock()
        if reader is None or now - self._polled < self.poll_s:
            return
        self._polled = now
        try:
            self._poll_ended(now)
            self._poll_running(now)
        except RerailError as error:
            if not self._away:
                self.say(f"the scheduler does not answer: {explain(error)}")
            self._away = True
            return
        if self._away:
            self.say("the scheduler answers again")
        self._away = False

    def _poll_ended(self, now: float) -> None:
        reader = self.site.reader
        if reader is None:
            return
        with writing(self.engine) as connection:
            since = control.get(connection, CURSOR)
        # A first start does not dig up failures from before it.
        found = reader.ended_badly(float(since) if since is not None else now - self.poll_s)
        with writing(self.engine) as connection:
            for one in found:
                event = JobEvent(
                    job=self._ref(one.job, one.attempt),
                    source="poll",
                    state=one.state,
                    time=_iso(one.end or now),
                    exit_code=one.exit_code,
                    signal=one.signal,
                )
                if self._put(connection, event):
                    self.say(f"job {one.job} attempt {one.attempt}: {one.state}")
            if since is None or now - OVERLAP_S > float(since):
                control.put(connection, CURSOR, now - (0 if since is None else OVERLAP_S))

    def _poll_running(self, now: float) -> None:
        """Notice jobs that run and whose step count has not moved for too long."""
        reader = self.site.reader
        if reader is None:
            return
        limit = self.site.policy.jobs.stalled_after_s
        for one in reader.running():
            files = reader.files(one.job)
            logs = [Path(name) for name in {files.stdout, files.stderr} if name]
            step = step_of_live_logs(logs)
            attempt = reader.attempts(one.job)[-1].attempt
            key = f"{one.job}/{attempt}"
            measured = self.site.speeds(self._ref(one.job, attempt), files, one.uid)
            if measured is not None:
                self._note_speeds(self._ref(one.job, attempt), measured, now)
            known, since = self._steps.get(key, (None, now))
            if step is None or step != known:
                self._steps[key] = (step, now)
                continue
            if now - since < limit:
                continue
            event = JobEvent(
                job=self._ref(one.job, attempt),
                source="progress",
                state=STALLED,
                time=_iso(since),
                extra={"last_step": step, "silent_s": round(now - since, 1)},
            )
            with writing(self.engine) as connection:
                if self._put(connection, event):
                    self.say(f"job {one.job}: no progress since step {step}, {now - since:.0f} s")

    def _note_speeds(self, job: JobRef, measured: Measured, now: float) -> None:
        """Notice a running job whose slowest group holds up the others for too long."""
        slow = self.site.policy.slow
        waste = self._waste.setdefault(job.key, Waste())
        if waste.add(measured, slow.least_gain_ratio) < slow.after_lost_s:
            return
        event = JobEvent(
            job=job,
            source="speeds",
            state=SLOW,
            time=_iso(now),
            extra={
                **measured.speeds.model_dump(mode="json"),
                "step": measured.step,
                "lost_s": round(waste.lost_s, 1),
            },
        )
        with writing(self.engine) as connection:
            if self._put(connection, event):
                self.say(f"job {job.job}: its slowest group has cost {waste.lost_s:.0f} s")

    def _ref(self, job: str, attempt: int) -> JobRef:
        return JobRef(cluster=self.site.settings.cluster, job=job, attempt=attempt)

    def work_off(self) -> int:
        """Claim due events and turn each into an incident and a plan; return how many were done."""
        with writing(self.engine) as connection:
            items = queue.claim(
                *(connection, self.name),
                now=self.clock(),
                most=BATCH,
                is_gone=is_gone,
                cluster=self.site.own_cluster,
            )
        done = 0
        for item in items:
            try:
                plan = self.worker.work(item)
            except RerailError as error:
                with writing(self.engine) as connection:
                    queue.give_back(connection, item, error.message, now=self.clock())
                self.say(f"{item.event.key}: {explain(error)}")
                continue
            except Exception as error:  # one odd event must not keep all others from being heard
                why = f"a bug in rerail: {type(error).__name__}: {error}"
                with writing(self.engine) as connection:
                    queue.give_back(connection, item, why, now=self.clock())
                self.say(f"{item.event.key}: {why}; tried again later")
                continue
            done += 1
            if plan is not None:
                steps = ", ".join(f"{one.kind} {one.target}".strip() for one in plan.actions)
                self.say(f"{plan.incident} {item.event.key}: plan {plan.id}: {steps or 'nothing'}")
                for why in plan.refusals:
                    self.say(f"  refused: {why}")
        return done

    def advance(self) -> int:
        """Move plans forward; return how many changes of state were made."""
        try:
            return self.executor.advance()
        except RerailError as error:
            self.say(f"recovery: {explain(error)}")
            return 0


def _iso(seconds: float) -> str:
    return to_iso(datetime.fromtimestamp(seconds, UTC))
