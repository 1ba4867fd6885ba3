"""Profiles that cannot be of the same window of the same job as the others: left out, with the reason.

Nobody is slow because its clock jumped or because its trace came from elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from rerail.tools.durations import seconds
from rerail.tools.profiles.summary import Summary

_APART = 0.5
_FEW = 0.25
_LEAST = 4
_COMMON = 0.5
_FOREIGN = 0.1
_MOST = 5000
"""Of more, one of other work is in a role of its own; looking at all their functions takes seconds."""
_NOT_OWN = ("collective", "waiting", "idle", "others")


def comparable(summaries: Sequence[Summary]) -> tuple[list[Summary], list[str]]:
    """Return the summaries that can be compared, and a sentence on each that cannot."""
    kept, of_steps = _same_steps(list(summaries))
    kept, of_time = _same_time(kept)
    kept, of_work = _same_work(kept)
    return kept, of_steps + of_time + of_work


def _same_steps(rows: list[Summary]) -> tuple[list[Summary], list[str]]:
    """Leave out the few with hardly any steps, to whose number all others would be cut."""
    count = np.array([len(one.step_s) for one in rows])
    usual = float(np.median(count)) if len(rows) >= _LEAST else 0.0
    short = count < _APART * usual
    if not short.any() or short.mean() > _FEW:
        return rows, []
    notes = [
        f"left out: rank {one.rank}: its profile holds {len(one.step_s)} step"
        f"{'s' if len(one.step_s) > 1 else ''}, those of the others {usual:.0f}"
        for one, out in zip(rows, short, strict=True)
        if out
    ]
    return [one for one, out in zip(rows, short, strict=True) if not out], notes


def _same_time(rows: list[Summary]) -> tuple[list[Summary], list[str]]:
    """Leave out whose window is half longer or shorter: ranks that meet in collectives take as long together."""
    if len(rows) < _LEAST or not all(one.collectives for one in rows):
        return rows, []
    steps = min(len(one.step_s) for one in rows)
    window = np.array([sum(one.step_s[:steps]) for one in rows])
    usual = float(np.median(window))
    apart = np.abs(window - usual) > _APART * usual
    if not apart.any() or apart.mean() > _FEW:
        return rows, []
    counted = f"{steps} step{'s' if steps > 1 else ''}"
    notes = [
        f"left out: rank {one.rank}: {counted} took {seconds(float(took))} by its clock and "
        f"{seconds(usual)} by that of the others, with which it meets in collectives: its clock jumped, "
        "or the profile is of another job"
        for one, took, out in zip(rows, window, apart, strict=True)
        if out
    ]
    return [one for one, out in zip(rows, apart, strict=True) if not out], notes


def _same_work(rows: list[Summary]) -> tuple[list[Summary], list[str]]:
    """Leave out a single profile that shares no function with the others."""
    known = any(one.role for one in rows) or len({one.device for one in rows}) > 1
    if known or not _LEAST <= len(rows) <= _MOST:
        return rows, []
    own = [{p.function for p in one.functions if p.work not in _NOT_OWN} for one in rows]
    seen = Counter(name for names in own for name in names)
    common = {name for name, count in seen.items() if count > _COMMON * len(rows)}
    foreign = [
        one
        for one, names in zip(rows, own, strict=True)
        if len(names & common) < _FOREIGN * len(common)
    ]
    if len(foreign) != 1:
        return rows, []
    note = (
        f"left out: rank {foreign[0].rank}: it runs none of the functions that the others run: its work is "
        "another, or the profile is of another job"
    )
    return [one for one in rows if one is not foreign[0]], [note]
