"""The time of the store: ISO 8601 in UTC with milliseconds, so that text order is time order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def now_iso() -> str:
    """Return the present time."""
    return to_iso(datetime.now(UTC))


def to_iso(moment: datetime) -> str:
    """Return a moment in the form of the store."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_iso(text: str) -> datetime:
    """Return the moment a text of the store names.

    Raises:
        ValueError: for a text that is no ISO 8601 time.
    """
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def days_before(text: str, days: float) -> str:
    """Return the time `days` before another."""
    return to_iso(from_iso(text) - timedelta(days=days))
