"""Which daemons run on this store, and by which policy file: what a command says must be true of them too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, delete, select

from rerail.assistant.watch.site import Site
from rerail.errors import ConfigError, RecoveryError
from rerail.knowledge_base.store.engine import reading
from rerail.recovery.executor import is_gone
from rerail.recovery.live_policy import digest_of
from rerail.recovery.store import control
from rerail.recovery.store.tables import CONTROL

PREFIX = "daemon/"
SEEN_EVERY_S = 30.0
GONE_AFTER_S = 300.0


@dataclass(frozen=True, slots=True)
class Presence:
    """One `rerail watch`: host and process, its policy file with the digest it acts by, its cluster."""

    name: str
    policy: str
    digest: str
    cluster: str
    seen: float
    trouble: str = ""


def announce(connection: Connection, name: str, site: Site, now: float) -> None:
    """Say that a daemon runs; `now` is seconds since the epoch."""
    live = site.live
    body: dict[str, Any] = {
        "name": name,
        "policy": str(live.path or "") if live else "",
        "digest": live.digest if live else "",
        "cluster": site.settings.cluster,
        "trouble": live.trouble() if live else "",
        "seen": now,
    }
    control.put(connection, f"{PREFIX}{name}"[:64], body)


def leave(connection: Connection, name: str) -> None:
    """Say that a daemon has ended."""
    connection.execute(delete(CONTROL).where(CONTROL.c.key == f"{PREFIX}{name}"[:64]))


def running(connection: Connection, now: float) -> Iterator[Presence]:
    """Yield the daemons that are not known to be gone."""
    query = select(CONTROL.c.value).where(CONTROL.c.key.startswith(PREFIX))
    for (value,) in connection.execute(query.order_by(CONTROL.c.key)).all():
        one = Presence(**value)
        if not is_gone(one.name) and now - one.seen < GONE_AFTER_S:
            yield one


def others(engine: Engine, site: Site) -> list[Presence]:
    """Return the running daemons of this cluster that act by another policy than this command's."""
    import time

    own = site.live.digest if site.live else ""
    with reading(engine) as connection:
        found = list(running(connection, time.time()))
    return [one for one in found if one.cluster == site.settings.cluster and one.digest != own]


def check_same_policy(engine: Engine, site: Site) -> None:
    """Refuse to approve under another policy than that by which a daemon would carry it out.

    Raises:
        RecoveryError: A running daemon goes by another policy file.
    """
    for one in others(engine, site):
        theirs = one.policy or "no policy file"
        mine = str(site.live.path) if site.live and site.live.path else "no policy file"
        if theirs != mine:
            raise RecoveryError(
                f"rerail watch ({one.name}) acts by {theirs}, and this command by {mine}",
                subject=one.name,
                hint=f"RERAIL_POLICY_FILE={one.policy}"
                if one.policy
                else "unset RERAIL_POLICY_FILE",
            )


def what_runs(engine: Engine, site: Site) -> Iterator[str]:
    """Yield what a plan's reader has to know of what is executed at this moment."""
    elsewhere = [
        one for one in others(engine, site) if one.policy != str(site.settings.policy_file)
    ]
    for one in elsewhere:
        yield f"NOTE: rerail watch ({one.name}) acts by {one.policy or 'no policy file'}"
    if site.policy.dry_run and not elsewhere:
        yield "DRY RUN: the policy says dry_run: true (the default), nothing is executed"
    if site.live and (why := site.live.trouble()):
        yield f"HELD: {why}"


def changed_since(one: Presence) -> str:
    """Return why a daemon does nothing by itself: its policy file is another now; or an empty string."""
    if one.trouble or not one.policy:
        return one.trouble
    from pathlib import Path

    try:
        same = digest_of(Path(one.policy)) == one.digest
    except ConfigError as error:
        return error.message
    return "" if same else f"{one.policy} was changed after the daemon read it"
