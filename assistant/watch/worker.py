"""Works one event off: evidence, diagnosis, incident, policy, plan. Executing is somebody else's."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy import Connection, Engine

from rerail.assistant.pipeline import Outcome, diagnose_paths
from rerail.assistant.record import make_incident
from rerail.assistant.watch.evidence import Evidence, allowed_logs, collect_evidence, fill
from rerail.assistant.watch.groups import join, root_of
from rerail.assistant.watch.groups import members as group_members
from rerail.assistant.watch.history import history_of, note_progress
from rerail.assistant.watch.note_plan import note_plan
from rerail.assistant.watch.progress import bad_data, last_step
from rerail.domain.diagnosis import Action, Diagnosis, Layer, Recovery, Status
from rerail.domain.diagnosis import Outcome as Result
from rerail.domain.incident import EntrySource, Incident, TimelineEntry
from rerail.domain.job import Allocation, JobEvent, JobRef, NodeShare
from rerail.domain.plan import ActionKind, ActionState, RecoveryPlan
from rerail.errors import ClusterError, EvidenceError
from rerail.knowledge_base.store.clock import now_iso, to_iso
from rerail.knowledge_base.store.engine import writing
from rerail.knowledge_base.store.incidents import append, record
from rerail.knowledge_base.taxonomy import leaves
from rerail.log_parsers.text import clean
from rerail.recovery.brake import Brake
from rerail.recovery.checkpoints import find_checkpoints
from rerail.recovery.executor import TELLING
from rerail.recovery.job_file import fill_user
from rerail.recovery.policy import decide, tell_of_parent
from rerail.recovery.signing import signing_key
from rerail.recovery.site_policy import SitePolicy
from rerail.recovery.situation import CheckpointFact, GroupSpeeds, Situation
from rerail.recovery.store import control, plans, queue
from rerail.recovery.store.queue import SLOW, STALLED, Claimed
from rerail.tools.clusters.attempt_span import AttemptSpan
from rerail.tools.clusters.reader import ClusterReader
from rerail.tools.clusters.slurm_records import AttemptRecord

STILL_RUNNING = (STALLED, SLOW)
MOST_PROBLEMS = 8


@dataclass
class Worker:
    """Turns events into incidents and plans.

    `reader` is the cluster's read-only face, or None where events bring their logs themselves.
    `order_hindrance` says why no order could be written into a job's folder now.
    """

    engine: Engine
    policy: SitePolicy
    data: Path
    reader: ClusterReader | None = None
    clock: Callable[[], float] = time.time
    brake: Brake = field(default_factory=Brake)
    order_hindrance: Callable[[JobRef, ActionKind], str] = lambda job, kind: ""

    def work(self, item: Claimed) -> RecoveryPlan | None:
        """Work one event off and mark it done, or give it back for later.

        Returns:
            The plan, or None where the event was given back or waits for others like it.
        """
        try:
            plan, incident = self._handle(item.event, item)
        except ClusterError as error:
            with writing(self.engine) as connection:
                queue.give_back(connection, item, error.message, now=self.clock())
            return None
        if plan is None:
            return None
        with writing(self.engine) as connection:
            queue.finish(connection, item.id, now=self.clock(), incident=incident)
        return plan

    def plan_again(self, event: JobEvent) -> RecoveryPlan:
        """Collect and decide once more, after health tests for example; the plan is stored.

        Raises:
            RerailError: The scheduler does not answer, or the evidence cannot be read.
        """
        plan, _ = self._handle(event)
        assert plan is not None  # only an event of the queue is deferred
        return plan

    def _handle(
        self, event: JobEvent, item: Claimed | None = None
    ) -> tuple[RecoveryPlan | None, str]:
        """Work an event off; `item` is given where it may be deferred, and the plan is None then."""
        span = self._attempt(event)
        attempt = span.attempt
        folder = self.data / "evidence" / _plain(event.job.cluster) / _plain(event.key)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        evidence = self._evidence(event, span, folder)
        try:
            return self._decide(event, attempt, evidence, folder, item)
        finally:
            evidence.close()

    def _evidence(self, event: JobEvent, span: AttemptSpan, folder: Path) -> Evidence:
        if self.reader is not None:
            return self._collect(event, span, self.reader, folder)
        paths, left_out = allowed_logs(event, self.policy.webhooks.log_folders)
        return Evidence(paths=paths, problems=left_out)

    def _decide(
        self,
        event: JobEvent,
        attempt: AttemptRecord,
        evidence: Evidence,
        folder: Path,
        item: Claimed | None,
    ) -> tuple[RecoveryPlan | None, str]:
        outcome = self._diagnose(evidence, folder, event)
        if event.state == STALLED:
            outcome = replace(outcome, diagnosis=stalled(outcome.diagnosis, event))
        if event.state == SLOW:
            outcome = replace(outcome, diagnosis=slowed(outcome.diagnosis, event))
        incident = self._incident(outcome, evidence, event, attempt)
        with writing(self.engine) as connection:
            record(connection, incident)
            append(connection, incident.id, _heard(event))
            for entry in _of_evidence(event, evidence):
                append(connection, incident.id, entry)
            steps = note_progress(connection, event.job, last_step(outcome))
            lost = [one.node for one in evidence.attested if one.source == "scheduler"]
            now = self.clock()
            root = root_of(outcome.diagnosis, attempt.nodes, lost, self.policy)
            parent, members, new_parent = join(connection, incident, root, now)
            if new_parent and parent is not None:
                queue.hasten(connection, group_members(connection, parent), now)
            if item is not None and parent is None and self._waits(connection, item, root, members):
                until = item.received_at + self.policy.jobs.group_wait_s
                why = f"waits for other failures that share {root}"
                queue.defer(connection, item, why, until=until, incident=incident.id)
                return None, incident.id
            history = history_of(
                *(connection, event.job, incident.id, outcome.diagnosis, steps, self.policy, now)
            )
            if why := self.brake.why(connection):
                history = history.model_copy(update={"breaker_open": True, "stopped": why})
            situation = self._situation(event, attempt, evidence, outcome, incident).model_copy(
                update={"history": history, "parent": parent}
            )
            self._close_before(connection, event, incident.id, now)
            if history.nodes_same_finding >= self.policy.breaker.nodes_same_finding:
                control.trip(
                    connection,
                    f"{history.nodes_same_finding} nodes show {outcome.diagnosis.failure_type} "
                    f"within {self.policy.breaker.window_s:g} s",
                )
            plan = decide(situation, self.policy)
            key = signing_key(self.data)
            plans.save(connection, plan, key)
            if parent is not None and new_parent:
                plans.save(connection, tell_of_parent(parent, root, event.job, now), key)
            folded = (
                f" (one of {members} that share {root}: {parent})" if parent is not None else ""
            )
            note_plan(connection, plan, folded)
        return plan, incident.id

    def _waits(self, connection: Connection, item: Claimed, root: str, members: int) -> bool:
        """Tell whether a failure should wait for others: it shares a root, and another one is open.

        A failure that stands alone is planned for at once.
        """
        now, wait_s = self.clock(), self.policy.jobs.group_wait_s
        if not root or now >= item.received_at + wait_s:
            return False
        return members > 1 or queue.others_open(connection, item, now - wait_s) > 0

    def _close_before(
        self, connection: Connection, event: JobEvent, incident: str, now: float
    ) -> None:
        """End what still waits in earlier plans of an incident that is decided on anew."""
        if "node_lost" not in event.extra:
            return
        for plan in plans.of_incident(connection, incident):
            for row in plans.states(connection, plan):
                if row.state is ActionState.PROPOSED and row.action.kind not in TELLING:
                    note = "planned anew: a node of the job was lost"
                    plans.move(
                        *(connection, row, ActionState.EXPIRED), actor="rerail", now=now, note=note
                    )

    def _collect(
        self, event: JobEvent, span: AttemptSpan, reader: ClusterReader, folder: Path
    ) -> Evidence:
        return collect_evidence(
            *(event, span, reader, self.policy.jobs, folder),
            dcgm=self.policy.dcgm,
            as_reader=self.policy.identities.reader,
            webhook_folders=self.policy.webhooks.log_folders,
        )

    def _attempt(self, event: JobEvent) -> AttemptSpan:
        """Return the attempt as the scheduler knows it, not as the event claims it, and those beside it."""
        if self.reader is None:
            return AttemptSpan(
                AttemptRecord(
                    event.job.job, event.job.attempt, event.state, event.allocation.names()
                )
            )
        known = self.reader.attempts(event.job.job)
        for before, one, behind in zip([None, *known], known, [*known[1:], None], strict=False):
            if one.attempt == event.job.attempt:
                if one.state == "RUNNING" and event.state not in STILL_RUNNING:
                    # A controller that was restarted may not know yet that the attempt is over.
                    raise ClusterError(
                        f"{event.key} ended ({event.state}), and the scheduler says that it runs",
                        subject=event.key,
                        recoverable=True,
                    )
                state = event.state if event.state in STILL_RUNNING else one.state
                return AttemptSpan(replace(one, state=state), before, behind)
        raise ClusterError(
            f"the scheduler knows no attempt {event.job.attempt} of job {event.job.job} yet",
            subject=event.key,
            recoverable=True,
        )

    def _diagnose(self, evidence: Evidence, folder: Path, event: JobEvent) -> Outcome:
        try:
            return diagnose_paths(evidence.paths)
        except EvidenceError:
            # No log at all: the scheduler's own words are evidence too.
            folder.joinpath("event.txt").write_text(f"JobState={event.state}\n")
            return diagnose_paths([folder])

    def _incident(
        self, outcome: Outcome, evidence: Evidence, event: JobEvent, attempt: AttemptRecord
    ) -> Incident:
        incident = make_incident(
            outcome, evidence.paths, job=event.job.job, attempt=event.job.attempt
        )
        allocation = Allocation(nodes=tuple(NodeShare(node=name) for name in attempt.nodes))
        snapshot = incident.snapshot
        if attempt.nodes and not snapshot.allocation.nodes:
            snapshot = snapshot.model_copy(update={"allocation": allocation})
        return incident.model_copy(update={"snapshot": snapshot, "job": event.job})

    def _situation(
        self,
        event: JobEvent,
        attempt: AttemptRecord,
        evidence: Evidence,
        outcome: Outcome,
        incident: Incident,
    ) -> Situation:
        action = outcome.diagnosis.recovery.action
        rolls_back = action in (Action.ROLL_BACK, Action.ROLL_BACK_SKIP)
        bad = bad_data(outcome) if rolls_back else None
        cluster_nodes = len(self.reader.nodes()) if self.reader is not None else 0
        slow = attempt.state == SLOW
        hindrance = ""
        if rolls_back or slow:
            kind = ActionKind.MICRO_BATCHES if slow else ActionKind.RESTART_FROM_CHECKPOINT
            hindrance = self.order_hindrance(event.job, kind)
        return Situation(
            incident=incident.id,
            job=event.job,
            state="RUNNING" if attempt.state in STILL_RUNNING else attempt.state,
            nodes=attempt.nodes,
            cluster_nodes=cluster_nodes,
            diagnosis=outcome.diagnosis,
            attested=tuple(evidence.attested),
            died_by_signal=evidence.died_by_signal,
            stalled=attempt.state == STALLED,
            tested=evidence.tested,
            slow=attempt.state == SLOW,
            speeds=speeds_of(event) if attempt.state == SLOW else None,
            checkpoints=self._checkpoints(event, attempt, evidence) if rolls_back else (),
            order_hindrance=hindrance,
            **self._starts_again(event, attempt),
            bad_from=bad.first if bad else None,
            bad_to=bad.last if bad else None,
            now=self.clock(),
        )

    def _starts_again(self, event: JobEvent, attempt: AttemptRecord) -> dict[str, str]:
        """Return why the scheduler could not start the job again, and how it was submitted."""
        if self.reader is None or event.state == SLOW:
            return {}
        why = self.reader.cannot_requeue(event.job.job)
        if not why:
            return {}
        layout = self.policy.jobs
        user = fill_user(self.policy.identities.job_user, attempt.uid)
        allowed = layout.resubmit and bool(user) and attempt.uid != 0
        line = self.reader.submit_line(event.job.job)
        return {
            "cannot_requeue": why,
            "submit_line": line,
            "may_resubmit": "yes" if allowed and line else "",
        }

    def _checkpoints(
        self, event: JobEvent, attempt: AttemptRecord, evidence: Evidence
    ) -> tuple[CheckpointFact, ...]:
        pattern = self.policy.jobs.checkpoints
        if not pattern:
            return ()
        return find_checkpoints(fill(pattern, event, evidence.files), attempt.uid)

    def look_again(self, event: JobEvent) -> None:
        """Read the job's files once more and add what they say now, stack dumps for example."""
        if self.reader is None:
            return
        span = self._attempt(event)
        attempt = span.attempt
        folder = self.data / "evidence" / _plain(event.job.cluster) / _plain(event.key + "-dumps")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        evidence = self._collect(event, span, self.reader, folder)
        try:
            outcome = self._diagnose(evidence, folder, event)
            outcome = replace(outcome, diagnosis=stalled(outcome.diagnosis, event))
            incident = self._incident(outcome, evidence, event, attempt)
        finally:
            evidence.close()
        with writing(self.engine) as connection:
            record(connection, incident)
            append(
                connection,
                incident.id,
                TimelineEntry(
                    time=now_iso(),
                    source=EntrySource.RECOVERY,
                    kind="dumps",
                    text=f"what the job printed when asked for its stacks is kept in {folder.name}",
                    data={"folder": str(folder)},
                    key=f"dumps:{event.key}",
                ),
            )


def speeds_of(event: JobEvent) -> GroupSpeeds | None:
    """Return the speeds that an event about a slow job brings, or None where they are no speeds."""
    fields = ("unit_time_s", "micro_batches", "communication")
    try:
        return GroupSpeeds.model_validate({k: event.extra[k] for k in fields if k in event.extra})
    except ValidationError:
        return None


def slowed(diagnosis: Diagnosis, event: JobEvent) -> Diagnosis:
    """Return the verdict on a job that runs and is slow; what its logs establish stays.

    The groups' own times say which one is slow, not why: the part behind it is left open.
    """
    speeds = speeds_of(event)
    if diagnosis.outcome is Result.FAILURE or speeds is None:
        return diagnosis
    times = speeds.unit_time_s
    worst = max(range(len(times)), key=times.__getitem__)
    typical = sorted(times)[(len(times) - 1) // 2]
    return _measured(
        diagnosis,
        "fail_slow_unexplained",
        f"Group {worst} of {len(times)} takes {times[worst] / typical:.2f} times as long for "
        f"a micro-batch as a typical one ({times[worst]:.4g} s, {typical:.4g} s); "
        f"the others have waited {event.extra.get('lost_s')} s for it.",
        Recovery(
            action=Action.HEALTH_TESTS,
            reason="slow for a reason that no log names: give it less work, test its node later",
        ),
    )


def stalled(diagnosis: Diagnosis, event: JobEvent) -> Diagnosis:
    """Return the verdict on a job that runs and stands still, where its logs name no cause.

    The watcher measured the stall; what the logs establish stays.
    """
    if diagnosis.outcome is Result.FAILURE:
        return diagnosis
    silent, step = event.extra.get("silent_s"), event.extra.get("last_step")
    return _measured(
        diagnosis,
        "nccl_timeout_unexplained",
        f"The job runs but has made no progress for {silent} s, since step {step}; "
        "no log names a cause.",
        Recovery(
            action=Action.RESTART_AS_IS,
            reason="a hang without a known cause: collect stacks, restart",
        ),
    )


def _measured(diagnosis: Diagnosis, leaf: str, summary: str, recovery: Recovery) -> Diagnosis:
    """Return a verdict that rests on what the watcher measured, not on any line."""
    return diagnosis.model_copy(
        update={
            "outcome": Result.FAILURE,
            "status": Status.SUPPORTED,
            "failure_type": leaf,
            "category": leaves()[leaf].category,
            "layer": Layer.INFRASTRUCTURE,
            "summary": summary,
            "recovery": recovery,
        }
    )


def _plain(text: str) -> str:
    return "".join(char if char.isalnum() or char in "._-" else "-" for char in text)[:120]


def _of_evidence(event: JobEvent, evidence: Evidence) -> Iterator[TimelineEntry]:
    """Yield what attests a fault of the machine, and what was to be read and could not be."""
    for one in evidence.attested:
        what = f"{one.source} attests of {one.node}: {one.what}"
        yield TimelineEntry(
            time=now_iso() if one.at is None else to_iso(datetime.fromtimestamp(one.at, UTC)),
            source=EntrySource.RECOVERY,
            kind="attested",
            text=clean(what.encode()),
            data=one.model_dump(mode="json", exclude_none=True),
            key=_key("attested", event, what),
        )
    if evidence.problems:
        shown = [clean(one.encode())[:300] for one in evidence.problems]
        more = f" (and {len(shown) - MOST_PROBLEMS} more)" if len(shown) > MOST_PROBLEMS else ""
        yield TimelineEntry(
            time=now_iso(),
            source=EntrySource.RECOVERY,
            kind="not_read",
            text="not used as evidence: " + "; ".join(shown[:MOST_PROBLEMS]) + more,
            key=_key("not_read", event, "\n".join(shown)),
        )


def _key(kind: str, event: JobEvent, what: str) -> str:
    return f"{kind}:{event.key}:{hashlib.sha256(what.encode()).hexdigest()[:12]}"


def _heard(event: JobEvent) -> TimelineEntry:
    return TimelineEntry(
        time=event.time,
        source=EntrySource.SCHEDULER,
        kind="job_event",
        text=f"job {event.job.job} attempt {event.job.attempt}: {event.state}",
        data={"source": event.source, "received": now_iso()},
        key=f"event:{event.key}:{event.state}",
    )
