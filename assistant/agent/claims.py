"""Claims of a model: typed statements that code can compare with the record, and free sentences.

A typed claim is one of a few statements about lines that were shown. The sentence that a person reads
is written here, from its parts; the model's own words stand in none of them but a quotation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

MOST_TEXT = 600


class Check(StrEnum):
    """How far code has checked a statement; only the first two count in any figure.

    quoted: all its words stand, in this order, in a line that it cites. structured: its typed parts
    agree with the record. cited: nothing is known but that the line exists, or not even that.
    suggested: it tells somebody to do something, and is no statement at all.
    """

    QUOTED = "quoted"
    STRUCTURED = "structured"
    CITED = "cited"
    SUGGESTED = "suggested"

    @property
    def counts(self) -> bool:
        """Tell whether code has checked the statement itself."""
        return self in (Check.QUOTED, Check.STRUCTURED)


KINDS = ("cause", "place", "order", "consequence", "quote")
_FIELDS = ["kind", "subject", "relation", "object", "lines"]


class Claim(BaseModel):
    """One claim of an answer.

    `kind` and `relation` are of the closed list in `answer.FORM`; `subject` is a handle, `object` a
    handle, a name or the quoted words. A model that knows no form writes `text` instead.
    """

    model_config = ConfigDict(
        frozen=True, extra="ignore", json_schema_extra={"required": [*_FIELDS]}
    )

    kind: str = ""
    subject: str = ""
    relation: str = ""
    object: str = ""
    lines: list[str] = []
    text: str = Field(default="", max_length=4 * MOST_TEXT)

    @property
    def typed(self) -> bool:
        """Tell whether the parts are there that make a sentence."""
        return self.kind in KINDS and bool(self.subject and self.object)


@dataclass(frozen=True, slots=True)
class CheckedClaim:
    """One sentence, the lines that it cites as `file:line`, how far it is checked, and why no further."""

    text: str
    lines: tuple[str, ...]
    problem: str = ""
    check: Check = Check.CITED

    @property
    def holds(self) -> bool:
        """Tell whether code has checked the statement itself."""
        return self.check.counts


def claim_of(raw: Any) -> Any:
    """Return an item of a claims list as a mapping: a bare sentence becomes free text."""
    if isinstance(raw, str):
        return {"text": raw}
    if isinstance(raw, dict):
        kept = {key: value for key, value in raw.items() if value is not None}
        for key in ("subject", "relation", "object", "kind", "text"):
            if isinstance(kept.get(key), int | float):
                kept[key] = str(kept[key])
        if isinstance(kept.get("lines"), str):
            kept["lines"] = kept["lines"].replace(",", " ").split()
        return kept
    return raw
