"""The fleet view as flat tables of plain values, for CSV files and pandas."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rerail.assistant.presentation.fleet import FleetView

Rows = list[dict[str, Any]]


def fleet_frames(view: FleetView) -> dict[str, Rows]:
    """Return each table by its name, a row a dictionary; durations in seconds, hours where the name says so."""
    site = view.site
    frames: dict[str, Rows] = {
        "periods": [
            {"begins": row.begins, "category": kind, "incidents": count}
            for row in view.periods
            for kind, count in row.by_category.items()
        ],
        "categories": [
            {
                "category": one.id,
                "title": one.title,
                "incidents": one.incidents,
                "gpu_hours_lost": one.gpu_hours.hours,
                "gpu_hours_known": one.gpu_hours.known,
                **({} if site is None else asdict(site.categories[one.id])),
            }
            for one in view.categories
        ],
        "nodes": [
            {**asdict(one), "failure_types": " ".join(one.failure_types)} for one in view.nodes
        ],
        "repeats": [{**asdict(one), "latest": " ".join(one.latest)} for one in view.repeats],
        "recoveries": [{"who": who, **asdict(one)} for who, one in view.recoveries.items()],
    }
    if site is not None:
        frames["chance"] = [
            {"kind": kind, **asdict(one), "stands_out": one.stands_out}
            for kind, part in (
                ("node", site.nodes),
                ("switch", site.switches),
                ("user", site.users),
            )
            for one in part
        ]
        frames["sizes"] = [
            {
                "least_gpus": one.least,
                "most_gpus": one.most,
                "attempts": one.attempts,
                "hours": one.hours,
                "gpu_hours": one.gpu_hours,
                "failures": one.failures,
                **_mttf(asdict(one.mttf)),
            }
            for one in site.reliability.sizes
        ]
        frames["projection"] = [
            {"gpus": gpus, **_mttf(asdict(one))} for gpus, one in site.reliability.projection
        ]
        frames["efficiency"] = [asdict(site.efficiency)]
    return frames


def _mttf(interval: dict[str, Any]) -> dict[str, Any]:
    return {f"mttf_{name}": value for name, value in interval.items()}
