"""How events get into the queue: from the spool, from triggers that are followed, from watch streams."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue

from pydantic import ValidationError
from sqlalchemy import Connection, Engine

from rerail.assistant.watch.event_fields import wrong_fields
from rerail.assistant.watch.site import Site, explain
from rerail.assistant.watch.triggers import Triggers, attempts_hit
from rerail.domain.job import JobEvent, JobRef, NodeEvent
from rerail.domain.plan import ActionKind
from rerail.errors import RecoveryError, RerailError
from rerail.knowledge_base.store.clock import from_iso, to_iso
from rerail.knowledge_base.store.engine import reading, writing
from rerail.recovery import spool
from rerail.recovery.executor import TELLING
from rerail.recovery.store import audit, control, plans, queue
from rerail.recovery.store.queue import SLOW, STALLED
from rerail.tools.clusters.kubernetes_watch import KubernetesWatch
from rerail.tools.clusters.reader import ClusterReader
from rerail.tools.clusters.slurm_records import AttemptRecord

CURSOR = "poll_since"
AHEAD_S = 300.0
"""How far ahead of this host's clock an event may be; clocks of a cluster differ by less."""
SECOND_S = 1.0
"""Schedulers tell whole seconds: what ended in the second of our start may have ended after it."""


@dataclass
class Intake:
    """What a daemon hears. `say` gets one line per thing that happened.

    `clock` tells the time of day, which may be set; `steady` measures how long ago something was.
    """

    site: Site
    engine: Engine
    say: Callable[[str], None] = print
    clock: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic
    _said: dict[str, str] = field(default_factory=dict)
    _strange: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._began = self.clock()
        self.triggers = Triggers()
        self.lost: SimpleQueue[str] = SimpleQueue()
        self.stream: KubernetesWatch | None = None

    def _say_once(self, part: str, text: str) -> None:
        if self._said.get(part) != text:
            self.say(text)
        self._said[part] = text

    def _ref(self, job: str, attempt: int) -> JobRef:
        return JobRef(cluster=self.site.settings.cluster, job=job, attempt=attempt)

    def take_spool(self) -> int:
        """Move what hooks left into the queue; return how many files were taken."""
        folder = self.site.data / spool.FOLDER
        found = spool.waiting(folder)
        self.triggers.keep_only(found.files)
        taken: list[Path] = []
        for path, why in found.strange.items():
            self._set_strange_aside(path, why)
        new = [path for path in found.files if path not in self.triggers.known]
        if not new:
            return 0
        with writing(self.engine) as connection:
            for path in new:
                try:
                    content = json.loads(spool.read(path))
                    if isinstance(content, dict) and "what" in content:
                        self._hear_trigger(connection, path, NodeEvent.model_validate(content))
                        continue
                    event = self._event(content)
                except FileNotFoundError:
                    continue
                except ValidationError as error:
                    self._refuse(connection, path, f"no job event: {wrong_fields(error)}")
                    continue
                except RerailError as error:
                    self._refuse(connection, path, error.message)
                    continue
                except (ValueError, RecursionError):
                    self._refuse(connection, path, "no JSON")
                    continue
                if why := self._not_ours(event):
                    self._refuse(connection, path, why)
                    continue
                self._put(connection, event)
                taken.append(path)
        # Removed only after the commit: a crash in between takes them twice, which changes nothing.
        for path in taken:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self._say_once(f"unlink {path}", f"{path} cannot be removed: {error.strerror}")
        return len(taken)

    def _event(self, content: object) -> JobEvent:
        if not isinstance(content, dict):
            raise RecoveryError("no job event: a JSON object is expected", subject="event")
        event = JobEvent.model_validate(content)
        try:
            ahead = from_iso(event.time).timestamp() - self.clock()
        except ValueError:
            raise RecoveryError(
                f"no job event: time: {event.time!r} is no ISO 8601 time", subject="time"
            ) from None
        if ahead > AHEAD_S:
            raise RecoveryError(
                f"time: {event.time} lies {ahead:.0f} s in the future: is a clock wrong?",
                subject="time",
            )
        return event

    def _set_strange_aside(self, path: Path, why: str) -> None:
        """Put away what is no event of an account that may leave one; once said where that fails."""
        if str(path) in self._strange:
            return
        with writing(self.engine) as connection:
            try:
                self._refuse(connection, path, why)
            except RerailError as error:
                self._strange.add(str(path))
                audit.note(connection, "rerail", "event_refused", path.name, why=why)
                self.say(f"event refused: {why}; {error.message}")

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
                self._say_once(f"trigger {event.key}", f"trigger {event.key}: {explain(error)}")
                continue
            known: list[AttemptRecord] = []
            with writing(self.engine) as connection:
                for one in found:
                    told = JobEvent(
                        job=self._ref(one.job, one.attempt),
                        source=event.source,
                        state=one.state,
                        time=iso_of(one.end or now),
                        exit_code=one.exit_code,
                        signal=one.signal,
                        extra={"trigger": event.what, "nodes": list(event.nodes)},
                    )
                    if self._put(connection, told):
                        new += 1
                        self.say(f"job {one.job} attempt {one.attempt}: {one.state}")
                    elif event.nodes:
                        known.append(one)
            new += sum(self._revisit(reader, one, event.nodes) for one in known)
            if self.triggers.is_old(event, now):
                self.triggers.forget(path)
                path.unlink(missing_ok=True)
        return new

    def _revisit(self, reader: ClusterReader, attempt: AttemptRecord, nodes: Sequence[str]) -> int:
        """Decide anew on a failure that was told before it was known that its node is lost.

        Which of the two a scheduler tells first is chance; what is done must not depend on it.
        """
        key = self._ref(attempt.job, attempt.attempt).key
        with reading(self.engine) as connection:
            incident = queue.incident_to_revisit(connection, key)
            made = plans.of_incident(connection, incident) if incident else []
            steps = [row for plan in made for row in plans.states(connection, plan)]
        if incident is None or any(
            row.action.kind is ActionKind.DRAIN
            or (row.carried_out_at and row.action.kind not in TELLING)
            for row in steps
        ):
            return 0
        own = sorted(set(nodes) & set(attempt.nodes))
        lost = [one.node for one in reader.nodes(own) if one.lost] if own else []
        if not lost or reader.attempts(attempt.job)[-1].attempt > attempt.attempt:
            return 0
        with writing(self.engine) as connection:
            if not queue.revisit(connection, key, nodes=lost, now=self.clock()):
                return 0
        shown = ", ".join(lost)
        self.say(f"job {attempt.job} attempt {attempt.attempt}: {shown} is lost; planned anew")
        return 1

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
        new = queue.put(connection, event, now=self.clock())
        if new:
            audit.note(*(connection, event.source, "event_received", event.key), state=event.state)
        return new

    def take_stream(self) -> int:
        """Put what the watch streams heard into the queue; return how many events were new.

        The first list of a stream shows old failures too: those from before the first start are
        left alone, as in polling. What a stream tells after its first list is new, whatever time it
        names: clocks differ, and a server writes whole seconds.
        """
        heard = self.stream.taken() if self.stream is not None else []
        self._hear_lost_nodes()
        if not heard:
            return 0
        new = 0
        with writing(self.engine) as connection:
            known = control.get(connection, CURSOR)
            since = (float(known) if known is not None else self._began) - SECOND_S
            for one in heard:
                if one.listed and one.ended is not None and one.ended < since:
                    continue
                event = JobEvent(
                    job=self._ref(one.job, one.attempt),
                    source="kubernetes-watch",
                    state=one.state,
                    time=iso_of(one.ended or self.clock()),
                )
                if self._put(connection, event):
                    new += 1
                    self.say(f"job {one.job} attempt {one.attempt}: {one.state}")
        return new

    def _hear_lost_nodes(self) -> None:
        """Follow a node that a stream reports as lost, as a trigger of Slurm is followed."""
        while not self.lost.empty():
            node = self.lost.get()
            event = NodeEvent(
                cluster=self.site.settings.cluster,
                what="down",
                nodes=(node,),
                source="kubernetes-watch",
                time=iso_of(self.clock()),
            )
            folder = self.site.data / spool.FOLDER
            spool.leave(folder, event.model_dump_json().encode())


def iso_of(seconds: float) -> str:
    """Return a time in seconds since the epoch as the store writes it."""
    return to_iso(datetime.fromtimestamp(seconds, UTC))
