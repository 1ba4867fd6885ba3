"""A verdict of `rerail localize` as one HTML page: no scripts, nothing from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerail.errors import UsageError
from rerail.tools.durations import seconds
from rerail.tools.localize.findings import Finding
from rerail.tools.localize.localize_paths import Judged
from rerail.tools.localize_page.functions import FLOOR, function_times
from rerail.tools.localize_page.grid import LEVELS
from rerail.tools.localize_page.maps import (
    FunctionMap,
    StepMap,
    function_map,
    named_workers,
    step_map,
)
from rerail.tools.localize_page.reference import reference_sentences, window_words
from rerail.tools.localize_page.spread import Spread, spreads
from rerail.tools.profiles.matrix import ProfileMatrix

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent
_MOST_FINDINGS, _MOST_CHANGES, _MOST_RANKS, _MOST_NOTES = 40, 30, 24, 40
_MOST_INPUTS, _ROWS_OF_ALL_MAPS, _FEWEST_ROWS = 12, 120, 8


@dataclass(frozen=True)
class Section:
    """What the page shows of one input."""

    judged: Judged
    findings: list[Finding]
    more: int
    reference: list[str]
    functions: FunctionMap | None
    left_out: int
    spreads: list[Spread]
    steps: StepMap | None

    @property
    def step_s(self) -> float | None:
        """Return the typical step time, where it is known."""
        if self.judged.matrix is not None:
            return self.judged.matrix.step_time_s
        measured = self.judged.localization.details.get("step_time_s", {})
        return measured.get("measured") if isinstance(measured, dict) else None


@dataclass(frozen=True)
class Change:
    """What moved between two profiles of one job; `rows` are those of `change_table`."""

    name: str
    window: str
    before_s: float
    after_s: float
    rows: list[dict[str, Any]]
    more: int
    longest_s: float


def change_of(name: str, before: ProfileMatrix, after: ProfileMatrix) -> Change:
    """Return what moved from one window to another, the largest change first.

    Raises:
        UsageError: pandas is not installed.
    """
    from rerail.tools.profiles.tables import change_table

    rows = json.loads(change_table(before, after).to_json(orient="records"))
    shown = rows[:_MOST_CHANGES]
    longest = max((max(r["before_s"] or 0, r["after_s"] or 0) for r in shown), default=1.0)
    return Change(
        name, window_words(before), before.step_time_s, after.step_time_s, shown,
        len(rows) - len(shown), longest,
    )  # fmt: skip


def render(
    judged: Sequence[Judged], boxes: Path | None = None, change: Change | None = None
) -> str:
    """Return the page; every name that comes from a file is escaped.

    `boxes` is the file of healthy windows that the verdict was held against.

    Raises:
        UsageError: jinja2 is not installed.
    """
    environment = _environment()
    shown = list(judged[:_MOST_INPUTS])
    most_rows = max(_FEWEST_ROWS, min(40, _ROWS_OF_ALL_MAPS // max(len(shown), 1)))
    page = environment.get_template("page.html").render(
        sections=[_section(one, boxes, most_rows) for one in shown], hidden=len(judged) - len(shown),
        change=change, levels=LEVELS, floor=FLOOR, most_ranks=_MOST_RANKS, most_notes=_MOST_NOTES,
    )  # fmt: skip
    return page.lstrip()


def _environment() -> Environment:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError:
        raise UsageError(
            "HTML pages need jinja2, which is not installed", hint="pip install 'rerail[profiles]'"
        ) from None
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["seconds"] = seconds
    return environment


def _section(one: Judged, boxes: Path | None, most_rows: int) -> Section:
    findings = one.localization.findings
    shown = findings[:_MOST_FINDINGS]
    reference = reference_sentences(one, boxes)
    steps = None
    if one.heatmap is not None and one.heatmap.ratio.shape[1] > 1:
        steps = step_map(one.heatmap, findings, most_rows)
    if one.matrix is None:
        return Section(one, shown, len(findings) - len(shown), reference, None, 0, [], steps)
    rows, left_out = function_times(one.matrix, findings, one.expected)
    guilty = named_workers(one.matrix, findings)
    named = {finding.function for finding in findings}
    return Section(
        one, shown, len(findings) - len(shown), reference,
        function_map(one.matrix, rows, findings), left_out,
        spreads(one.matrix, rows, guilty, named), steps,
    )  # fmt: skip
