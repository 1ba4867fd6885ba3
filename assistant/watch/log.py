"""The daemon's log: one line for each thing that happened, without secrets and control characters."""

from __future__ import annotations

from rerail.knowledge_base.store.clock import now_iso
from rerail.log_parsers.redaction import redact
from rerail.log_parsers.text import clean


def say(text: str) -> None:
    """Print one line with its time.

    What a scheduler, a job's log or a failed command said stands in these texts: it is masked here,
    whoever wrote it, and cannot begin a line of its own.
    """
    rows = [clean(row.encode("utf-8", "replace")) for row in redact(text).split("\n")]
    print(f"{now_iso()} {' | '.join(row for row in rows if row.strip())}", flush=True)
