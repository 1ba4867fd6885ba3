"""`rerail notify`: by which services people are told, what waits to be told, and a test message."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from dataclasses import replace

from rerail.assistant.identity import login
from rerail.assistant.notify import told
from rerail.assistant.notify.configured import services_of
from rerail.assistant.notify.notice import Notice
from rerail.assistant.notify.service import Service
from rerail.assistant.watch.site import load_site
from rerail.errors import ClusterError, ConfigError, RerailError, UsageError
from rerail.knowledge_base.store.clock import now_iso
from rerail.knowledge_base.store.engine import reading, store_exists
from rerail.knowledge_base.store.opened import opened_store


def notify_command(*, test: bool, service: str) -> int:
    """Print the services and what waits, or try them; exit code 1 where one cannot be used.

    Raises:
        UsageError: No such service is set up.
        ConfigError: The policy file is not usable.
    """
    site = load_site()
    found, wrong = services_of(site.policy.notify, site.settings)
    chosen = [one for one in found if one.name == service or one.name.startswith(f"{service}-")]
    chosen = chosen if service else found
    mine = [one for one in wrong if not service or one.subject == f"notify.{service}"]
    for error in mine:
        _complain(error)
    if not chosen and not mine:
        _none(service, found)
    if test:
        results = [_try(one, site.policy.notify.page) for one in chosen]
        return 0 if all(results) and not mine else 1
    for one in chosen:
        print(f"{one.name}: set up; rerail watch tells by it")
    page = site.policy.notify.page
    print(f"links lead to {page}" if page else "no links: notify.page in the policy file is empty")
    if store_exists():
        _waiting()
    return 1 if mine else 0


def _none(service: str, found: Sequence[Service]) -> None:
    names = ", ".join(one.name for one in found)
    raise UsageError(
        f"no service is called {service!r}" if service else "no service is set up",
        subject="notify",
        hint=names or "notify.slack, .pagerduty, .alertmanager or .apprise (docs/notifications.md)",
    )


def _waiting() -> None:
    with opened_store() as engine, reading(engine) as connection:
        for row in told.waiting(connection):
            tries = "1 try" if row.tries == 1 else f"{row.tries} tries"
            print(f"waits: {row.incident} by {row.service}, {tries}: {row.note}")


def _try(service: Service, page: str) -> bool:
    """Tell of an incident that is none, and end it; say what came of it."""
    notice = _test_notice(page)
    try:
        handle = service.tell(notice, {}, alone=True)
        if _edits(service):
            service.tell(
                replace(notice, standing="this was a test", open=False), handle, alone=True
            )
    except (ClusterError, ConfigError) as error:
        _complain(error)
        return False
    print(f"{service.name}: took the test message" + (", and its end" if _edits(service) else ""))
    return True


def _edits(service: Service) -> bool:
    """Tell whether a second word changes the first one and is no message of its own."""
    return not service.name.startswith("apprise")


def _complain(error: RerailError) -> None:
    print(error.message + (f"\n  try: {error.hint}" if error.hint else ""), file=sys.stderr)


def _test_notice(page: str) -> Notice:
    host = socket.gethostname()
    return Notice(
        incident="INC-test",
        fingerprint=f"rerail-test-{host}",
        cluster="",
        job="",
        node=host,
        type_id="",
        category="",
        headline=f"Test of rerail on {host} by {login()}: nothing failed",
        status="",
        place="",
        cost="",
        do="nothing",
        standing="this is a test",
        open=True,
        when=now_iso(),
        url=page,
    )
