"""One cluster with one watching rerail, and what a scenario needs to act on it and to judge it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select

from rerail.domain.plan import ActionKind
from rerail.errors import UsageError
from rerail.evals.cluster.lab import Lab
from rerail.evals.cluster.site import LabSite, private, wait_for
from rerail.knowledge_base.store.clock import from_iso
from rerail.knowledge_base.store.engine import open_store, reading
from rerail.recovery.store.tables import ACTIONS, APPROVALS, PLANS, QUEUE
from rerail.settings import Settings
from rerail.tools.clusters.slurm_read import SlurmReader
from rerail.tools.clusters.slurm_records import AttemptRecord

TOLD = (str(ActionKind.NOTIFY), str(ActionKind.TICKET))


@dataclass
class Result:
    """What a scenario showed. Times are seconds; None where the scenario has no such moment.

    `heard_s` from the fault until rerail took the event, `running_s` from the fault until the job
    runs again, `training_s` until it trains again.
    """

    name: str
    wrong: list[str] = field(default_factory=list)
    heard_s: float | None = None
    running_s: float | None = None
    training_s: float | None = None
    manual_steps: int = 0
    verdict: str = ""
    did: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def check(self, holds: bool, otherwise: str) -> None:
        """Note what is wrong unless it holds."""
        if not holds:
            self.wrong.append(otherwise)


class Bench:
    """The cluster of a run of scenarios."""

    def __init__(self, lab: Lab, site: LabSite) -> None:
        self.lab = lab
        self.site = site
        self.reader = SlurmReader(environment=lab.environment)
        # Made by the daemon's account: what root makes there that account could not write.
        site.rerail("breaker", "status")
        self.engine: Engine = open_store(Settings(data_dir=site.data))

    def attempts(self, job: str) -> list[AttemptRecord]:
        """Return the job's attempts as Slurm tells them."""
        return self.reader.attempts(job)

    def output(self, job: str, folder: Path) -> str:
        """Return what the job printed in its present attempt."""
        path = folder / f"slurm-{job}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for_text(self, job: str, folder: Path, text: str, limit_s: float) -> bool:
        """Wait for a text in the job's output."""
        return wait_for(lambda: text in self.output(job, folder), limit_s)

    def plans_of(self, job: str) -> list[dict[str, Any]]:
        """Return the plans made for a job, with the states of their actions, oldest first."""
        with reading(self.engine) as connection:
            rows = connection.execute(
                select(PLANS).where(PLANS.c.job == job).order_by(PLANS.c.made_at)
            ).all()
            found = []
            for row in rows:
                steps = connection.execute(
                    select(ACTIONS).where(ACTIONS.c.plan == row.id).order_by(ACTIONS.c.step)
                ).all()
                found.append({**row.body, "states": [dict(one._mapping) for one in steps]})
        return found

    def done(self, job: str) -> list[str]:
        """Return the cluster actions that were carried out for a job."""
        return [
            f"{one['kind']} {one['target']}"
            for plan in self.plans_of(job)
            for one in plan["states"]
            if one["carried_out_at"] is not None and one["kind"] not in TOLD
        ]

    def heard(self, job: str) -> bool:
        """Return whether rerail has taken an event of the job."""
        with reading(self.engine) as connection:
            query = select(QUEUE.c.id).where(QUEUE.c.key.like(f"lab/{job}/%"))
            return connection.execute(query).first() is not None

    def heard_from(self, job: str) -> str:
        """Return who told rerail of the job first: the poll, a hook, a trigger."""
        with reading(self.engine) as connection:
            query = select(QUEUE.c.event).where(QUEUE.c.key.like(f"lab/{job}/%"))
            event = connection.execute(query.order_by(QUEUE.c.id)).scalar()
        return str(event["source"]) if event else ""

    def first_end(self, job: str) -> tuple[str, float | None]:
        """Return how and when the first attempt ended, as Slurm said before the job was requeued.

        A requeue overwrites both in accounting; the event kept them. Whole seconds since the epoch.
        """
        with reading(self.engine) as connection:
            query = select(QUEUE.c.event).where(QUEUE.c.key == f"lab/{job}/0")
            event = connection.execute(query).scalar()
        if not event:
            return "", None
        return str(event["state"]), from_iso(event["time"]).timestamp()

    def settled(self, job: str) -> bool:
        """Return whether a plan exists and nothing automatic of it is under way."""
        plans = self.plans_of(job)
        open_states = ("executing", "unknown", "approved", "verifying")
        for plan in plans:
            needs = {one["step"]: one["needs_approval"] for one in plan["actions"]}
            for one in plan["states"]:
                waits = one["state"] == "proposed" and not needs[one["step"]]
                if one["state"] in open_states or waits:
                    return False
        return bool(plans)

    def fill_in(self, result: Result, job: str, fault_at: float | None = None) -> Result:
        """Fill in times, verdict, actions and approvals from Slurm and the store."""
        attempts = self.attempts(job)
        fault = fault_at or self.first_end(job)[1]
        with reading(self.engine) as connection:
            heard = connection.execute(
                select(QUEUE.c.received_at)
                .where(QUEUE.c.key.like(f"lab/{job}/%"))
                .order_by(QUEUE.c.received_at)
            ).all()
            signed = connection.execute(
                select(APPROVALS.c.id)
                .join(PLANS, PLANS.c.id == APPROVALS.c.plan)
                .where(PLANS.c.job == job)
            ).all()
        result.manual_steps = len(signed)
        plans = self.plans_of(job)
        result.did = self.done(job)
        result.refused = [why for plan in plans for why in plan["refusals"]]
        if plans:
            said = self.site.rerail("show", plans[-1]["incident"], "--json").stdout
            shown = json.loads(said)["diagnosis"]
            result.verdict = f"{shown['failure_type']} ({shown['status']})"
        if fault is not None:
            if heard:
                result.heard_s = round(max(0.0, heard[0].received_at - fault), 1)
            if len(attempts) > 1 and attempts[1].start is not None:
                result.running_s = round(attempts[1].start - fault, 1)
        return result

    def trains_again(self, result: Result, job: str, folder: Path, fault_at: float | None) -> None:
        """Note when the first step line of the restarted job was printed (seconds resolution)."""
        attempts = self.attempts(job)
        fault = fault_at or self.first_end(job)[1]
        if len(attempts) < 2 or attempts[1].start is None or fault is None:
            return
        for stamp in re.findall(
            r"^0: (\S+ \S+) \[rank0\] INFO step ", self.output(job, folder), re.M
        ):
            at = time.mktime(time.strptime(stamp + " UTC", "%Y-%m-%d %H:%M:%S %Z")) - time.timezone
            if at >= attempts[1].start:
                result.training_s = round(at - fault, 1)
                return

    def lineage(self, folder: Path) -> list[int]:
        """Return which batches went into the final checkpoint, in their order."""
        path = folder / "lineage.json"
        return json.loads(path.read_text()) if path.exists() else []

    def completed(self, job: str, folder: Path, limit_s: float) -> bool:
        """Wait until the job has completed and rerail has verified what it did."""
        return self.wait_for_text(job, folder, "training complete", limit_s) and wait_for(
            lambda: self.settled(job), 30
        )

    def must_complete(
        self,
        result: Result,
        job: str,
        folder: Path,
        limit_s: float,
        said: str = "the job did not complete",
    ) -> None:
        """Hold it against a scenario if the job does not complete, and say how far it is."""
        if not self.completed(job, folder, limit_s):
            result.check(False, f"{said}: {self.stand(job, folder)}")

    def stand(self, job: str, folder: Path) -> str:
        """Return how far a job is: its attempts, what rerail did, what it printed last."""
        attempts = ", ".join(f"{one.state} on {' '.join(one.nodes)}" for one in self.attempts(job))
        queued = self.lab.run("squeue", "-h", "-j", job, "-o", "%T %r %S", check=False).strip()
        printed = self.output(job, folder).splitlines()[-8:]
        return f"{attempts}; queue: {queued or 'gone'}; did {self.done(job)}; printed {printed}"

    def drained(self) -> list[str]:
        """Return the nodes that are drained."""
        return [one.node for one in self.reader.nodes() if one.drained]

    def repair(self, node: str) -> None:
        """Bring a killed or drained node back for the next scenario."""
        if f"slurmd.{node}" not in self.lab.processes:
            self.lab.start_node(node)
        self.lab.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
        if not wait_for(lambda: self.reader.nodes([node])[0].state == "IDLE", 20):
            state = self.reader.nodes([node])[0].state
            raise UsageError(f"node {node} does not come back: {state}", subject=node)


@contextmanager
def bench(nodes: int = 4, prefix: str = "n") -> Iterator[Bench]:
    """Start a cluster, set rerail up by its documentation, start `rerail watch`; stop all of it."""
    private()
    with Lab(nodes, prefix=prefix) as lab:
        site = LabSite(lab, lab.root / "site")
        made = Bench(lab, site)
        try:
            site.start()
            yield made
        finally:
            site.kill()
            made.engine.dispose()
