"""The body of `rerail watch`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rerail.assistant.identity import login
from rerail.assistant.notify.configured import services_of
from rerail.assistant.notify.service import Service
from rerail.assistant.notify.telling import Telling, telling
from rerail.assistant.watch.daemon import Daemon
from rerail.assistant.watch.log import say
from rerail.assistant.watch.site import Site, explain, load_site
from rerail.errors import UsageError
from rerail.knowledge_base.store.opened import opened_store

_TELL_AT_END_S = 15.0
"""What one run over the waiting events gives services at its end; the rest is told by the next."""


def watch_command(
    interval_s: float, poll_s: float, *, once: bool, limit_s: float, listen: str | None = None
) -> int:
    """Run the daemon until it is told to stop, or once over what waits; exit code 0.

    Raises:
        UsageError: `listen` is no address, or no secret for webhooks is set.
    """
    site = load_site()
    _check_temporary()

    if site.reader is None and not once:
        print(
            "rerail watch: no scheduler is set (RERAIL_SCHEDULER); only hooks are heard",
            file=sys.stderr,
        )
    with (
        opened_store() as engine,
        _listening(site, listen, say),
        telling(
            *(engine, _services(site), site.policy.notify.page, say),
            limit_s=_TELL_AT_END_S if once else 1.0,
        ) as told,
    ):
        daemon = Daemon(site, engine, say, poll_s=poll_s)
        if once:
            daemon.drain(limit_s)
        else:
            daemon.load = lambda: _again(told)
            say(f"watching {site.settings.scheduler or 'hooks'}, {daemon.manner()}")
            daemon.run(interval_s)
    return 0


def _services(site: Site) -> list[Service]:
    """Return by whom people are told; a service that cannot be used is said and holds up nothing."""
    found, wrong = services_of(site.policy.notify, site.settings)
    for error in wrong:
        say(f"nobody is told this way: {explain(error)}")
    return found


def _again(told: Telling) -> Site:
    """Read the site again, and with it who is told.

    Raises:
        ConfigError: The policy file is not usable.
    """
    site = load_site()
    told.start(_services(site), site.policy.notify.page)
    return site


def _check_temporary() -> None:
    """Refuse to start where no temporary file can be made: every diagnosis would fail.

    Raises:
        UsageError: `TMPDIR` names a folder that this account cannot use.
    """
    given = os.environ.get("TMPDIR")
    try:
        with tempfile.TemporaryFile(dir=given):
            return
    except OSError as error:
        place = given or "(the usual folders)"
        raise UsageError(
            f"TMPDIR {place} cannot be used by {login()}: {error.strerror}",
            subject="TMPDIR",
            hint="unset TMPDIR, or name a folder that this account may write",
        ) from None


@contextmanager
def _listening(site: Site, listen: str | None, say: Callable[[str], None]) -> Iterator[None]:
    """Take webhooks while the daemon runs, if an address was given."""
    if listen is None:
        yield
        return
    from rerail.assistant.watch.listener import Listener

    secret = site.settings.webhook_secret_file
    if secret is None:
        raise UsageError(
            "webhooks need a secret",
            subject="webhook_secret_file",
            hint="set RERAIL_WEBHOOK_SECRET_FILE",
        )
    listener = Listener(listen, secret, site.data, site.settings.cluster, say)
    try:
        yield
    finally:
        listener.close()
