"""`GET /metrics` for Prometheus: what failed, how long verdicts took, what waits, what plans stand where."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from sqlalchemy import Connection, func, select

from rerail.assistant.notify import told
from rerail.domain.plan import ActionKind
from rerail.errors import ConfigError
from rerail.knowledge_base.store.engine import reading
from rerail.knowledge_base.store.opened import opened_store
from rerail.knowledge_base.store.tables import DIAGNOSES, INCIDENTS
from rerail.recovery.site_policy import load_policy
from rerail.recovery.store import control, queue
from rerail.recovery.store.plans import carried_out_since
from rerail.recovery.store.tables import ACTIONS
from rerail.settings import load_settings

_SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_LATEST = 1000


class StoreCollector(Collector):
    """Reads the store anew for each scrape: every process of a site gives the same numbers."""

    def collect(self) -> Iterable[Metric]:
        """Yield the metric families."""
        with opened_store() as engine, reading(engine) as connection:
            kinds = connection.execute(
                select(INCIDENTS.c.outcome, INCIDENTS.c.failure_type, func.count())
                .group_by(INCIDENTS.c.outcome, INCIDENTS.c.failure_type)
            ).all()  # fmt: skip
            took = connection.execute(
                select(DIAGNOSES.c.diagnosis["elapsed_s"].as_float())
                .order_by(DIAGNOSES.c.id.desc())
                .limit(_LATEST)
            ).scalars()
            seconds = [float(s) for s in took if s is not None]
            waiting = queue.counts(connection)
            steps = connection.execute(
                select(ACTIONS.c.kind, ACTIONS.c.state, func.count()).group_by(
                    ACTIONS.c.kind, ACTIONS.c.state
                )
            ).all()
            stopped = control.breaker_reason(connection)
            left = _budgets_left(connection)
            untold = Counter(row.service for row in told.waiting(connection))
        incidents = GaugeMetricFamily(
            "rerail_incidents", "Diagnoses on record", labels=["outcome", "failure_type"]
        )
        for outcome, kind, count in kinds:
            incidents.add_metric([outcome, kind or ""], count)
        yield incidents
        yield _histogram(seconds)
        queued = GaugeMetricFamily("rerail_queue", "Events by state", labels=["state"])
        for state, count in waiting.items():
            queued.add_metric([state], count)
        yield queued
        plans = GaugeMetricFamily("rerail_plan_steps", "Steps of plans", labels=["kind", "state"])
        for kind, state, count in steps:
            plans.add_metric([kind, state], count)
        yield plans
        yield GaugeMetricFamily(
            "rerail_breaker_open", "1 while all writing is stopped", value=1.0 if stopped else 0.0
        )
        budget = GaugeMetricFamily(
            "rerail_budget_left", "What may still happen without a person", labels=["budget"]
        )
        for name, count in left.items():
            budget.add_metric([name], count)
        yield budget
        notices = GaugeMetricFamily(
            "rerail_notices_untold", "Incidents a service did not take", labels=["service"]
        )
        for service, count in untold.items():
            notices.add_metric([service], count)
        yield notices


def _budgets_left(connection: Connection) -> dict[str, int]:
    """Return what the policy still allows now; the share of a cluster's nodes is not looked at."""
    try:
        policy = load_policy(load_settings().policy_file)
    except ConfigError:  # nothing is allowed by a policy that cannot be read
        return {"nodes_per_hour": 0, "actions_in_window": 0}
    now, window = time.time(), policy.breaker
    drained = carried_out_since(connection, now - 3600.0, kind=ActionKind.DRAIN)
    recent = carried_out_since(connection, now - window.window_s)
    return {
        "nodes_per_hour": max(
            0, policy.budgets.nodes_per_hour - len({node for _, node in drained})
        ),
        "actions_in_window": max(0, window.actions_in_window - len(recent)),
    }


def _histogram(seconds: list[float]) -> HistogramMetricFamily:
    counted = Counter(next((str(b) for b in _SECONDS if s <= b), "+Inf") for s in seconds)
    total, buckets = 0, []
    for bound in (*map(str, _SECONDS), "+Inf"):
        total += counted[bound]
        buckets.append((bound, float(total)))
    family = HistogramMetricFamily(
        "rerail_diagnosis_seconds", f"Seconds to the verdict of the latest {_LATEST} diagnoses"
    )
    family.add_metric([], buckets, sum(seconds))
    return family


def routes() -> APIRouter:
    """Return the route."""
    router = APIRouter(include_in_schema=False)
    registry = CollectorRegistry()
    registry.register(StoreCollector())

    @router.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router
