"""Build a spec from the Kineto traces of all ranks of a run: profiler steps and what they wait for.

NCCL runs all-to-all and point-to-point by the same kernel, SendRecv, which does not name its partner.
Where all ranks of a group run it at the same time it is a collective; else the kernels of two ranks
that end together are one transfer, by clocks that the ends of collectives set. With gloo each send and
receive has a span of its own, whose partner is recorded (`kineto_peers`): batches of any shape are told apart.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rerail.domain.series import FloatArray
from rerail.errors import EvidenceError
from rerail.tools.forecast.fit import LEAST_TO_FIT
from rerail.tools.forecast.from_trace import TRANSFER, Step, spec_from_spans
from rerail.tools.forecast.kineto_peers import SPANS, requests_of
from rerail.tools.forecast.spec import Spec

if TYPE_CHECKING:
    from rerail.tools.profiles.trace import Trace

_COLLECTIVE = re.compile(r"^(?:nccl|rccl|gloo|mpi|ucc)", re.IGNORECASE)
_POINT_TO_POINT = re.compile(r"send_?recv|[:_ ](?:send|recv)", re.IGNORECASE)
_UNPAIRED = "point-to-point "
_APART, _APART_S = 0.25, 1e-4  # how far ends lie apart: share of the shorter kernel, or seconds
_NEIGHBOURS = 8
_STEADY_S = 1e-3

Kernel = tuple[float, float, int, int]
"""End, begin, rank and number in the step; seconds on one clock."""


def spec_from_kineto(paths: Sequence[Path], name: str = "kineto traces") -> tuple[Spec, FloatArray]:
    """Build a spec from one trace per rank, and return it with the measured step times, in seconds.

    A measured step is the longest of its ranks.

    Raises:
        EvidenceError: a file is no trace, two are of the same rank, transfers have no partner, or
            fewer than eight steps can be used.
    """
    from rerail.tools.profiles.read_trace import read_trace

    steps: dict[int, list[Step]] = {}
    epoch: dict[int, float] = {}
    for path in paths:
        trace = read_trace(path)
        rank = len(steps) if trace.rank is None else trace.rank
        if rank in steps:
            raise EvidenceError(
                f"{path}: rank {rank} was already read", subject=str(path),
                hint="give one trace per rank, of one run",
            )  # fmt: skip
        steps[rank], epoch[rank] = _spans(trace, _partners(trace, path)), trace.epoch_us * 1e-6
    shift = _shifts(steps, epoch)
    whole = min(len(own) for own in steps.values())
    made = [_with_partners({r: steps[r][i] for r in steps}, shift) for i in range(whole)]
    usable = [one for one in made if one is not None]
    if len(usable) < LEAST_TO_FIT:
        few = f"{name}: profiled steps: {whole}"
        hint = "profile eight steps or more, on all ranks, with clocks in step: schedule(active=12)"
        if whole > len(usable):
            few += (
                f", {whole - len(usable)} of them with transfers without a partner: their kernels end "
                "with no other rank's; those of a batch (batch_isend_irecv, as interleaved schedules run) end "
                "with the last of its partners, which a kernel does not name"
            )
            hint = "with gloo: profile(record_shapes=True); else exchange with one rank at a time, or write a spec"
        raise EvidenceError(f"{few}; a distribution needs {LEAST_TO_FIT}", subject=name, hint=hint)
    measured = [max(end - begin for begin, end, _ in one.values()) for one in usable]
    spec = spec_from_spans({rank: [one[rank] for one in usable] for rank in steps}, name)
    return spec, np.array(measured)


def _shifts(steps: Mapping[int, Sequence[Step]], epoch: Mapping[int, float]) -> dict[int, float]:
    """Return what to add to each rank's clock, in seconds, for the clock of the first rank.

    A collective ends on all its ranks at once; ranks without one in common go by their own clocks.
    """
    first = min(steps)
    ends = {rank: _ends(own) for rank, own in steps.items()}
    out = {}
    for rank in steps:
        apart = np.array(
            [ends[first][at] - end for at, end in ends[rank].items() if at in ends[first]]
        )
        told = np.isfinite(epoch[rank] - epoch[first])
        out[rank] = epoch[rank] - epoch[first] if told else 0.0
        if len(apart) and np.median(np.abs(apart - np.median(apart))) < _STEADY_S:
            out[rank] = float(np.median(apart))
    return out


def _ends(steps: Sequence[Step]) -> dict[tuple[int, str, int], float]:
    """Return the end of each collective by step, group and number."""
    out: dict[tuple[int, str, int], float] = {}
    for i, (_, _, collectives) in enumerate(steps):
        seen: Counter[str] = Counter()
        for key, _, end in collectives:
            if not key.startswith((_UNPAIRED, TRANSFER)):
                out[i, key, seen[key]] = end
                seen[key] += 1
    return out


def _with_partners(step: Mapping[int, Step], shift: Mapping[int, float]) -> dict[int, Step] | None:
    """Return the step of all ranks with transfers named by both ranks; None where one has no partner."""
    kernels: dict[str, list[Kernel]] = {}
    if not _requests_match(step):
        return None
    for rank, (_, _, collectives) in step.items():
        for k, (key, begin, end) in enumerate(collectives):
            if key.startswith(_UNPAIRED):
                at = shift[rank]
                kernels.setdefault(key, []).append((end + at, begin + at, rank, k))
    named: dict[tuple[int, int], str] = {}
    for key, all_of in kernels.items():
        if _is_collective(all_of):
            continue
        pairs = _pairs(all_of)
        if 2 * len(pairs) < len(all_of):
            return None
        for one, other in pairs:
            low, high = sorted((one[2], other[2]))
            label = f"{TRANSFER}{low}-{high} of {key.removeprefix(_UNPAIRED)}"
            named[one[2], one[3]] = named[other[2], other[3]] = label
    return {
        rank: (begin, end, [(named.get((rank, k), key), b, e) for k, (key, b, e) in enumerate(own)])
        for rank, (begin, end, own) in step.items()
    }


def _requests_match(step: Mapping[int, Step]) -> bool:
    """Return whether every request with a known partner has one there."""
    counts = {
        rank: Counter(key for key, _, _ in own[2] if key.startswith(TRANSFER))
        for rank, own in step.items()
    }
    for rank, own in counts.items():
        for key, count in own.items():
            ends = {int(one) for one in key.removeprefix(TRANSFER).split("-")}
            if any(counts.get(other, own)[key] != count for other in ends - {rank}):
                return False
    return True


def _is_collective(kernels: Sequence[Kernel]) -> bool:
    """Return whether all ranks run these kernels together, one after the other."""
    of: dict[int, list[Kernel]] = {}
    for one in sorted(kernels, key=lambda kernel: kernel[3]):
        of.setdefault(one[2], []).append(one)
    if len({len(own) for own in of.values()}) > 1:
        return False
    return all(
        _together(min(round_of), max(round_of)) and max(k[1] for k in round_of) < min(round_of)[0]
        for round_of in zip(*of.values(), strict=True)
    )


def _together(one: Kernel, other: Kernel) -> bool:
    shorter = min(one[0] - one[1], other[0] - other[1])
    return abs(one[0] - other[0]) <= max(_APART * shorter, _APART_S)


def _pairs(kernels: Sequence[Kernel]) -> list[tuple[Kernel, Kernel]]:
    """Return kernels of two ranks that overlap and end together, the closest ends first."""
    ordered = sorted(kernels)
    close = []
    for i, one in enumerate(ordered):
        for j in range(i + 1, min(i + 1 + _NEIGHBOURS, len(ordered))):
            other = ordered[j]
            if one[2] != other[2] and other[1] < one[0] and _together(one, other):
                close.append((other[0] - one[0], i, j))
    used: set[int] = set()
    out = []
    for _, i, j in sorted(close):
        if i not in used and j not in used:
            used |= {i, j}
            out.append((ordered[i], ordered[j]))
    return out


def _partners(trace: Trace, path: Path) -> dict[float, str]:
    """Return the key of each send and receive whose partner was recorded, by its begin in microseconds."""
    if trace.rank is None or not any(name in SPANS for name in trace.names):
        return {}
    found = requests_of(path) or []
    return {
        begin: f"{TRANSFER}{trace.rank}-{who}" if sends else f"{TRANSFER}{who}-{trace.rank}"
        for begin, sends, who in found
    }


def _spans(trace: Trace, partners: Mapping[float, str]) -> list[Step]:
    """Return the profiler steps of a trace with their collectives, in seconds.

    `partners` are the keys of transfers by their begin in microseconds.

    Raises:
        EvidenceError: there are no profiler steps.
    """
    from rerail.tools.profiles.trace import ANNOTATION, KERNEL

    names = trace.names
    begin, end = trace.start_us * 1e-6, (trace.start_us + trace.dur_us) * 1e-6
    is_step = np.array([name.startswith("ProfilerStep") for name in names])[trace.name]
    # On a GPU the annotation lies on its streams as well; the first lane that has it counts.
    lanes = trace.lane[is_step]
    chosen = np.flatnonzero(is_step & (trace.lane == lanes[0])) if len(lanes) else lanes
    if not len(chosen):
        raise EvidenceError(
            f"{trace.source}: no profiler steps", subject=trace.source,
            hint="call profiler.step() after every training step",
        )  # fmt: skip
    ordered = sorted(chosen, key=lambda i: begin[i])
    out: list[Step] = [(float(begin[i]), float(end[i]), []) for i in ordered]
    meets = np.array([bool(_COLLECTIVE.match(name)) for name in names])[trace.name]
    kernels = meets & (trace.kind == KERNEL)
    found = np.flatnonzero(kernels if kernels.any() else meets & (trace.kind == ANNOTATION))
    waits = np.array([bool(_POINT_TO_POINT.search(name)) for name in names])[trace.name]
    starts = np.array([step[0] for step in out])
    for i in sorted(found, key=lambda i: begin[i]):
        at = int(np.searchsorted(starts, begin[i], side="right")) - 1
        if at < 0 or begin[i] > out[at][1]:
            continue
        number = int(trace.group[i])
        group = trace.groups[number] if number >= 0 else None
        label = "world" if group is None else f"{group.ranks} {group.name}".strip() or "world"
        if waits[i]:
            label = partners.get(float(trace.start_us[i]), f"{_UNPAIRED}{label}")
        out[at][2].append((label, float(begin[i]), float(end[i])))
    return out
