"""Vendor tables (Xid, SXid) turned into rules, one per code.

The tables lie in `catalogues/*.yaml`, dated and sourced; this module only knows the form of the
lines that carry a code.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CodeMeaning:
    """What one vendor or system code says: in words, as a leaf, and what to do."""

    code: str
    meaning: str
    name: str = ""
    leaf: str | None = None
    role: str = ""
    action: str | None = None
    signal: str = ""
    note: str = ""
    source: str = ""


FOLDER = Path(__file__).with_name("catalogues")
FILES = (FOLDER / "xid.yaml",)
"""The files that rules are made of."""
_XID = r"Xid \((?:PCI:)?(?P<pci>[0-9A-Fa-f:.]+)\): (?P<xid>{code})\b"
_PID = r"(?:, pid='?(?P<pid>\d+))?"


def rule_sources() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (file name, raw rule) for every code of every catalogue."""
    yield from _xid()


def _xid() -> Iterator[tuple[str, dict[str, Any]]]:
    table = load_cached(FILES[0])
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


_TABLES = {
    "xid": ("xid.yaml", "codes"),
    "sxid": ("sxid.yaml", "codes"),
    "ib": ("ib_status.yaml", "statuses"),
}
KINDS = (*_TABLES, "exit")


def exit_code(code: int | str) -> CodeMeaning | None:
    """Return what an exit code or signal says: -9, 137 or Slurm's `0:9`."""
    table = load_cached(FOLDER / "exit_codes.yaml")
    for entry in table["codes"]:
        if str(code) in [str(c) for c in entry["codes"]]:
            return CodeMeaning(
                str(code), entry["meaning"], leaf=entry["leaf"], role=entry["role"], action=entry.get("action"),
                signal=entry.get("signal", ""), source=table["source"],
            )  # fmt: skip
    return None


@lru_cache(maxsize=1)
def _ends() -> dict[int, str]:
    table = load_cached(FOLDER / "exit_codes.yaml")
    return {
        code: entry["ends"]
        for entry in table["codes"]
        if "ends" in entry
        for code in entry["codes"]
        if isinstance(code, int)
    }


def how_it_ended(code: int) -> str:
    """Return how a process with this exit code or negative signal came to its end; "own" for a code of its own."""
    return _ends().get(code, "own")


def lookup(kind: str, code: str) -> CodeMeaning | None:
    """Return what a code of one of `KINDS` says, or None when the catalogue does not hold it."""
    if kind == "exit":
        return exit_code(code)
    file, key = _TABLES[kind]
    table = load_cached(FOLDER / file)
    for entry in table[key]:
        if str(entry["code"]) == code:
            return CodeMeaning(
                code, entry["meaning"], name=entry.get("mnemonic") or entry.get("name", ""), leaf=entry.get("leaf"),
                role=entry.get("role", ""), action=entry.get("action"), note=entry.get("note", ""), source=table["source"],
            )  # fmt: skip
    return None
