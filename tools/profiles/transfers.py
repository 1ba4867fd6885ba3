"""Slow links: collectives that take long even once all members are there.

The shortest duration among the members of a group is the transfer; what the others take beyond it
is waiting. Groups of one kind are compared with each other. Counters tell which member of a slow
ring sits at the slow link: its link is busy all the time at low speed, while those of its peers are
fast and idle in turn (EROICA, arXiv 2506.08528), so its use has the least spread.
"""

from __future__ import annotations

import numpy as np

from rerail.domain.series import FloatArray, IntArray
from rerail.tools.durations import seconds
from rerail.tools.localize.compare import compare
from rerail.tools.profiles.channels import SIGMA
from rerail.tools.profiles.matrix import CollectiveTable, ProfileMatrix
from rerail.tools.profiles.signs import Sign

_EFFECT = 0.15
_LEAST_SHARE = 0.003
_LARGE = 4 << 20
_STEADY = 0.6
_LONE_STEADY = 0.45
_LEAST_RUNS = 3
_WORDS = {
    "tp": "tensor-parallel group", "pp": "pipeline link", "dp": "data-parallel group",
    "ep": "expert-parallel group", "cp": "context-parallel group", "world": "world group",
    "other": "process group",
}  # fmt: skip


def transfer_signs(matrix: ProfileMatrix) -> tuple[list[Sign], tuple[str, ...]]:
    """Return slow groups, and the collectives of which too many groups are slow to say."""
    signs: list[Sign] = []
    split: list[str] = []
    for table in matrix.collectives:
        found, divided = _one(matrix, table)
        signs += found
        if divided:
            split.append(table.function)
    return signs, tuple(split)


def group_transfers(table: CollectiveTable) -> tuple[list[IntArray], FloatArray]:
    """Return the rows of each group's members, and the transfer of each execution, (groups, K)."""
    order = np.argsort(table.group, kind="stable")
    if not len(order):
        return [], np.zeros((0, 0))
    starts = np.concatenate([[0], np.flatnonzero(np.diff(table.group[order])) + 1])
    shortest = np.minimum.reduceat(table.runs_s[order].astype(np.float64), starts, axis=0)
    return np.split(order, starts[1:]), shortest


def _one(matrix: ProfileMatrix, table: CollectiveTable) -> tuple[list[Sign], bool]:
    rows, shortest = group_transfers(table)
    members = [table.worker[one] for one in rows]
    whole = np.array([len(m) >= 2 and len(m) >= table.size for m in members], dtype=bool)
    enough = np.isfinite(shortest).sum(axis=1) >= _LEAST_RUNS if len(members) else whole
    good = np.flatnonzero(whole & enough)
    if not len(good):
        return [], False
    typical = np.nanmedian(shortest[good], axis=1)
    if len(good) == 1:
        return _lone(matrix, table, members[int(good[0])], float(typical[0])), False
    value, role = _comparable(table, [rows[int(g)] for g in good], typical)
    error = _error(shortest[good])
    seen = compare(value, role, _EFFECT, error)
    out = []
    for g in seen.slow:
        reference = float(seen.reference[g] / value[g] * typical[g])
        lost = (float(typical[g]) - reference) * table.calls_per_step
        if lost >= _LEAST_SHARE * matrix.step_time_s:
            out.append(
                _sign(matrix, table, members[int(good[g])], float(typical[g]), reference, lost, float(seen.z[g]))
            )  # fmt: skip
    return out, bool(seen.split)


def _comparable(
    table: CollectiveTable, rows: list[IntArray], typical: FloatArray
) -> tuple[FloatArray, IntArray]:
    """Return values that may be compared and their roles: by byte where messages are large."""
    moved = np.array([float(np.median(table.bytes[one])) for one in rows])
    if np.isfinite(moved).all() and (moved >= _LARGE).all():
        return typical / moved, np.zeros(len(typical), dtype=np.int64)
    size = np.where(np.isfinite(moved), np.maximum(moved, 1), 1)
    return typical, np.round(np.log(size) / np.log(1.5)).astype(np.int64)


def _error(shortest: FloatArray) -> float | None:
    """Return the relative error of a group's typical transfer over its executions."""
    runs = np.isfinite(shortest).sum(axis=1)
    if shortest.shape[1] < _LEAST_RUNS:
        return None
    middle = np.nanmedian(shortest, axis=1)
    width = 1.4826 * np.nanmedian(np.abs(shortest - middle[:, None]), axis=1)
    return float(np.median(width / np.maximum(middle, 1e-12) / np.sqrt(runs)))


def _sign(
    matrix: ProfileMatrix, table: CollectiveTable, members: IntArray, now: float, reference: float,
    lost: float, z: float,
) -> Sign:  # fmt: skip
    steady = _steady_members(matrix, table.function, members, _STEADY)
    hosts = {matrix.host[int(w)] for w in members}
    facts = {"inside_node"} if len(hosts) == 1 and "" not in hosts else {"across_nodes"}
    who = members if steady is None else steady
    said = (
        f"{seconds(now)} a call once all are there, {seconds(reference)} in groups of the same kind "
        f"({_WORDS.get(table.kind, 'process group')} of ranks {_few(matrix.of_ranks(members))})"
    )
    if steady is not None:
        said += "; its link is steadily busy at low speed while the others idle in turn"
        facts.add("by_counters")
    elif "across_nodes" in facts:
        said += "; which of its links it is, durations cannot tell"
    return Sign(
        "transfer" if steady is None else "ring_member", table.function, "collective", who, "mu",
        now / max(reference, 1e-12), np.full((matrix.steps, len(who)), lost), said, z, members,
        frozenset(facts),
    )  # fmt: skip


def _lone(
    matrix: ProfileMatrix, table: CollectiveTable, members: IntArray, now: float
) -> list[Sign]:
    """Judge the only group of its kind: without counters there is nothing to compare it with."""
    steady = _steady_members(matrix, table.function, members, _LONE_STEADY)
    if steady is None or len(members) < 4:
        return []
    lost = now * table.calls_per_step
    if lost < 10 * _LEAST_SHARE * matrix.step_time_s:
        return []
    return [
        Sign(
            "ring_member", table.function, "collective", steady, "sigma", 1.0,
            np.zeros((matrix.steps, len(steady))),
            "its link is steadily busy at low speed while the links of the other members are fast and "
            "idle in turn; what that costs cannot be said without a second group",
            None, members, frozenset({"across_nodes", "by_counters"}),
        )
    ]  # fmt: skip


def _steady_members(
    matrix: ProfileMatrix, function: str, members: IntArray, share: float
) -> IntArray | None:
    """Return the one or two members whose counters hardly vary while those of all others do."""
    if function not in matrix.functions:
        return None
    at = matrix.functions.index(function)
    if not matrix.counted[at] or len(members) < 4:
        return None
    spread = matrix.pattern[at, SIGMA, members].astype(np.float64)
    if not np.isfinite(spread).all():
        return None
    usual = float(np.median(spread))
    low = spread <= share * usual
    if usual <= 0 or not 1 <= low.sum() <= 2 or (spread[~low] < 0.75 * usual).any():
        return None
    named: IntArray = members[low]
    return named


def _few(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"
