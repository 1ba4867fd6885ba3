"""One incident as people are told of it: the words of the presentation model, and where it stands."""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass

from pydantic import ValidationError
from sqlalchemy import Connection

from rerail.assistant.presentation.incident import job_name, list_row
from rerail.assistant.presentation.verdict import verdict_view
from rerail.domain.plan import ActionState, Mode
from rerail.errors import RerailError
from rerail.knowledge_base.store.incidents import IncidentFile
from rerail.log_parsers.redaction import redact
from rerail.log_parsers.text import clean
from rerail.recovery.executor import RESTARTS, TELLING
from rerail.recovery.store import plans
from rerail.recovery.store.plans import ActionRow

_LONGEST = 600
_UNDER_WAY = (ActionState.APPROVED, ActionState.EXECUTING, ActionState.VERIFYING)


@dataclass(frozen=True, slots=True)
class Notice:
    """What is said of one incident. `when` is ISO 8601 in UTC; `open` while somebody has to look.

    `standing` is one sentence on what was done and what waits. `fingerprint` is the same for
    failures that look the same; `url` is empty where no page is configured.
    """

    incident: str
    fingerprint: str
    cluster: str
    job: str
    node: str
    type_id: str
    category: str
    headline: str
    status: str
    place: str
    cost: str
    do: str
    standing: str
    open: bool
    when: str
    url: str

    @property
    def title(self) -> str:
        """The sentence, and that it is over where it is."""
        return self.headline if self.open else f"Over: {self.headline}"

    def rows(self) -> tuple[tuple[str, str], ...]:
        """Return what stands below the headline, each with its word; nothing that is empty."""
        told = (
            ("Now", self.standing),
            ("Verdict", f"{self.status} {self.type_id}".strip()),
            ("First fault", self.place),
            ("Job", f"{self.job} on {self.cluster}" if self.job else ""),
            ("Cost", self.cost),
            ("To do", self.do),
            ("More", self.url or f"rerail show {self.incident}"),
        )
        return tuple((word, text) for word, text in told if text)

    @property
    def digest(self) -> str:
        """SHA-256 of everything that is said."""
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()


def is_told(file: IncidentFile) -> bool:
    """Tell whether people hear of an incident: a job's end was reported, and it was decided on.

    What a person diagnosed by hand is known to that person; a failure that waits for others like it
    is told with them.
    """
    kinds = {entry.kind for entry in file.timeline}
    return {"job_event", "plan"} <= kinds or "member" in kinds


def notice_of(
    connection: Connection, file: IncidentFile, *, cluster: str = "", page: str = ""
) -> Notice:
    """Return the notice of an incident as it stands now; text of logs is masked, cleaned and short."""
    row, diagnosis = file.row, file.diagnosis
    view = verdict_view(diagnosis)
    corrected = row.confirmed_type not in (None, row.failure_type)
    standing, is_open = _standing(connection, file)
    nodes = () if corrected else diagnosis.suspects.nodes
    return Notice(
        incident=row.id,
        fingerprint=row.fingerprint,
        cluster=safe(row.cluster or cluster),
        job=safe(job_name(row)),
        node=safe(", ".join(nodes[:4])),
        type_id=row.true_type or "",
        category=diagnosis.category or "",
        headline=safe(list_row(row, diagnosis).headline if corrected else view.headline),
        status="CORRECTED" if corrected else view.status,
        place="" if corrected else safe(", ".join(view.place)),
        cost=safe(", ".join(view.cost)),
        do="" if corrected else safe(view.do),
        standing=safe(standing),
        open=is_open,
        when=row.time,
        url=f"{page}/incidents/{row.id}" if page else "",
    )


def safe(text: str) -> str:
    """Return text of logs and errors as people may be told it: masked, without control characters, short."""
    whole = clean(redact(" ".join(text.split())).encode("utf-8", "replace"))
    return whole if len(whole) <= _LONGEST else whole[: _LONGEST - 3] + "..."


def _standing(connection: Connection, file: IncidentFile) -> tuple[str, bool]:
    """Return what was done and what waits, and whether somebody still has to look."""
    if not file.row.failed:
        return "nothing failed", False
    signed = file.sign_off()
    if signed is not None:
        return f"signed off by {signed.by}", False
    parent = next((e for e in file.timeline if e.kind == "part_of"), None)
    if parent is not None:
        return f"told with others that share its cause: {parent.text}", False
    try:
        made = plans.of_incident(connection, file.row.id)
        rows = [row for plan in made for row in plans.states(connection, plan)]
    except (RerailError, ValidationError):
        return "its plan was changed after it was made: rerail audit verify", True
    acting = [row for row in rows if row.action.kind not in TELLING]
    again = next(
        (r for r in acting if r.action.kind in RESTARTS and r.state is ActionState.VERIFIED), None
    )
    if again is not None:
        return f"the job runs again: {_what(again)}", False
    latest = [row for row in acting if row.plan.id == made[-1].id] if made else []
    return _of_steps(latest), True


def _of_steps(rows: list[ActionRow]) -> str:
    for state, words in (
        (ActionState.FAILED, "failed"),
        (ActionState.UNKNOWN, "was interrupted and is looked at"),
    ):
        for row in rows:
            if row.state is state:
                return f"{_what(row)} {words}: {row.note}".rstrip(": ")
    for row in rows:
        if row.state in _UNDER_WAY:
            return f"under way: {_what(row)}"
    waits = [r for r in rows if r.state is ActionState.PROPOSED and r.plan.mode is not Mode.OBSERVE]
    asks = next((row for row in waits if row.action.needs_approval), None)
    if asks is not None:
        return f"waits for a person: {_what(asks)}; rerail approve {asks.plan.id}"
    for state, words in (
        (ActionState.REJECTED, "was rejected"),
        (ActionState.EXPIRED, "was not approved or begun in time: rerail plan --again"),
        (ActionState.VERIFIED, "is done"),
    ):
        for row in rows:
            if row.state is state:
                return f"{_what(row)} {words}"
    return f"will be tried: {_what(waits[0])}" if waits else "nothing has been done"


def _what(row: ActionRow) -> str:
    kind = str(row.action.kind).replace("_", " ")
    return f"step {row.action.step} of {row.plan.id}, {kind} {row.action.target}".rstrip()
