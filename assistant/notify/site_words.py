"""What rerail tells of itself by the services that tell of incidents: it is held, or could not work an event off.

Each word is of a kind. While one of its kind is open it is changed in place; after its end the next is a new
one, which nobody overlooks in an old message. It is kept in the store with a number that grows with each
change; `told` compares that number as it does an incident's timeline.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from rerail.assistant.notify.notice import Notice, safe
from rerail.knowledge_base.store.clock import now_iso
from rerail.recovery.store import control
from rerail.recovery.store.tables import CONTROL

OWN = "rerail/"
"""How the kinds and keys of these words begin, where those of incidents begin with INC-."""
HELD = f"{OWN}held"
_PREFIX, _COUNTER = "word/", "words"


@dataclass(frozen=True, slots=True)
class SiteNotice(Notice):
    """A notice that no incident stands behind."""

    def rows(self) -> tuple[tuple[str, str], ...]:
        """Return what stands below the headline; `rerail doctor` says more of rerail itself."""
        rows = dict(Notice.rows(self))
        rows["More"] = self.url or "rerail doctor"
        return tuple(rows.items())


def event_kind(number: int) -> str:
    """Return the kind of the word on an event of the queue."""
    return f"{OWN}event-{number}"


def put(connection: Connection, kind: str, text: str, *, job: str = "") -> None:
    """Tell people something of rerail itself, in place of what is told of this kind now."""
    value = {"kind": kind, "text": text, "job": job, "open": True, "when": now_iso()}
    key = next(_open(connection, kind), f"{kind}.{newest(connection) + 1}")
    _write(connection, key, value)


def end(connection: Connection, kind: str) -> None:
    """Tell people that it is over; nothing where nothing is open."""
    for key in list(_open(connection, kind)):
        _write(connection, key, {**_word(connection, key), "open": False})


def newest(connection: Connection) -> int:
    """Return the number of the last change."""
    return int(control.get(connection, _COUNTER) or 0)


def changed(connection: Connection, since: int) -> Iterator[tuple[str, int]]:
    """Yield key and number of each word that was changed after the change `since`."""
    for key, value in _all(connection):
        if value["number"] > since:
            yield key, value["number"]


def notice_of_word(connection: Connection, key: str, *, cluster: str, page: str) -> SiteNotice:
    """Return how a word is told as it stands now; it is masked, cleaned and short."""
    value = _word(connection, key)
    is_open, host = bool(value["open"]), socket.gethostname()
    return SiteNotice(
        incident=key, fingerprint=f"{key}@{host}", cluster=safe(cluster), job=safe(value["job"]), node=host,
        type_id="", category="", headline=safe(value["text"]), status="", place="", cost="",
        do="find out why, and set it right" if is_open else "",
        standing="a person has to look" if is_open else "over", open=is_open,
        when=value["when"], url=page,
    )  # fmt: skip


def _all(connection: Connection) -> Iterator[tuple[str, dict[str, Any]]]:
    query = select(CONTROL).where(CONTROL.c.key.startswith(_PREFIX)).order_by(CONTROL.c.key)
    for row in connection.execute(query).all():
        yield row.key.removeprefix(_PREFIX), row.value


def _open(connection: Connection, kind: str) -> Iterator[str]:
    return (key for key, one in _all(connection) if one["kind"] == kind and one["open"])


def _word(connection: Connection, key: str) -> dict[str, Any]:
    value: dict[str, Any] = control.get(connection, _PREFIX + key)
    return value


def _write(connection: Connection, key: str, value: dict[str, Any]) -> None:
    number = newest(connection) + 1
    control.put(connection, _COUNTER, number)
    control.put(connection, _PREFIX + key, {**value, "number": number})
