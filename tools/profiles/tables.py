"""Profiles as pandas tables, for a notebook.

from rerail.tools.profiles.tables import function_table, step_table, change_table
function_table("profiles/").query("beta > 0.01").pivot_table("beta", "function", "rank")
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rerail.errors import UsageError
from rerail.tools.profiles.channels import BETA, MU, SIGMA
from rerail.tools.profiles.collect import profile_files, read_job
from rerail.tools.profiles.matrix import ProfileMatrix

if TYPE_CHECKING:
    import pandas as pd

_LEAST_CHANGE = 0.05
_LEAST_SHARE = 0.003


def function_table(source: str | Path | ProfileMatrix) -> pd.DataFrame:
    """Return one row per rank and function that ran: role, class, beta, mu, sigma, seconds a step.

    Raises:
        UsageError: pandas is not installed.
        EvidenceError: `source` holds no profiles of one job.
    """
    matrix = _matrix(source)
    f, w = np.nonzero(matrix.pattern[:, BETA] > 0)
    columns = {
        "rank": matrix.ranks[w], "host": [matrix.host[i] for i in w],
        "role": [matrix.role_names[i] for i in matrix.role[w]],
        "function": [matrix.functions[i] for i in f], "class": [matrix.work[i] for i in f],
        "beta": matrix.pattern[f, BETA, w], "mu": matrix.pattern[f, MU, w],
        "sigma": matrix.pattern[f, SIGMA, w],
        "step_s": matrix.pattern[f, BETA, w] * matrix.step_s.mean(axis=0)[w],
    }  # fmt: skip
    frame = _pandas().DataFrame(columns)
    ordered: pd.DataFrame = frame.sort_values(
        ["rank", "beta"], ascending=[True, False], ignore_index=True
    )
    return ordered


def step_table(source: str | Path | ProfileMatrix) -> pd.DataFrame:
    """Return one row per rank and step: the step time and the rank's own compute, in seconds."""
    matrix = _matrix(source)
    steps, workers = matrix.step_s.shape
    frame: pd.DataFrame = _pandas().DataFrame(
        {
            "rank": np.tile(matrix.ranks, steps), "step": np.repeat(np.arange(steps), workers),
            "step_s": matrix.step_s.ravel(), "own_s": matrix.own_s.ravel(),
        }
    )  # fmt: skip
    return frame


def change_table(
    before: str | Path | ProfileMatrix, after: str | Path | ProfileMatrix
) -> pd.DataFrame:
    """Return what changed between two profiles of one job, the largest change first.

    A row is a function in a role whose typical seconds per step moved by 5 % and by 0.3 % of the step
    or more; NaN seconds mean that it ran in one of the two only.
    """
    then, now = _matrix(before), _matrix(after)
    old, new = _typical(then), _typical(now)
    least = _LEAST_SHARE * min(then.step_time_s, now.step_time_s)
    rows = []
    for role, function, work in sorted({*old, *new}):
        a, b = old.get((role, function, work)), new.get((role, function, work))
        change = (b or 0.0) - (a or 0.0)
        if abs(change) >= max(least, _LEAST_CHANGE * (a or 0.0)):
            ratio = b / a if a and b else float("nan")
            rows.append((role, function, work, a, b, change, ratio))
    names = ["role", "function", "class", "before_s", "after_s", "change_s", "ratio"]
    frame = _pandas().DataFrame(rows, columns=names)
    ordered: pd.DataFrame = frame.sort_values(
        "change_s", key=abs, ascending=False, ignore_index=True
    )
    return ordered


def _typical(matrix: ProfileMatrix) -> dict[tuple[str, str, str], float]:
    """Return the median seconds per step of each function by (role, function, class)."""
    seconds = matrix.pattern[:, BETA] * matrix.step_s.mean(axis=0)
    out = {}
    for role, name in enumerate(matrix.role_names):
        middle = np.median(seconds[:, matrix.role == role], axis=1)
        for f in np.flatnonzero(middle > 0).tolist():
            out[name, matrix.functions[f], matrix.work[f]] = float(middle[f])
    return out


def _matrix(source: str | Path | ProfileMatrix) -> ProfileMatrix:
    if isinstance(source, ProfileMatrix):
        return source
    return read_job(profile_files(Path(source)))


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise UsageError("pandas is not installed", hint="pip install 'rerail[profiles]'") from None
    return pandas
