"""From a sign to its cause (`causes.yaml`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from rerail.errors import ConfigError

FILE = Path(__file__).with_name("causes.yaml")


@dataclass(frozen=True)
class Cause:
    """One row of the table; empty conditions fit everything."""

    id: str
    kind: tuple[str, ...]
    work: tuple[str, ...]
    spread: tuple[str, ...]
    facts: frozenset[str]
    layer: Literal["infrastructure", "script"]
    failure_type: str
    says: str
    next: str
    imbalance: bool
    example: dict[str, Any]

    def fits(self, kind: str, work: str, spread: str, facts: frozenset[str]) -> bool:
        """Tell whether a sign of this kind, class, spread and facts is explained."""
        return (
            kind in self.kind
            and (not self.work or work in self.work)
            and (not self.spread or spread in self.spread)
            and self.facts <= facts
        )


@cache
def causes(path: Path = FILE) -> tuple[Cause, ...]:
    """Return the table.

    Raises:
        ConfigError: the file cannot be read, or an entry lacks a field.
    """
    import yaml

    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))["causes"]
        return tuple(
            Cause(
                row["id"], tuple(row["kind"]), tuple(row.get("work", ())), tuple(row.get("spread", ())),
                frozenset(row.get("facts", ())), row["layer"], row["failure_type"], row["says"],
                row["next"], bool(row.get("imbalance", False)), row["example"],
            )
            for row in rows
        )  # fmt: skip
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path}: not a table of causes ({error})", subject=str(path),
            hint="each entry has id, kind, layer, failure_type, says, next and example",
        ) from None  # fmt: skip


def cause_of(kind: str, work: str, spread: str, facts: frozenset[str]) -> Cause:
    """Return the first cause that fits.

    Raises:
        ConfigError: no entry fits.
    """
    for row in causes():
        if row.fits(kind, work, spread, facts):
            return row
    raise ConfigError(
        f"{FILE}: no entry fits kind {kind}, work {work}, spread {spread}", subject=str(FILE),
        hint="add an entry without conditions for this kind",
    )  # fmt: skip
