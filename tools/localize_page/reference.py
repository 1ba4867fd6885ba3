"""Sentences on what a verdict rests on: which window was read, and what it was held against."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rerail.tools.durations import seconds
from rerail.tools.localize.localize_paths import Judged
from rerail.tools.localize_page.functions import LEAST_PEERS
from rerail.tools.profiles.expected import Expected
from rerail.tools.profiles.matrix import ProfileMatrix

_MOST_NAMES = 6


def reference_sentences(judged: Judged, boxes: Path | None = None) -> list[str]:
    """Return what was read and what it was compared with, one sentence each."""
    if judged.matrix is None:
        out = [] if judged.heatmap is None else [f"Shown is {judged.heatmap.title}."]
        return [f"Read from {judged.localization.name}.", *out]
    matrix = judged.matrix
    out = [f"Read from {judged.localization.name}: {window_words(matrix)}."]
    if judged.expected is not None:
        out.append(_learned(judged.expected, boxes))
    out.append(_roles(matrix, alone=judged.expected is None))
    small = [
        matrix.role_names[r] or "all"
        for r in range(len(matrix.role_names))
        if int((matrix.role == r).sum()) < LEAST_PEERS
    ]
    if small and judged.expected is None:
        out.append(
            f"Fewer than {LEAST_PEERS} ranks in {_list(small)}: too few to colour one against the others."
        )
    if not matrix.device:
        waits = (
            "" if matrix.cpu_wait_s is None else "; verdict and price leave waits for a core out"
        )
        out.append(
            "The profiles hold no GPU events: times are those of the processes, which whatever else ran "
            f"on the host stretches too{waits}."
        )
    return out


def window_words(matrix: ProfileMatrix) -> str:
    """Return how much one window holds, in words."""
    count = len(matrix.ranks)
    of = f" of {matrix.world}" if matrix.world > count else ""
    hosts = len(set(matrix.host) - {""})
    on = f" on {hosts} host{'s' if hosts > 1 else ''}" if hosts else ""
    step = "step" if matrix.steps == 1 else "steps"
    return (
        f"{count}{of} rank{'s' if count > 1 else ''}{on}, {matrix.steps} {step} of "
        f"{seconds(matrix.step_time_s)}, {len(matrix.functions)} functions"
    )


def _learned(expected: Expected, boxes: Path | None) -> str:
    file = f" ({boxes})" if boxes is not None else ""
    return (
        f"Expected is the range of {len(expected.boxes)} functions in healthy windows{file}, learned from "
        f"{_list(list(expected.sources))}: {expected.workers} ranks, {expected.steps} steps. A function "
        "without a range there is held against the median of its role."
    )


def _roles(matrix: ProfileMatrix, *, alone: bool) -> str:
    sizes = np.bincount(matrix.role, minlength=len(matrix.role_names)).tolist()
    if len(matrix.role_names) == 1:
        given = "as the profiles say" if matrix.role_known else "they run the same kernels"
        against = "; each is held against the median of all" if alone else ""
        return f"All ranks have one role ({given}){against}."
    names = [f"{name or 'all'} ({n})" for name, n in zip(matrix.role_names, sizes, strict=True)]
    how = (
        "The profiles say what each rank does"
        if matrix.role_known
        else "Nobody said what each rank does, so ranks that run the same kernels count as one role"
    )
    against = " Each rank is held against the median of its role." if alone else ""
    return f"{how}: {_list(names)}.{against}"


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
