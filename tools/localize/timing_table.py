"""The table of timers and gauges that other tools print (`timings.yaml`)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached

TABLE = Path(__file__).with_name("timings.yaml")


@lru_cache(maxsize=1)
def timing_table() -> dict[str, Any]:
    """Return the table by tool."""
    found: dict[str, Any] = load_cached(TABLE)
    return found
