"""Collective records of many ranks, put together into one `JobTimes`."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from rerail.domain.process_group import group_kind
from rerail.domain.series import FloatArray, IntArray
from rerail.tools.localize.observations import GroupTimes, JobTimes, group_instances

_WINDOWS = 5


@dataclass
class Records:
    """Rows of (rank, group, sequence number, step, duration); -1 where a step is unknown.

    `group_of` maps the group's key to (kind, description). `self_s`, `role` and `node` are by
    rank. Durations in seconds.
    """

    name: str
    rank: list[int] = field(default_factory=list)
    group: list[int] = field(default_factory=list)
    seq: list[int] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    duration_s: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)
    kinds: dict[int, str] = field(default_factory=dict)
    self_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    role: dict[int, str] = field(default_factory=dict)
    node: dict[int, str] = field(default_factory=dict)
    step_s: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    device_times: bool = True

    def key(self, name: str, kind: str = "") -> int:
        """Return the number of a group, learning its kind from its name."""
        number = self.keys.setdefault(name, len(self.keys))
        if number not in self.kinds:
            self.kinds[number] = kind or group_kind(name)
        return number

    def add(
        self, rank: int, group: int, seq: int, step: int, duration_s: float, size: int = -1
    ) -> None:
        """Add one collective of one rank."""
        self.rank.append(rank)
        self.group.append(group)
        self.seq.append(seq)
        self.step.append(step)
        self.duration_s.append(duration_s)
        self.bytes.append(size)


def assemble(records: Records) -> JobTimes:
    """Join the records of all ranks by (group, sequence number) into a window of the job."""
    everyone = sorted(set(records.rank) | set(records.self_s))
    ranks = np.array(everyone, dtype=np.int64)
    at = {rank: i for i, rank in enumerate(everyone)}
    rank = np.array([at[r] for r in records.rank], dtype=np.int64)
    group = np.array(records.group, dtype=np.int64)
    seq = np.array(records.seq, dtype=np.int64)
    step = np.array(records.step, dtype=np.int64)
    took = np.array(records.duration_s, dtype=np.float64)
    size = np.array(records.bytes, dtype=np.int64)
    steps, step = _steps(step, seq, group)
    parts: dict[tuple[str, int], list[_Part]] = defaultdict(list)
    for number in np.unique(group):
        mine = group == number
        part = _one_group(rank[mine], seq[mine], step[mine], took[mine], size[mine], steps)
        if part is not None:
            kind = records.kinds[int(number)]
            if kind == "other" and len(part.members) == len(ranks) > 2:
                kind = "world"
            parts[kind, len(part.members)].append(part)
    groups = [_stack(kind, ones) for (kind, _), ones in sorted(parts.items())]
    names = sorted({records.role.get(r, "") for r in everyone})
    role = np.array([names.index(records.role.get(r, "")) for r in everyone], dtype=np.int64)
    node = tuple(records.node.get(r, f"rank{r}") for r in everyone) if records.node else None
    own = _self_times(records, everyone)
    return JobTimes(
        records.name, ranks, role, own, node, groups,
        np.array(records.step_s) if records.step_s else None,
        len(own) if own is not None else steps, bool(records.role), records.device_times,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Part:
    members: IntArray
    transfer_s: FloatArray
    late_s: FloatArray
    first_share: FloatArray
    bytes: int
    instances: int


def _steps(step: IntArray, seq: IntArray, group: IntArray) -> tuple[int, IntArray]:
    """Number the steps from 0; without any, cut each group's sequence into a few windows."""
    if not len(step):
        return 1, step
    if (step >= 0).all():
        known, index = np.unique(step, return_inverse=True)
        return len(known), index.astype(np.int64)
    out = np.zeros(len(step), dtype=np.int64)
    for number in np.unique(group):
        mine = group == number
        order, index = np.unique(seq[mine], return_inverse=True)
        out[mine] = index * min(_WINDOWS, len(order)) // len(order)
    return min(_WINDOWS, int(out.max()) + 1), out


def _one_group(
    rank: IntArray, seq: IntArray, step: IntArray, took: FloatArray, size: IntArray, steps: int
) -> _Part | None:
    members, column = np.unique(rank, return_inverse=True)
    instances, row = np.unique(seq, return_inverse=True)
    if len(members) < 2:
        return None
    table = np.full((len(instances), len(members)), np.nan)
    table[row, column] = took
    of_step = np.zeros(len(instances), dtype=np.int64)
    of_step[row] = step
    transfer, late, first = group_instances(table, of_step, steps)
    moved = int(size[size > 0].sum() // max(len(members), 1)) if (size > 0).any() else 0
    whole = int(np.isfinite(table).all(axis=1).sum())
    return _Part(members.astype(np.int64), transfer, late, first, moved, whole)


def _stack(kind: str, parts: list[_Part]) -> GroupTimes:
    # Groups that move very different amounts of data are not of one kind, whatever their name.
    moved = np.array([part.bytes for part in parts], dtype=np.float64)
    role = np.round(np.log(np.maximum(moved, 1)) / np.log(1.5)).astype(np.int64)
    return GroupTimes(
        kind,
        np.stack([part.members for part in parts]),
        np.stack([part.transfer_s for part in parts], axis=1),
        np.stack([part.late_s for part in parts], axis=1),
        np.stack([part.first_share for part in parts]),
        role,
        instances=np.array([part.instances for part in parts], dtype=np.int64),
    )


def _self_times(records: Records, everyone: list[int]) -> FloatArray | None:
    if not records.self_s or any(rank not in records.self_s for rank in everyone):
        return None
    count = min(len(records.self_s[rank]) for rank in everyone)
    if not count:
        return None
    return np.stack([np.array(records.self_s[rank][:count]) for rank in everyone], axis=1)
