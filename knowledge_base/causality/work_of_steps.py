"""How much each step has to do, as step lines tell it: larger batches take longer, and nothing is slow."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from rerail.knowledge_base.phrases import phrase

if TYPE_CHECKING:
    from rerail.domain.series import StepSeries
    from rerail.log_parsers.step_series import LogSeries
    from rerail.log_parsers.view import LogView


def with_work(view: LogView, one: LogSeries, lines: Collection[int]) -> StepSeries | None:
    """Return the series with how much each of its steps has to do, or None where its lines do not say.

    Args:
        view: The file that the series was read from.
        one: The series; NaN stands for the work of a step whose line says none, or was not kept.
        lines: Those lines of the file that may tell it.
    """
    import numpy as np

    sizes = phrase("size-of-work")
    told = [
        list(sizes.finditer(view.text(row.line) or "")) if row.line in lines else []
        for row in one.rows
    ]
    if not any(told):
        return None
    each = [
        [float(m["work"]) if m["work"] else 1.0 / max(1.0, float(m["among"])) for m in row]
        for row in told
    ]
    work = [math.prod(parts) if parts else math.nan for parts in each]
    return replace(one.series, tokens=np.array(work, dtype=np.float64))
