"""The body of `rerail watch`."""

from __future__ import annotations

import sys

from rerail.assistant.stored import opened_store
from rerail.assistant.watch.daemon import Daemon
from rerail.assistant.watch.site import load_site
from rerail.knowledge_base.store.clock import now_iso


def watch_command(interval_s: float, poll_s: float, *, once: bool, limit_s: float) -> int:
    """Run the daemon until it is told to stop, or once over what waits; exit code 0."""
    site = load_site()

    def say(text: str) -> None:
        print(f"{now_iso()} {text}", flush=True)

    if site.reader is None and not once:
        print(
            "rerail watch: no scheduler is set (RERAIL_SCHEDULER); only hooks are heard",
            file=sys.stderr,
        )
    with opened_store() as engine:
        daemon = Daemon(site, engine, say, poll_s=poll_s)
        if once:
            daemon.drain(limit_s)
        else:
            mode = "dry run" if site.policy.dry_run else "acting as the policy allows"
            say(f"watching {site.settings.scheduler or 'hooks'}, {mode}")
            daemon.run(interval_s)
    return 0
