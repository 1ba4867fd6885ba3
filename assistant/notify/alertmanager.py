"""Alertmanager's API v2: one alert for each incident; the same labels are the same alert.

https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml (postAlerts)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from rerail.assistant.notify.notice import Notice
from rerail.assistant.notify.service import Handle, post_json
from rerail.knowledge_base.store.clock import from_iso, now_iso, to_iso


@dataclass(frozen=True, slots=True)
class AlertmanagerService:
    """Posts alerts to one Alertmanager, or to what stands in front of several."""

    url: str
    token: str = field(repr=False)
    keep_h: float = 24.0
    name: str = "alertmanager"

    def marks(self, notice: Notice) -> str:
        """Return all that is said: annotations are replaced in place and wake nobody."""
        return notice.digest

    def tell(self, notice: Notice, handle: Handle, *, alone: bool) -> Handle:
        """Fire the alert, or end it; its labels stay those of the first time."""
        del alone
        if not handle and not notice.open:
            return handle
        now = now_iso()
        labels = handle.get("labels") or {
            "alertname": "RerailIncident",
            "incident": notice.incident,
            "cluster": notice.cluster,
            "job": notice.job or "none",
            "category": notice.category or "unknown",
            "severity": "critical" if notice.status in ("ESTABLISHED", "SUPPORTED") else "warning",
        }
        ends = from_iso(now) + timedelta(hours=self.keep_h) if notice.open else from_iso(now)
        alert = {
            "labels": labels,
            "annotations": {
                "summary": notice.headline,
                **{word.lower().replace(" ", "_"): text for word, text in notice.rows()},
            },
            "startsAt": handle.get("since", now),
            "endsAt": to_iso(ends),
        }
        if notice.url:
            alert["generatorURL"] = notice.url
        post_json(f"{self.url}/api/v2/alerts", [alert], name=self.name, token=self.token)
        return {"labels": labels, "since": alert["startsAt"]}
