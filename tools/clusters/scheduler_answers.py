"""What a scheduler's program meant by the words with which it failed (`scheduler_answers.yaml`)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

AWAY, FORBIDDEN, REFUSED = "away", "forbidden", "refused"
FILE = Path(__file__).with_suffix(".yaml")


@lru_cache(maxsize=1)
def _answers() -> tuple[tuple[str, str], ...]:
    # Read only when something failed: no command starts slower for it.
    import yaml

    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return tuple((str(one["text"]).lower(), str(one["means"])) for one in content["answers"])


def meaning(said: str) -> str:
    """Return `away`, `forbidden` or `refused`; an empty string for words that nobody knows."""
    lowered = said.lower()
    return next((means for text, means in _answers() if text in lowered), "")
