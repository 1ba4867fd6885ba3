"""PagerDuty's Events API v2: one alert for each fingerprint, resolved when it is over.

https://developer.pagerduty.com/docs/events-api-v2/trigger-events/
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rerail.assistant.notify.notice import Notice
from rerail.assistant.notify.service import Handle, post_json

_SUMMARY = 1024
_SEVERITY = {"ESTABLISHED": "critical", "SUPPORTED": "critical", "HYPOTHESIS": "error"}


@dataclass(frozen=True, slots=True)
class PagerDutyService:
    """Sends events with the key of one integration."""

    api: str
    key: str = field(repr=False)
    name: str = "pagerduty"

    def marks(self, notice: Notice) -> str:
        """Return what wakes people: the verdict, and whether it is over; no step does."""
        return f"{notice.open}|{notice.headline}|{notice.status}"

    def tell(self, notice: Notice, handle: Handle, *, alone: bool) -> Handle:
        """Trigger or resolve; an alert that other open incidents share is left open."""
        known = str(handle.get("key") or notice.fingerprint or notice.incident)
        event: dict[str, Any] = {"routing_key": self.key, "dedup_key": known}
        if notice.open:
            event |= {
                "event_action": "trigger",
                "client": "rerail",
                "payload": {
                    "summary": notice.headline[:_SUMMARY],
                    "source": notice.node or notice.cluster,
                    "severity": _SEVERITY.get(notice.status, "warning"),
                    "timestamp": notice.when,
                    "component": notice.job,
                    "group": notice.cluster,
                    "class": notice.type_id,
                    "custom_details": {"incident": notice.incident, **dict(notice.rows())},
                },
            }
            if notice.url:
                event |= {
                    "client_url": notice.url,
                    "links": [{"href": notice.url, "text": notice.incident}],
                }
        elif not handle or not alone:
            return handle
        else:
            event["event_action"] = "resolve"
        post_json(f"{self.api}/v2/enqueue", event, name=self.name)
        return {"key": known}
