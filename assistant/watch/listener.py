"""A small HTTP listener for webhooks: checks, keeps the events in the spool, answers at once.

POST /events takes one JobEvent or a list of them, signed; POST /alertmanager takes Alertmanager's
payload with a bearer token. Nothing else is answered, and nothing is ever read back.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rerail.assistant.watch.event_fields import wrong_fields
from rerail.domain.job import Allocation, JobEvent, JobRef, NodeShare
from rerail.errors import RecoveryError, UsageError
from rerail.recovery import spool, webhook

MOST_EVENTS = 1000
MOST_DRAINED = 4 << 20
JOB_LABELS = ("slurm_job_id", "job_id", "jobid")


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


class _Server(ThreadingHTTPServer):
    """A server that tells of a broken connection in one line, and of nothing with a traceback."""

    daemon_threads = True
    request_queue_size = 128
    key: bytes
    data: Path
    cluster: str
    say: Callable[[str], None]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what broke, unless the other side just went away."""
        error = sys.exc_info()[1]
        if not isinstance(error, (ConnectionError, TimeoutError)):
            self.say(f"webhook from {client_address[0]}: {type(error).__name__}: {error}")


class Listener:
    """Listens in threads of its own; `close` ends it."""

    def __init__(
        self, address: str, secret_file: Path, data: Path, cluster: str, say: Callable[[str], None]
    ) -> None:
        host, _, port = address.rpartition(":")
        if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535 or not host:
            raise UsageError(
                f"--listen {address!r} is no HOST:PORT", subject=address, hint="127.0.0.1:9095"
            )
        try:
            text = secret_file.expanduser().read_text(encoding="ascii", errors="replace")
        except OSError as error:
            raise UsageError(
                f"{secret_file}: {error.strerror}",
                subject=str(secret_file),
                hint="RERAIL_WEBHOOK_SECRET_FILE names a file with whsec_...",
            ) from None
        key = webhook.secret_key(text)
        try:
            self.server = _Server((host, int(port)), _Handler)
        except OSError as error:
            raise UsageError(
                f"--listen {address}: {error.strerror}",
                subject=address,
                hint="an address of this host and a free port, 127.0.0.1:9095",
            ) from None
        self.server.key, self.server.data = key, data
        self.server.cluster, self.server.say = cluster, say
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self.server.shutdown()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection; nothing is ever read back."""

    server: _Server
    timeout = 10
    server_version = "rerail"
    sys_version = ""

    def do_POST(self) -> None:
        """Check a message, keep its events, answer."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            self.close_connection = True
            self._answer(411, "Content-Length is missing or no number")
            return
        if int(length) > webhook.MOST_BYTES:
            self._drain(int(length))
            self.close_connection = True
            self.server.say(
                f"webhook refused from {self.client_address[0]}: {length} bytes are too many"
            )
            self._answer(413, f"too large: the limit is {webhook.MOST_BYTES} bytes")
            return
        body = self.rfile.read(int(length))
        try:
            events = self._events(dict(self.headers.items()), body)
        except RecoveryError as error:
            refused = "sign" in error.message or "token" in error.message
            self.server.say(f"webhook refused from {self.client_address[0]}: {error.message}")
            self._answer(401 if refused else 400, error.message)
            return
        except OSError as error:
            self._not_kept(f"{error.filename or self.server.data}: {error.strerror}")
            return
        if why := _keep(events, self.headers.get("webhook-id", ""), self.server.data):
            self._not_kept(why)
            return
        self._answer(202, f"{len(events)} taken")

    def _drain(self, length: int) -> None:
        """Read a little of what is too large: a sender that still writes would miss the answer."""
        left = min(length, MOST_DRAINED)
        while left > 0 and (piece := self.rfile.read(min(left, 1 << 16))):
            left -= len(piece)

    def _events(self, headers: dict[str, str], body: bytes) -> list[JobEvent]:
        if self.path == "/alertmanager":
            webhook.check_token(headers, body, self.server.key)
            return events_of_alerts(_json(body), self.server.cluster)
        if self.path != "/events":
            raise RecoveryError("no such address", subject=self.path)
        webhook.check(headers, body, self.server.key, self.server.data / webhook.SEEN_FOLDER)
        return events_of(_json(body), self.server.cluster)

    def _not_kept(self, why: str) -> None:
        self.server.say(f"webhook not kept: {why}")
        self._answer(503, "it could not be kept; send it again")

    def _answer(self, code: int, text: str) -> None:
        content = json.dumps({"result": text}).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: who asks decides what would be logged."""


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
