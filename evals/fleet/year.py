"""A simulated year of a site whose truth is known: hazards of nodes and switches, carelessness of users.

Nodes are drawn for each attempt without a look at who else is on them: the statistics depend on hours
and failures alone, not on which job waits for which. Failures of hardware come at a rate (exponential),
failures of scripts with a probability a job, soon after its start.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from rerail.domain.diagnosis import Attempt, Cost, Diagnosis, Outcome, Recovery, Status, Suspects
from rerail.domain.incident import Incident
from rerail.domain.job import JobRef
from rerail.knowledge_base.fingerprint import fingerprint, incident_id
from rerail.knowledge_base.store.clock import to_iso
from rerail.knowledge_base.store.incidents import IncidentRow
from rerail.knowledge_base.store.span import SpanIncident
from rerail.knowledge_base.taxonomy import leaves
from rerail.tools.fleet.runs import Run

BEGIN = 1_767_225_600.0  # 2026-01-01
YEAR_S = 365 * 86_400.0
GPUS = 8
STEP_S = 10.0
LEAF, SCRIPT_LEAF = "gpu_fallen_off_bus", "python_exception"


@dataclass(frozen=True, slots=True)
class Truth:
    """What the year was made from. `per_gpu_hour` is the rate of a healthy GPU; factors are of it."""

    nodes: int = 1000
    jobs: int = 20_000
    users: int = 60
    per_gpu_hour: float = 2e-5
    nodes_a_switch: int = 32
    bad_nodes: Mapping[str, float] = field(default_factory=dict)
    bad_switches: Mapping[str, float] = field(default_factory=dict)
    careless: Mapping[str, float] = field(default_factory=dict)
    script_failures: float = 0.12
    named: float = 0.9
    """How often the diagnosis names the node of a failure of hardware."""


@dataclass(slots=True)
class Year:
    """The record of jobs, the failures, and the ratios that come out of the simulation itself."""

    runs: list[Run] = field(default_factory=list)
    found: list[SpanIncident] = field(default_factory=list)
    roots: dict[str, tuple[str, ...]] = field(default_factory=dict)
    productive_gpu_s: float = 0.0
    available_gpu_s: float = 0.0
    allocated_gpu_s: float = 0.0

    @property
    def ettr(self) -> float:
        """Effective training time ratio."""
        return self.productive_gpu_s / self.available_gpu_s

    @property
    def goodput(self) -> float:
        """Productive over allocated GPU time."""
        return self.productive_gpu_s / self.allocated_gpu_s


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"n{number:04d}"


def switch_name(number: int) -> str:
    """Return the name of a switch."""
    return f"sw{number:02d}"


def simulate(truth: Truth, seed: int) -> Year:
    """Return a year; the same seed gives the same one."""
    rng = np.random.default_rng(seed)
    year = Year()
    hazard = np.full(truth.nodes, truth.per_gpu_hour * GPUS / 3600.0)
    names = [node_name(number) for number in range(truth.nodes)]
    for first in range(0, truth.nodes, truth.nodes_a_switch):
        below = names[first : first + truth.nodes_a_switch]
        name = switch_name(first // truth.nodes_a_switch)
        year.roots[name] = tuple(below)
        hazard[first : first + len(below)] *= truth.bad_switches.get(name, 1.0)
    for name, factor in truth.bad_nodes.items():
        hazard[names.index(name)] *= factor
    waiting = [
        (BEGIN + float(at), job) for job, at in enumerate(rng.uniform(0, YEAR_S, truth.jobs))
    ]
    heapq.heapify(waiting)
    while waiting:
        start, job = heapq.heappop(waiting)
        _job(truth, year, rng, hazard, names, str(job + 1), start)
    year.runs.sort(key=lambda run: (run.start, run.job))
    year.found.sort(key=lambda one: one.row.time)
    return year


def _job(
    truth: Truth, year: Year, rng: np.random.Generator, hazard: np.ndarray, names: list[str],
    job: str, start: float,
) -> None:  # fmt: skip
    """Run one job with all its attempts to its end, or to the end of the year."""
    user = f"u{min(truth.users - 1, int(rng.exponential(truth.users / 4)))}"
    count = min(truth.nodes, int(2 ** rng.choice(8, p=[0.4, 0.2, 0.14, 0.1, 0.07, 0.05, 0.03, 0.01])))  # fmt: skip
    left_s = float(rng.lognormal(np.log(20 * 3600), 1.2))
    careless = truth.script_failures * truth.careless.get(user, 1.0)
    bug_s = float(rng.uniform(60, 600)) if rng.random() < careless else None
    gpus, first, attempt = count * GPUS, start, 0
    end = start
    while left_s > 0 and start < BEGIN + YEAR_S:
        chosen = rng.choice(truth.nodes, count, replace=False)
        each = hazard[chosen]
        hard_s = float(rng.exponential(1 / each.sum()))
        nodes = tuple(sorted(names[i] for i in chosen))
        if bug_s is not None and bug_s < min(hard_s, left_s):
            end = start + bug_s
            year.runs.append(_run(job, attempt, user, "FAILED", nodes, gpus, start, end))
            year.found.append(_incident(job, attempt, SCRIPT_LEAF, end, (), 0.0, 0, bug_s))
            year.productive_gpu_s += bug_s * gpus
            year.allocated_gpu_s += bug_s * gpus
            break
        if hard_s >= left_s:
            end = start + left_s
            year.runs.append(_run(job, attempt, user, "COMPLETED", nodes, gpus, start, end))
            year.productive_gpu_s += left_s * gpus
            year.allocated_gpu_s += left_s * gpus
            break
        idle_s = float(rng.uniform(300, 900))
        again_s = float(rng.uniform(0, min(hard_s, 1800)) // STEP_S) * STEP_S
        end = start + hard_s + idle_s
        guilty = names[int(rng.choice(chosen, p=each / each.sum()))]
        told = (guilty,) if rng.random() < truth.named else ()
        year.runs.append(_run(job, attempt, user, "FAILED", nodes, gpus, start, end))
        year.found.append(
            _incident(job, attempt, LEAF, end, told, idle_s * gpus / 3600, round(again_s / STEP_S), hard_s)
        )  # fmt: skip
        year.productive_gpu_s += (hard_s - again_s) * gpus
        year.allocated_gpu_s += (hard_s + idle_s) * gpus
        left_s -= hard_s - again_s
        start = end + float(rng.uniform(60, 1200))
        attempt += 1
    year.available_gpu_s += (end - first) * gpus


def _run(
    job: str, attempt: int, user: str, state: str, nodes: tuple[str, ...], gpus: int, start: float, end: float,
) -> Run:  # fmt: skip
    return Run(job, attempt, user, state, nodes, gpus, start, start, end)


def _incident(
    job: str, attempt: int, leaf: str, end: float, nodes: tuple[str, ...], idle: float, lost: int, ran_s: float,
) -> SpanIncident:  # fmt: skip
    at = to_iso(datetime.fromtimestamp(end, UTC))
    row = IncidentRow(
        id=f"INC-{job}-{attempt}", cluster="local", job=job, attempt=attempt, recorded_at=at, occurred_at=at,
        outcome="failure", status="established", failure_type=leaf, fingerprint=leaf, entity=None,
        confirmed=None, confirmed_type=None, signed_off_at=None,
    )  # fmt: skip
    steps = max(1, int(ran_s / STEP_S))
    return SpanIncident(row, idle, nodes, at, at, lost, steps)


def as_sacct(year: Year) -> str:
    """Return the record of jobs as `sacct -P` prints it."""
    rows = ["JobID|User|State|Submit|Start|End|NodeList|AllocTRES"]
    rows += [
        f"{run.job}|{run.user}|{run.state}|{run.submit:.0f}|{run.start:.0f}|{run.end:.0f}|{','.join(run.nodes)}"
        f"|billing=1,gres/gpu={run.gpus},node={len(run.nodes)}"
        for run in year.runs
    ]
    return "\n".join(rows) + "\n"


def incidents_of(year: Year) -> Iterator[Incident]:
    """Yield the failures as the store keeps them."""
    for one in year.found:
        row = one.row
        leaf = leaves()[row.failure_type or ""]
        diagnosis = Diagnosis(
            outcome=Outcome.FAILURE,
            status=Status.ESTABLISHED,
            failure_type=leaf.id,
            category=leaf.category,
            layer=leaf.layer,
            summary=leaf.meaning,
            first_fault=None,
            suspects=Suspects(nodes=list(one.nodes)),
            cost=Cost(idle_gpu_hours=one.idle_gpu_hours, lost_steps=one.lost_steps),
            attempts=[Attempt(number=1, first_step=0, last_step=one.made_steps)],
            recovery=Recovery(action=leaf.action, reason="simulated"),
        )
        yield Incident(
            id=incident_id(row.id),
            identity=row.id,
            cluster=row.cluster,
            job=JobRef(cluster=row.cluster, job=row.job or "", attempt=row.attempt or 0),
            recorded_at=row.recorded_at,
            occurred_at=row.occurred_at,
            diagnosis=diagnosis,
            fingerprint=fingerprint(diagnosis),
        )
