"""Takes webhooks, whatever server brings them: checks, keeps the events in the spool, says what to answer.

POST /events takes one JobEvent or a list of them, signed; POST /alertmanager takes Alertmanager's
payload with a bearer token. Nothing else is answered, and nothing is ever read back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rerail.assistant.watch.event_fields import wrong_fields
from rerail.domain.job import Allocation, JobEvent, JobRef, NodeShare
from rerail.errors import RecoveryError, UsageError
from rerail.recovery import spool, webhook

PATHS = ("/events", "/alertmanager")
MOST_EVENTS = 1000
JOB_LABELS = ("slurm_job_id", "job_id", "jobid")


@dataclass(frozen=True, slots=True)
class Reply:
    """What the sender is answered: a status of HTTP and one sentence."""

    code: int
    text: str

    def content(self) -> bytes:
        """Return the body, JSON."""
        return json.dumps({"result": self.text}).encode()


@dataclass(frozen=True, slots=True)
class Receiver:
    """Takes the webhooks of one site; `say` is told of what was refused or could not be kept.

    `cluster` is that of jobs which name none.
    """

    key: bytes = field(repr=False)
    data: Path
    cluster: str
    say: Callable[[str], None]

    def refuse_length(self, given: str | None, sender: str) -> Reply | None:
        """Return why a message is not even read, from its Content-Length; None where it is."""
        length = given or ""
        if not (length.isascii() and length.isdecimal()):
            return Reply(411, "Content-Length is missing or no number")
        if int(length) > webhook.MOST_BYTES:
            self.say(f"webhook refused from {sender}: {length} bytes are too many")
            return Reply(413, f"too large: the limit is {webhook.MOST_BYTES} bytes")
        return None

    def receive(self, path: str, headers: Mapping[str, str], body: bytes, sender: str) -> Reply:
        """Check a message and keep its events; return the answer once they are on disk."""
        try:
            events = self._events(path, headers, body)
        except RecoveryError as error:
            refused = "sign" in error.message or "token" in error.message
            self.say(f"webhook refused from {sender}: {error.message}")
            return Reply(401 if refused else 400, error.message)
        except OSError as error:
            return self._not_kept(f"{error.filename or self.data}: {error.strerror}")
        given = {name.lower(): value for name, value in headers.items()}
        if why := _keep(events, given.get("webhook-id", ""), self.data):
            return self._not_kept(why)
        return Reply(202, f"{len(events)} taken")

    def _events(self, path: str, headers: Mapping[str, str], body: bytes) -> list[JobEvent]:
        if path == "/alertmanager":
            webhook.check_token(headers, body, self.key)
            return events_of_alerts(_json(body), self.cluster)
        if path != "/events":
            raise RecoveryError("no such address", subject=path)
        webhook.check(headers, body, self.key, self.data / webhook.SEEN_FOLDER)
        return events_of(_json(body), self.cluster)

    def _not_kept(self, why: str) -> Reply:
        self.say(f"webhook not kept: {why}")
        return Reply(503, "it could not be kept; send it again")


def open_receiver(
    secret_file: Path, data: Path, cluster: str, say: Callable[[str], None]
) -> Receiver:
    """Return the receiver of a site.

    Raises:
        UsageError: The file with the secret cannot be read.
        RecoveryError: It holds none.
    """
    try:
        text = secret_file.expanduser().read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise UsageError(
            f"{secret_file}: {error.strerror}",
            subject=str(secret_file),
            hint="RERAIL_WEBHOOK_SECRET_FILE names a file with whsec_...",
        ) from None
    return Receiver(webhook.secret_key(text), data, cluster, say)


def events_of(content: Any, cluster: str) -> list[JobEvent]:
    """Return the events of a generic webhook; `cluster` is that of jobs which name none.

    Raises:
        RecoveryError: It is not a job event, or more than a thousand.
    """
    items = content if isinstance(content, list) else [content]
    if len(items) > MOST_EVENTS:
        raise RecoveryError(f"more than {MOST_EVENTS} events in one message", subject="webhook")
    try:
        for item in items:
            if isinstance(item, dict) and isinstance(item.get("job"), dict):
                item["job"].setdefault("cluster", cluster)
        return [_event(item, number, len(items)) for number, item in enumerate(items)]
    except TypeError as error:
        raise RecoveryError(f"no job event: {error}", subject="webhook") from None


def _event(item: Any, number: int, count: int) -> JobEvent:
    """Return one event; its source is what it came by, whatever it calls itself."""
    where = f"event {number + 1} of {count}: " if count > 1 else ""
    if not isinstance(item, dict):
        raise RecoveryError(f"no job event: {where}a JSON object is expected", subject="webhook")
    said = str(item.get("source") or "")[:80]
    try:
        event = JobEvent.model_validate(
            {**item, "source": f"webhook:{said}" if said else "webhook"}
        )
    except ValidationError as error:
        raise RecoveryError(
            f"no job event: {where}{wrong_fields(error)}", subject="webhook"
        ) from None
    return event


def events_of_alerts(content: Any, cluster: str) -> list[JobEvent]:
    """Return one event for each firing alert that names a job; others are passed over.

    The job stands in the label `slurm_job_id`, `job_id` or `jobid`, its attempt in `attempt`; `state`
    is the scheduler's word (FAILED where it is not given).

    Raises:
        RecoveryError: It is no payload of Alertmanager (version 4).
    """
    alerts = content.get("alerts") if isinstance(content, dict) else None
    if not isinstance(alerts, list) or len(alerts) > MOST_EVENTS:
        raise RecoveryError("no payload of Alertmanager", subject="webhook")
    found = []
    for alert in alerts:
        labels = alert.get("labels") if isinstance(alert, dict) else None
        if not isinstance(labels, dict) or alert.get("status") != "firing":
            continue
        job = next((str(labels[name]) for name in JOB_LABELS if labels.get(name)), "")
        if not job:
            continue
        attempt = str(labels.get("attempt", "0"))
        node = str(labels.get("node", ""))
        found.append(
            JobEvent(
                job=JobRef(
                    cluster=str(labels.get("cluster") or cluster),
                    job=job,
                    attempt=int(attempt) if attempt.isdigit() else 0,
                ),
                source="alertmanager",
                state=str(labels.get("state", "FAILED")).upper(),
                time=str(alert.get("startsAt") or datetime.now(UTC).isoformat()),
                allocation=Allocation(nodes=(NodeShare(node=node),) if node else ()),
                extra={"alert": str(labels.get("alertname", ""))},
            )
        )
    return found


def _keep(events: list[JobEvent], message_id: str, data: Path) -> str:
    """Leave events in the spool; return why that was not possible, or an empty string."""
    try:
        for event in events:
            spool.leave(data / spool.FOLDER, event.model_dump_json().encode())
    except RecoveryError as error:
        # The sender tries again under the same id, which must not be taken for a replay.
        webhook.forget(message_id, data / webhook.SEEN_FOLDER)
        return error.message
    return ""


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise RecoveryError("the body is no JSON", subject="webhook") from None
