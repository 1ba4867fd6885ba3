"""The time that `--since` means, as the store writes times."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from rerail.assistant.narrow import Narrow
from rerail.errors import UsageError
from rerail.knowledge_base.store.clock import to_iso


def since_iso(text: str) -> str:
    """Return a span before now (7d, 12h) or a date as an ISO 8601 time in UTC.

    Raises:
        UsageError: It is neither.
    """
    since = Narrow.parse(rank=None, since=text).since
    try:
        return to_iso(datetime.fromtimestamp(since or time.time(), UTC))
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"--since {text!r} lies before the first year", subject=text, hint="--since 30d"
        ) from None
