"""Vendor tables (Xid, SXid) turned into rules, one per code.

The tables lie in `catalogues/*.yaml`, dated and sourced; this module only knows the form of the
lines that carry a code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rerail.knowledge_base.cached_yaml import load_cached

FOLDER = Path(__file__).with_name("catalogues")
_XID = r"Xid \((?:PCI:)?(?P<pci>[0-9A-Fa-f:.]+)\): (?P<xid>{code})\b"
_PID = r"(?:, pid='?(?P<pid>\d+))?"


def rule_sources() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (file name, raw rule) for every code of every catalogue."""
    yield from _xid()


def _xid() -> Iterator[tuple[str, dict[str, Any]]]:
    table = load_cached(FOLDER / "xid.yaml")
    for entry in table["codes"]:
        code = entry["code"]
        raw: dict[str, Any] = {
            "id": f"xid-{code}",
            "pattern": _XID.format(code=code) + _PID,
            "leaf": entry.get("leaf"),
            "role": entry["role"],
            "tier": entry.get("tier", "hardware"),
            "weight": entry.get("rank", 0),
            "priority": 60,
            "source": table["source"],
            "note": f"Xid {code}: {entry['meaning']}",
        }
        if entry.get("action"):
            raw["action"] = entry["action"]
        if entry.get("nvlink5"):
            # The word in the line decides: a Nonfatal event is corrected by the link itself.
            yield (
                "catalogue xid",
                {
                    **raw,
                    "pattern": raw["pattern"] + ".{0,60}? Fatal",
                    "role": "initiating",
                    "priority": 62,
                },
            )
            raw = {**raw, "id": f"xid-{code}-nonfatal", "role": "context"}
            raw.pop("action", None)
        yield "catalogue xid", raw
    unknown = table["unknown_code"]
    yield (
        "catalogue xid",
        {
            "id": "xid-unknown",
            "pattern": _XID.format(code=r"\d+") + _PID,
            "leaf": unknown.get("leaf"),
            "role": unknown["role"],
            "tier": unknown.get("tier", "hardware"),
            "priority": 20,
            "source": table["source"],
            "note": "An Xid that NVIDIA's catalogue marks as unused.",
        },
    )
