"""Carries out plans: one step at a time, its state stored before and after every side effect.

A step goes proposed, approved, executing, verifying, verified. Whatever interrupts it between
`executing` and `verifying` - a crash, a controller that went away - leaves it `unknown`: the next
look asks the cluster whether it happened, and only what demonstrably did not happen is run again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine

from rerail.domain.plan import ActionKind, ActionState, Mode, PlannedAction, RecoveryPlan, Risk
from rerail.errors import ClusterError, ConfigError, RecoveryError, RerailError
from rerail.knowledge_base.store.engine import reading, writing
from rerail.recovery import approvals
from rerail.recovery.brake import Brake
from rerail.recovery.checkpoints import is_intact
from rerail.recovery.clusters.writer import Check, ClusterWriter
from rerail.recovery.job_file import JobFile
from rerail.recovery.live_policy import LivePolicy
from rerail.recovery.notify import message, send, step_message
from rerail.recovery.restart_file import Restart, order
from rerail.recovery.site_policy import SitePolicy
from rerail.recovery.store import control, outbox, plans
from rerail.recovery.store.plans import ActionRow

TELLING = (ActionKind.NOTIFY, ActionKind.TICKET)
RESTARTS = (
    ActionKind.REQUEUE,
    ActionKind.REQUEUE_EXCLUDING,
    ActionKind.RESTART_FROM_CHECKPOINT,
    ActionKind.SKIP_DATA,
)
# Steps whose effect shows only when the job goes on; nothing waits for it.
SEEN_LATE = (*RESTARTS, ActionKind.MICRO_BATCHES)
MOST_TRIES = 10
SILENT_S = 60.0
ORDERS_A_RESTART = (ActionKind.RESTART_FROM_CHECKPOINT, ActionKind.SKIP_DATA)


def worker_name() -> str:
    """Return a name that tells whether the holder of a claim still lives on this host."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_gone(holder: str | None) -> bool:
    """Return whether a holder is known to be dead: a process of this host that does not run."""
    host, _, pid = (holder or "").rpartition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    return not Path(f"/proc/{pid}").exists()


@dataclass
class Executor:
    """Moves the actions of stored plans forward; call `advance` again and again.

    `writer_for` gives the cluster adapter of a plan, or None where the plan's cluster has none.
    `restart_file` gives where a job reads its restart orders, or None. `live` is the policy file as
    it is now; without it `policy` never changes. `brake` is asked before each side effect. `on_change` is told of every
    state that an action reaches. `live_step` gives how far a running job's log shows it, or None,
    `finished` whether its last attempt has ended well.
    `job_writer` carries out what goes to a running job and not to the cluster. Plans of another
    cluster than `cluster` are left alone: job numbers are the same there. `memory` is a folder of
    the operators' account that remembers finished steps, should the store be changed past rerail.
    """

    engine: Engine
    policy: SitePolicy
    key: bytes
    clock: Callable[[], float]
    writer_for: Callable[[RecoveryPlan], ClusterWriter | None]
    restart_file: Callable[[RecoveryPlan], JobFile | None] = lambda plan: None
    on_change: Callable[[ActionRow, ActionState, str], None] = lambda row, state, note: None
    say: Callable[[str], None] = lambda text: None
    live_step: Callable[[RecoveryPlan], int | None] = lambda plan: None
    finished: Callable[[RecoveryPlan], bool] = lambda plan: False
    job_writer: ClusterWriter | None = None
    cluster: str | None = None
    memory: Path | None = None
    live: LivePolicy | None = None
    brake: Brake = field(default_factory=Brake)
    worker: str = field(default_factory=worker_name)
    hold_s: float = 120.0
    _first_step: dict[str, tuple[int | None, float]] = field(default_factory=dict)

    def advance(self, only: str | None = None) -> int:
        """Move every plan as far as it goes now; return how many changes of state were made."""
        with reading(self.engine) as connection:
            names = plans.plans_with(
                connection,
                self.clock(),
                *(ActionState.PROPOSED, ActionState.APPROVED, ActionState.EXECUTING),
                *(ActionState.UNKNOWN, ActionState.VERIFYING),
            )
        changes, wrong = 0, None
        for name in names:
            if only not in (None, name):
                continue
            try:
                changes += self._advance_plan(name)
            except RerailError as error:  # a damaged plan must not hold up those behind it
                wrong = wrong or error
        self.tell()
        if wrong is not None:
            raise wrong
        return changes

    def tell(self) -> None:
        """Deliver what people have not been told yet; what cannot be delivered is tried again."""
        with reading(self.engine) as connection:
            waiting = list(outbox.due(connection, self.clock()))
        for key, content, tries in waiting:
            try:
                send(content, self.policy.notify)
            except ClusterError as error:
                with writing(self.engine) as connection:
                    outbox.later(connection, key, content, tries + 1, self.clock())
                if not tries:
                    self.say(f"{content.get('text', key)}: not told: {error.message}; tried again")
                continue
            with writing(self.engine) as connection:
                outbox.delivered(connection, key)

    def policy_now(self) -> SitePolicy | None:
        """Return the policy of this moment, or None where its file is broken or has vanished."""
        if self.live is None:
            return self.policy
        try:
            return self.live.now()
        except ConfigError:
            return None

    def _advance_plan(self, name: str) -> int:
        changes = 0
        while True:
            with reading(self.engine) as connection:
                plan = self._load(connection, name)
                rows = plans.states(connection, plan)
            if self.cluster not in (None, plan.job.cluster):
                return changes
            moved = False
            for row in rows:
                moved = self._advance_step(row)
                changes += moved
                if moved or self._blocks(row):
                    break
            if not moved:
                return changes

    def _load(self, connection: Connection, name: str) -> RecoveryPlan:
        """Return a plan; one whose content is not what was stored is closed, and said once."""
        try:
            return plans.load(connection, name)
        except RecoveryError as error:
            why = error.message
        with writing(self.engine) as own:
            plans.close_altered(own, name, why, self.clock())
            text = f"plan {name} is not executed: {why}"
            outbox.put(own, f"{name}/altered", {"kind": "plan_refused", "plan": name, "text": text})
        raise RecoveryError(f"{why}; nothing of it is done", subject=name, hint="rerail audit show")

    def _blocks(self, row: ActionRow) -> bool:
        """Return whether later steps wait for this one: it is under way or will be retried."""
        under_way = (ActionState.EXECUTING, ActionState.UNKNOWN, ActionState.APPROVED)
        waits = row.state in under_way and row.action.kind not in TELLING
        return waits or (row.state is ActionState.VERIFYING and row.action.kind not in SEEN_LATE)

    def _advance_step(self, row: ActionRow) -> bool:
        now = self.clock()
        if row.not_before > now:
            return False
        if row.state is ActionState.PROPOSED:
            return self._maybe_start(row, now)
        if row.state is ActionState.APPROVED:
            return self._execute(row, now)
        if row.state is ActionState.EXECUTING:
            late = now - row.changed_at > self.hold_s
            if row.holder == self.worker or late or is_gone(row.holder):
                return self._move(row, ActionState.UNKNOWN, now, "interrupted: verify first")
            return False
        if row.state is ActionState.UNKNOWN:
            return self._find_out(row, now)
        return row.state is ActionState.VERIFYING and self._verify(row, now)

    def _maybe_start(self, row: ActionRow, now: float) -> bool:
        """Start a proposed step that needs no approval; expire one that nobody approved in time."""
        if row.action.needs_approval:
            if now >= row.plan.expires_at:
                return self._move(row, ActionState.EXPIRED, now, "nobody approved it in time")
            return False
        if row.action.kind not in TELLING:
            if row.plan.mode is not Mode.AUTO_LOW:
                return False
            if now >= row.plan.expires_at:
                return self._move(row, ActionState.EXPIRED, now, "not begun in time")
            if self.held():
                return False
            policy = self.policy_now()
            if policy is None or policy.dry_run:
                return False
        return self._execute(row, now)

    def held(self) -> str:
        """Return why no step runs by itself now, or an empty string; the steps wait meanwhile."""
        return "" if self.live is None else self.live.trouble()

    def _move(
        self,
        row: ActionRow,
        to: ActionState,
        now: float,
        note: str = "",
        ran: Sequence[Sequence[str]] = (),
        **values: Any,
    ) -> bool:
        begun = row.state in (ActionState.EXECUTING, ActionState.VERIFYING, ActionState.UNKNOWN)
        if begun and to in (ActionState.VERIFIED, ActionState.FAILED):
            self._remember(row)
        with writing(self.engine) as connection:
            moved = plans.move(
                *(connection, row, to), actor="rerail", now=now, note=note, ran=ran, **values
            )
            if moved:
                self._keep_to_tell(connection, row, to, note)
        if moved:
            self.on_change(row, to, note)
        return moved

    def _keep_to_tell(
        self, connection: Connection, row: ActionRow, to: ActionState, note: str
    ) -> None:
        """Keep a message where people have to know: a step failed, was refused, or is unknown."""
        bad = to is ActionState.FAILED or (to is ActionState.UNKNOWN and not row.tries)
        late = to is ActionState.EXPIRED and not row.action.needs_approval
        if (bad or late) and row.action.kind not in TELLING:
            key = f"{row.plan.id}/{row.action.step}/{to}"
            outbox.put(connection, key, step_message(row.plan, row.action, to, note))

    def _execute(self, row: ActionRow, now: float) -> bool:
        """Take the step, then do it; whoever loses the race for the step does nothing."""
        telling = row.action.kind in TELLING
        policy = self.policy if telling else self.policy_now()
        if policy is None:
            return False  # its file is broken or gone: nobody knows what is allowed
        with writing(self.engine) as connection:
            reason = plans.why_untrusted(connection, row.plan, self.key)
            if not reason and self._finished(row):
                reason = "it was finished before: its state was set back past rerail"
            if not reason and not telling:
                reason = self._forbidden(connection, row, policy, now)
            to = ActionState.FAILED if reason else ActionState.EXECUTING
            moved = plans.move(
                *(connection, row, to), actor="rerail", now=now, note=reason, holder=self.worker
            )
            if moved:
                self._keep_to_tell(connection, row, to, reason)
        if not moved:
            return False
        self.on_change(row, to, reason)
        if not reason:
            self._perform(self._fresh(row))
        return True

    def _mark(self, row: ActionRow) -> Path | None:
        if self.memory is None or row.action.kind in TELLING:
            return None
        return self.memory / f"{row.plan.id}.{row.action.step}"

    def _remember(self, row: ActionRow) -> None:
        """Note outside the store that a step is finished, before the store says so."""
        mark = self._mark(row)
        if mark is not None:
            try:
                mark.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                mark.touch(mode=0o600)
            except OSError as error:
                raise RecoveryError(
                    f"{mark}: {error.strerror}", subject=str(mark), hint="RERAIL_DATA_DIR"
                ) from None

    def _finished(self, row: ActionRow) -> bool:
        mark = self._mark(row)
        return mark is not None and mark.exists()

    def _forbidden(
        self, connection: Connection, row: ActionRow, policy: SitePolicy, now: float
    ) -> str:
        """Return why the gate does not let a step through, whatever was decided before."""
        action, plan = row.action, row.plan
        if policy.dry_run:
            return "dry run: the policy file has dry_run: true"
        if why := self.brake.why(connection):
            return why
        if action.needs_approval:
            needed = approvals.persons_needed(action, policy)
            if len(approvals.approvers(connection, self.key, plan, action, now)) < needed:
                return "there is no valid approval: unsigned, expired, or of another plan"
        elif why := _not_by_itself(row, policy):
            return why
        if action.kind is ActionKind.DRAIN and not action.needs_approval:
            drained = plans.carried_out_since(
                connection, now - 3600.0, kind=ActionKind.DRAIN, cluster=plan.job.cluster
            )
            if (
                len({target for _, target in drained} | {action.target})
                > policy.budgets.nodes_per_hour
            ):
                return f"{policy.budgets.nodes_per_hour} nodes in an hour is the budget"
        window = policy.breaker
        recent = plans.carried_out_since(connection, now - window.window_s)
        if len(recent) >= window.actions_in_window:
            why = f"{len(recent)} actions within {window.window_s:g} s"
            control.trip(connection, why)
            return f"the breaker opened: {why}"
        return ""

    def _fresh(self, row: ActionRow) -> ActionRow:
        with reading(self.engine) as connection:
            rows = plans.states(connection, row.plan)
        return next(one for one in rows if one.action.step == row.action.step)

    def _perform(self, row: ActionRow) -> None:
        """Do what the step says; its state is `executing` in the store at this point."""
        now = self.clock()
        ran: list[Sequence[str]] = []
        wrote: list[Sequence[str]] = []

        def before(command: Sequence[str]) -> None:
            # A step that has begun is finished: a job that is held and not released would wait for ever.
            if not ran and (why := self.why_stopped(row)):
                raise RecoveryError(f"not done: {why}", subject=row.plan.id, hint="rerail doctor")
            ran.append(command)

        try:
            if row.action.kind in TELLING:
                send(message(row.plan, row.action), self.policy.notify)
                self._move(row, ActionState.VERIFIED, now, carried_out_at=now)
                return
            writer = self.writer_of(row)
            if why := writer.preconditions(row.action, row.plan.job):
                self._move(row, ActionState.FAILED, now, f"not done: {why}")
                return
            if why := self.why_stopped(row):
                raise RecoveryError(f"not done: {why}", subject=row.plan.id, hint="rerail doctor")
            wrote += self._order_restart(row)
            writer.carry_out(row.action, row.plan.job, row.plan.incident, before)
        except ClusterError as error:
            if not error.recoverable:
                self._move(row, ActionState.FAILED, now, error.message, [*wrote, *ran])
                return
            self._later(row, now, error.message, [*wrote, *ran])
            return
        except RerailError as error:
            self._move(row, ActionState.FAILED, now, error.message, [*wrote, *ran])
            return
        self._move(row, ActionState.VERIFYING, now, "", [*wrote, *ran], carried_out_at=now)

    def why_stopped(self, row: ActionRow) -> str:
        """Return why a step must not have its side effect at this very moment, or an empty string."""
        policy = self.policy_now()
        if policy is None:
            return self.held()
        if policy.dry_run:
            return "the policy file has dry_run: true"
        if not row.action.needs_approval and (why := self.held()):
            return why
        with reading(self.engine) as connection:
            return self.brake.why(connection)

    def _later(
        self, row: ActionRow, now: float, why: str, ran: Sequence[Sequence[str]] = ()
    ) -> None:
        """The cluster went away in between: what happened is unknown, and looked at later."""
        tries = row.tries + 1
        if tries >= MOST_TRIES:
            self._move(row, ActionState.FAILED, now, f"given up after {tries} tries: {why}", ran)
            return
        wait = min(60.0, 1.0 * 1.7**tries)
        self._move(row, ActionState.UNKNOWN, now, why, ran, tries=tries, not_before=now + wait)

    def writer_of(self, row: ActionRow) -> ClusterWriter:
        """Return the adapter that carries a step out.

        Raises:
            RecoveryError: There is none for its cluster.
        """
        plan = row.plan
        to_the_job = row.action.kind is ActionKind.MICRO_BATCHES
        writer = self.job_writer if to_the_job else self.writer_for(plan)
        if writer is None:
            raise RecoveryError(
                f"no cluster adapter for {plan.job.cluster!r}",
                subject=plan.job.cluster,
                hint="rerail doctor",
            )
        return writer

    def _order_restart(self, row: ActionRow) -> list[Sequence[str]]:
        """Write the restart file of an action that chooses a checkpoint; return what was written."""
        file = self.check_restart(row)
        if file is None:
            return []
        restart = _restart(row.plan, row.action)
        order(file, restart)
        return [("write", str(file.path), f"checkpoint={restart.checkpoint}", *file.as_user)]

    def check_restart(self, row: ActionRow) -> JobFile | None:
        """Return where the restart file goes of a step that chooses a checkpoint; None for others.

        Raises:
            RecoveryError: The place is not known or not to be written, or the checkpoint is damaged.
        """
        if row.action.kind not in ORDERS_A_RESTART:
            return None
        file = self.restart_file(row.plan)
        if file is None:
            raise RecoveryError(
                "the policy does not say where the job reads its restart orders",
                subject="jobs.restart_file",
                hint="set jobs.restart_file in the policy file",
            )
        chosen = str(row.action.parameters["checkpoint"])
        file.check()
        if is_intact(Path(chosen), file.owner) is False:
            raise RecoveryError(f"checkpoint {chosen} is damaged by now", subject=chosen)
        return file

    def _find_out(self, row: ActionRow, now: float) -> bool:
        """Ask the cluster whether an interrupted step happened; run it only if it did not."""
        if row.action.kind in TELLING:
            # A message may be sent twice; a lost one is worse.
            return self._move(row, ActionState.PROPOSED, now, "told again")
        try:
            effect = self.writer_of(row).effect(row.action, row.plan.job)
        except ClusterError as error:
            if error.recoverable:
                self._later(row, now, error.message)
                return False
            return self._move(row, ActionState.FAILED, now, error.message)
        if effect is Check.ABSENT:
            back = ActionState.APPROVED if row.action.needs_approval else ActionState.PROPOSED
            return self._move(row, back, now, "it did not happen: once more")
        done = row.carried_out_at or now
        return self._move(row, ActionState.VERIFYING, now, "it had happened", carried_out_at=done)

    def _verify(self, row: ActionRow, now: float) -> bool:
        """Look whether the effect holds; give up after the time that the policy allows."""
        since = row.carried_out_at or row.changed_at
        try:
            writer = self.writer_of(row)
            effect = writer.effect(row.action, row.plan.job)
            if effect is Check.DONE and row.action.kind in RESTARTS:
                effect = writer.running_elsewhere(row.action, row.plan.job)
                if effect is Check.ABSENT:
                    return self._move(row, ActionState.FAILED, now, "the new attempt ended badly")
                if effect is Check.DONE and not self._progresses(row.plan, now):
                    effect = Check.PENDING
        except ClusterError as error:
            if error.recoverable:
                return False
            return self._move(row, ActionState.FAILED, now, error.message)
        if effect is Check.DONE:
            return self._move(row, ActionState.VERIFIED, now, row.action.verify)
        if now - since > self.policy.jobs.verify_within_s:
            return self._move(row, ActionState.FAILED, now, f"not seen: {row.action.verify}")
        return False

    def _progresses(self, plan: RecoveryPlan, now: float) -> bool:
        """Return whether the job's step count was seen to change since it runs again.

        A job that has ended well needs no proof; one without step lines is believed after a minute.
        """
        if self.finished(plan):
            return True
        step = self.live_step(plan)
        first, since = self._first_step.setdefault(plan.id, (step, now))
        if step is not None and first is None:
            self._first_step[plan.id] = (step, since)
            return False
        return (step is not None and step != first) or now - since > SILENT_S


def _not_by_itself(row: ActionRow, policy: SitePolicy) -> str:
    """Return why the policy of now does not let a step run without an approval.

    The plan says that it may, but a plan in the store is as old, and as true, as its writer.
    """
    modes = {one.id: one.mode for one in policy.rules}
    mode = modes.get(row.plan.rule, policy.default_mode)
    if mode is not Mode.AUTO_LOW:
        return f"rule {row.plan.rule!r} does not act by itself (any more): its mode is {mode}"
    if row.action.risk is not Risk.LOW or not row.action.reversible:
        return f"{row.action.kind} is never done without an approval"
    return ""


def _restart(plan: RecoveryPlan, action: PlannedAction) -> Restart:
    skip = action.parameters.get("skip_batches")
    ranges = ((int(skip[0]), int(skip[1])),) if skip else ()
    return Restart(
        str(action.parameters["checkpoint"]), int(action.parameters["step"]), ranges, plan.id
    )
