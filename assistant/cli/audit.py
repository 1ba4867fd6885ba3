"""The bodies of `rerail audit` and `rerail breaker`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine

from rerail.assistant.identity import acting_person
from rerail.assistant.watch.site import load_site
from rerail.knowledge_base.store.engine import open_read_only, reading, writing
from rerail.knowledge_base.store.opened import opened_store
from rerail.recovery.approvals import check_approver
from rerail.recovery.store import audit, control


@contextmanager
def _read_only(file: Path | None = None) -> Iterator[Engine]:
    engine = open_read_only(file=file)
    try:
        yield engine
    finally:
        engine.dispose()


def verify_command(file: Path | None = None) -> int:
    """Walk the chain where it lies, without writing; 0 if it holds, 1 if it is broken.

    Raises:
        StoreError: There is no store, or it cannot be read.
    """
    with _read_only(file) as engine, reading(engine) as connection:
        report = audit.verify(connection)
    if report.broken_at is not None:
        print(f"BROKEN at entry {report.broken_at}: {report.why}")
        print(f"  {report.entries} entries before it hold; the last good digest is {report.last}")
        return 1
    print(f"intact: {report.entries} entries, last digest {report.last}")
    print("  keep this digest elsewhere: only it shows that the newest entries were not cut off")
    return 0


def show_command(subject: str, limit: int, json_output: bool) -> int:
    """Print entries, the latest last."""
    with _read_only() as engine, reading(engine) as connection:
        rows = audit.entries(connection, subject or None, limit)
    for row in rows:
        if json_output:
            print(json.dumps(dict(row._mapping)))
            continue
        body = " ".join(
            f"{name}={value}" for name, value in row.body.items() if value not in ("", [], None)
        )
        print(
            f"{row.number:>5}  {row.time}  {row.actor:<10} {row.what:<18} {row.subject}  {body}"[
                :240
            ]
        )
    return 0


def breaker_command() -> int:
    """Say how the breaker and the stop files stand; 1 while one of them stops everything."""
    site = load_site()
    stopped = site.brake().stop_file()
    with opened_store() as engine, reading(engine) as connection:
        why = control.breaker_reason(connection)
    if stopped:
        print(f"STOPPED: {stopped}\n  remove it to go on")
    print(f"OPEN: {why}\n  rerail breaker close 'what was found'" if why else "closed")
    return 1 if why or stopped else 0


def open_command(why: str, by: str | None) -> int:
    """Open the breaker on a person's word; anybody who can write to the store may stop everything.

    Raises:
        RecoveryError: Another name was given than that of the login.
    """
    person = acting_person(by, load_site().policy, strict=False)
    with opened_store() as engine, writing(engine) as connection:
        opened = control.trip(connection, f"{why} ({person})", by=person)
        was = control.breaker_reason(connection)
    print("open: nothing is written any more" if opened else f"it was open already: {was}")
    return 0


def close_command(reason: str, by: str | None) -> int:
    """Close the breaker on a person's word.

    Raises:
        RecoveryError: The person is not the one who logged in, or no approver.
    """
    site = load_site()
    person = acting_person(by, site.policy, strict=True)
    check_approver(person, site.policy)
    with opened_store() as engine, writing(engine) as connection:
        closed = control.close_breaker(connection, person, reason)
    print("closed" if closed else "it was not open")
    if stopped := site.brake().stop_file():
        print(f"still stopped: {stopped}")
    return 0
