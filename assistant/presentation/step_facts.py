"""What is true of one step now: what exactly would be done, what it touches, which budget it uses up."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlalchemy import Engine

from rerail.assistant.watch.site import Site
from rerail.domain.plan import ActionKind, ActionState, RecoveryPlan
from rerail.errors import RerailError
from rerail.knowledge_base.store.engine import reading
from rerail.recovery.clusters.slurm_write import SlurmWriter
from rerail.recovery.clusters.writer import ClusterWriter
from rerail.recovery.executor import ORDERS_A_RESTART, TELLING
from rerail.recovery.rehearsal import NODE_ACTIONS, budget_left, jobs_touched
from rerail.recovery.store import plans
from rerail.recovery.store.plans import ActionRow
from rerail.tools.clusters.slurm_records import AttemptRecord

MOST_JOBS_SHOWN = 5
NEVER_RUN = (ActionState.REJECTED, ActionState.EXPIRED, ActionState.FAILED)


def load_plan(engine: Engine, name: str) -> tuple[RecoveryPlan, list[ActionRow]]:
    """Return a plan by its name, an incident's name or `last`, with the states of its steps.

    Raises:
        RecoveryError: There is none, or it was changed after it was made.
    """
    with reading(engine) as connection:
        plan = plans.load(connection, plans.find_id(connection, name))
        return plan, plans.states(connection, plan)


def clock_time(seconds: float) -> str:
    """Return a day and time of day."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _writer(site: Site, row: ActionRow) -> ClusterWriter | None:
    to_the_job = row.action.kind is ActionKind.MICRO_BATCHES
    return site.job_writer() if to_the_job else site.writer()


def exact_commands(site: Site, row: ActionRow) -> list[str]:
    """Return the exact commands of a step, or why they cannot be told now."""
    if row.action.kind in TELLING:
        return []
    writer = _writer(site, row)
    if writer is None:
        return ["(no scheduler is configured here)"]
    try:
        found = writer.commands(row.action, row.plan.job, row.plan.incident)
    except RerailError as error:
        return [f"({error.message})"]
    # A request acts as slurmrestd's account, and a running job's files are written by rerail.
    try:
        prefix = (
            writer.prefix_of(row.action, row.plan.job) if isinstance(writer, SlurmWriter) else ()
        )
    except RerailError as error:
        return [f"({error.message})"]
    orders = (
        [["write", str(_order_place(site, row))]] if row.action.kind in ORDERS_A_RESTART else []
    )
    return [
        shlex.join(command if command[0] in ("curl", "write", "kubectl") else [*prefix, *command])
        for command in (*orders, *found)
    ]


def _order_place(site: Site, row: ActionRow) -> str:
    try:
        file = site.restart_file(row.plan)
        return "(jobs.restart_file is not set)" if file is None else f"{file.path} {file.check()}"
    except RerailError as error:
        return f"(not possible: {error.message})"


def commands_of(site: Site, engine: Engine, row: ActionRow) -> list[str]:
    """Return the commands that were run for a step, or, where none was, those that would be."""
    if row.state in (ActionState.PROPOSED, ActionState.APPROVED):
        return exact_commands(site, row)
    with reading(engine) as connection:
        ran = plans.commands_run(connection, row.plan.id, row.action.step)
    return ran or ([] if row.state in NEVER_RUN else exact_commands(site, row))


def checked_now(site: Site, engine: Engine, row: ActionRow) -> str:
    """Return what the preconditions say now; they are read once more when the step begins."""
    writer = _writer(site, row)
    if writer is None:
        return "no scheduler is configured here"
    try:
        why = writer.preconditions(row.action, row.plan.job)
    except RerailError as error:
        return f"not possible now: {error.message}"
    if not why and row.action.kind in ORDERS_A_RESTART:
        try:
            site.executor(engine).check_restart(row)
        except RerailError as error:
            why = error.message
    return f"it would not be done now: {why}" if why else "the preconditions hold now"


@dataclass
class StepFacts:
    """Facts for the steps of one plan; the scheduler is asked once for all of them."""

    site: Site
    engine: Engine
    _running: list[AttemptRecord] | None = field(default=None, init=False)
    _nodes: int | None = field(default=None, init=False)
    _away: str = field(default="", init=False)

    def _ask(self) -> list[AttemptRecord]:
        if self._running is None:
            self._running, self._nodes = [], 0
            reader = self.site.reader
            try:
                if reader is None:
                    self._away = "no scheduler is configured here"
                else:
                    self._nodes = len(reader.nodes())
                    self._running = reader.running()
            except RerailError as error:
                self._away = error.message
        return self._running

    def touches(self, row: ActionRow) -> str:
        """Say how many running jobs a step concerns, and which."""
        running = self._ask()
        if self._away:
            return f"not known: {self._away}"
        action = row.action
        jobs = jobs_touched(running, action, row.plan.job)
        node = f"node {action.target}, " if action.kind in NODE_ACTIONS else ""
        text = f"{node}{len(jobs)} running job{'' if len(jobs) == 1 else 's'}"
        if jobs:
            more = ", ..." if len(jobs) > MOST_JOBS_SHOWN else ""
            text += f": {', '.join(jobs[:MOST_JOBS_SHOWN])}{more}"
        if jobs and action.kind is ActionKind.DRAIN:
            text += " (running on; no new ones start there)"
        return text

    def budget(self, row: ActionRow) -> str:
        """Say which part of the budgets a step would use up."""
        self._ask()
        with reading(self.engine) as connection:
            return budget_left(
                *(connection, self.site.policy, row.plan, row.action),
                cluster_nodes=self._nodes or 0,
                now=time.time(),
            )
