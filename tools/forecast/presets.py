"""Published failure rates, by name (presets.yaml)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.errors import ConfigError

_FILE = Path(__file__).with_name("presets.yaml")


@dataclass(frozen=True)
class Preset:
    """Failures per node and day, mean seconds to restart where published, and the source."""

    name: str
    title: str
    failures_per_node_day: float
    restart_s: float | None
    source: str
    effective_time_at_least: float | None = None


def preset(name: str) -> Preset:
    """Return a preset.

    Raises:
        ConfigError: there is none of this name.
    """
    content = load_cached(_FILE)
    if name not in content:
        raise ConfigError(
            f"job.preset: there is no preset {name!r}",
            subject="job.preset",
            hint=f"one of {', '.join(sorted(content))}",
        )
    row = content[name]
    restart = None
    if "rows" in row:
        failures = sum(one[1] for one in row["rows"])
        nodes = [one[2] / row["gpus_per_node"] for one in row["rows"]]
        days = sum(
            one[1] * node * one[3] / 1440 for one, node in zip(row["rows"], nodes, strict=True)
        )
        restart = 60 * sum(one[1] * one[4] for one in row["rows"]) / failures
    else:
        failures, days = row["interruptions"], row["node_days"]
    return Preset(
        name, row["title"], failures / days, restart, row["source"],
        row.get("effective_time_at_least"),
    )  # fmt: skip


def preset_names() -> list[str]:
    """Return the names of all presets."""
    return sorted(load_cached(_FILE))
