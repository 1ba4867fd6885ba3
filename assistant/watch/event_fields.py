"""Says of an event that does not fit which field is wrong, in the words of who wrote it."""

from __future__ import annotations

from pydantic import ValidationError

MOST_NAMED = 3


def wrong_fields(error: ValidationError) -> str:
    """Return the first wrong fields of an event, each with what is expected there."""
    shown = []
    for one in error.errors()[:MOST_NAMED]:
        name = ".".join(map(str, one["loc"])) or "the event"
        said = one["msg"][0].lower() + one["msg"][1:]
        if one["type"] == "extra_forbidden":
            said = "there is no such field"
        shown.append(f"{name}: {said}")
    return "; ".join(shown)
