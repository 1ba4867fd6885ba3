"""From one worker's trace to its summary: who owned the time, how fast, how steadily.

Steps are the profiler's own (`ProfilerStep#N`); without them the whole trace is one step.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from rerail.domain.series import FloatArray, IntArray
from rerail.errors import EvidenceError
from rerail.tools.durations import seconds
from rerail.tools.profiles.critical_duration import critical_span
from rerail.tools.profiles.critical_path import Cover, first_come, innermost
from rerail.tools.profiles.function_table import (
    DEVICE_COMPUTE,
    FunctionKind,
    classify,
    collective_name,
    short_name,
)  # fmt: skip
from rerail.tools.profiles.summary import CollectiveRuns, FunctionPattern, Summary
from rerail.tools.profiles.trace import (
    ANNOTATION,
    COPY,
    CPU_OP,
    KERNEL,
    OTHER,
    PYTHON,
    RUNTIME,
    Group,
    Samples,
    Trace,
)  # fmt: skip

IDLE = "(nothing ran)"
OTHERS = "(others)"
# Their time belongs to the Python frame that calls them: it says where in the code it goes.
_BUILT_IN = ("<built-in ", "<slot wrapper", "<method")
_STEP = re.compile(r"^ProfilerStep#(\d+)$")
_US = 1e-6
_MOST_FUNCTIONS = 300
_LEAST_SHARE = 1e-4
_MOST_RUNS = 64
_MOST_STEPS = 64
_HINT = "profile with ProfilerActivity.CUDA and call profiler.step()"


@dataclass
class _Work:
    """The spans of one level of the critical path, each inside one step."""

    start: FloatArray
    end: FloatArray
    function: IntArray
    step: IntArray
    event: IntArray


@dataclass
class _Functions:
    """Numbers of functions, with their class."""

    number: dict[str, int] = field(default_factory=dict)
    kinds: list[FunctionKind] = field(default_factory=list)

    def get(self, name: str, kind: FunctionKind) -> int:
        at = self.number.setdefault(name, len(self.number))
        if at == len(self.kinds):
            self.kinds.append(kind)
        return at


def summarise(
    trace: Trace, *, rank: int | None = None, role: str = "", job: str = ""
) -> Summary:  # fmt: skip
    """Summarise one trace; `rank` and `role` replace what the trace says or does not say.

    Raises:
        EvidenceError: the rank is unknown, or there are neither steps nor kernels nor collectives.
    """
    known = trace.rank if rank is None else rank
    if known is None:
        raise EvidenceError(
            f"{trace.source}: the trace does not say which rank it is of", subject=trace.source,
            hint="name the file rank<N>.json",
        )  # fmt: skip
    functions, of_event, work = _functions(trace)
    first_step, begin, end = _steps(trace, work)
    device = bool(np.isin(work, _number(DEVICE_COMPUTE)).any() and (trace.kind == KERNEL).any())
    levels = _levels(trace, of_event, work, begin, end, device)
    owned = _own(trace, levels, len(begin))
    seconds = np.zeros((len(functions.kinds), len(begin)))
    for level, own in zip(levels, owned, strict=True):
        np.add.at(seconds, (level.function, level.step), own * _US)
    step_s = (end - begin) * _US
    own_s = _own_times(levels, seconds, functions, step_s, device, begin, end)
    ran = np.zeros(len(functions.kinds))
    calls = np.zeros(len(functions.kinds), dtype=np.int64)
    inside = (of_event >= 0) & (trace.start_us >= begin[0]) & (trace.start_us < end[-1])
    np.add.at(ran, of_event[inside], trace.dur_us[inside] * _US)
    np.add.at(calls, of_event[inside], 1)
    use = _uses(trace, functions, of_event, inside)
    patterns = _patterns(functions, seconds, ran, calls, use, step_s, device)
    runs = _collectives(trace, functions, of_event, work, begin, inside)
    return Summary(
        known, trace.world, trace.host, role, job, first_step,
        tuple(step_s[:_MOST_STEPS].tolist()), tuple(own_s[:_MOST_STEPS].tolist()), device, tuple(patterns),
        tuple(runs), trace.source, tuple(trace.notes),
    )  # fmt: skip


_CLASSES = (
    "collective", "attention", "matmul", "compute", "memory", "loader", "collector", "checkpoint",
    "waiting", "host",
)  # fmt: skip


def _number(names: tuple[str, ...]) -> list[int]:
    return [_CLASSES.index(name) for name in names]


def _functions(trace: Trace) -> tuple[_Functions, IntArray, IntArray]:
    """Return the functions, the function of each event (-1: none) and the class of each event."""
    functions = _Functions()
    keys = (trace.name * (OTHER + 1) + trace.kind) * (len(trace.groups) + 1) + trace.group + 1
    unique, index = np.unique(keys, return_inverse=True)
    of = np.full(len(unique), -1, dtype=np.int64)
    work = np.full(len(unique), -1, dtype=np.int64)
    collectives = {}
    for at, key in enumerate(unique.tolist()):
        key, group = divmod(key, len(trace.groups) + 1)
        number, kind = divmod(key, OTHER + 1)
        name = trace.names[number]
        if kind == OTHER or _STEP.match(name) or name.startswith(_BUILT_IN):
            continue
        found = classify(name, kind)
        if found is None:
            continue
        if found.work == "collective":
            called = collective_name(name, "", trace.groups[group - 1] if group else None)
            collectives[called] = True
        else:
            called = short_name(name)
        of[at] = functions.get(called, found)
        work[at] = _CLASSES.index(found.work)
    return functions, of[index], work[index]


def _steps(trace: Trace, work: IntArray) -> tuple[int, FloatArray, FloatArray]:
    numbered = {}
    for number, name in enumerate(trace.names):
        step = _STEP.match(name)
        if step:
            numbered[number] = int(step.group(1))
    mine = np.flatnonzero((trace.kind == ANNOTATION) & np.isin(trace.name, list(numbered)))
    mine = mine[np.argsort(trace.start_us[mine], kind="stable")]
    if len(mine):
        begin = trace.start_us[mine]
        end = begin + trace.dur_us[mine]
        # A step lasts until the next begins: what the loop does in between belongs to it.
        end[:-1] = np.where(
            begin[1:] - end[:-1] < 0.5 * (end[:-1] - begin[:-1]), begin[1:], end[:-1]
        )
        keep = end > begin
        if keep.any():
            _in_order(trace, [numbered[int(n)] for n in trace.name[mine].tolist()], begin)
            _note_gap(trace, begin, end)
            return numbered[int(trace.name[mine[0]])], begin[keep], end[keep]
    device = (trace.kind == KERNEL) | (work == _CLASSES.index("collective"))
    whole = np.flatnonzero(device & (trace.dur_us > 0))
    if not len(whole):
        raise EvidenceError(
            f"{trace.source}: no profiler steps, kernels or collectives", subject=trace.source,
            hint=_HINT,
        )  # fmt: skip
    begin = trace.start_us[whole].min()
    end = (trace.start_us[whole] + trace.dur_us[whole]).max()
    return 0, np.array([begin]), np.array([end])


def _in_order(trace: Trace, numbers: list[int], begin: FloatArray) -> None:
    """Refuse a trace whose clock went back: steps that come later would be held for earlier ones."""
    for before, after in pairwise(numbers):
        if after < before:
            raise EvidenceError(
                f"{trace.source}: step {before} begins before step {after}: its clock jumped",
                subject=trace.source, hint="profile this rank again",
            )  # fmt: skip
    if len(begin) > 1 and begin[-1] == begin[0]:
        raise EvidenceError(
            f"{trace.source}: all steps begin at the same time: its clock stood still",
            subject=trace.source, hint="profile this rank again",
        )  # fmt: skip


def _note_gap(trace: Trace, begin: FloatArray, end: FloatArray) -> None:
    """Say where the clock went on by more than a step between two steps: that time is in none of them."""
    gap = float((begin[1:] - end[:-1]).max(initial=0.0))
    if gap > float(np.median(end - begin)):
        trace.notes.append(
            f"{trace.source}: {seconds(gap * 1e-6)} between two of its steps are in neither: its clock jumped, or "
            "the profiler paused"
        )


def _levels(
    trace: Trace, of: IntArray, work: IntArray, begin: FloatArray, end: FloatArray, device: bool
) -> list[_Work]:
    """Return the spans by priority; on a CPU job the operators are the compute."""
    collective = work == _CLASSES.index("collective")
    waiting = work == _CLASSES.index("waiting")
    host = (of >= 0) & ~collective & np.isin(trace.kind, (CPU_OP, RUNTIME, ANNOTATION, PYTHON))
    if device:
        compute = np.isin(work, _number(DEVICE_COMPUTE)) & (trace.kind == KERNEL)
        memory = trace.kind == COPY
        chosen = [compute, memory, collective & (trace.kind == KERNEL), host]
    else:
        # Inside a data loader, a collector or a checkpoint, operators are part of these.
        plain = np.isin(work, _number(("host", "matmul", "attention", "compute")))
        compute = host & (trace.kind == CPU_OP) & plain
        chosen = [
            compute,
            trace.kind == COPY,
            collective,
            host & ~compute & ~waiting,
            host & waiting,
        ]
    return [_split(trace, of, np.flatnonzero(mask & (of >= 0)), begin, end) for mask in chosen]


def _split(trace: Trace, of: IntArray, who: IntArray, begin: FloatArray, end: FloatArray) -> _Work:
    """Cut events at the borders of steps; what lies outside of all steps is dropped."""
    who = who[np.argsort(trace.start_us[who], kind="stable")]
    start, stop = trace.start_us[who], trace.start_us[who] + trace.dur_us[who]
    first = np.searchsorted(end, start, side="right")
    last = np.searchsorted(begin, stop, side="left")
    times = np.maximum(last - first, 0)
    event = np.repeat(who, times)
    offset = np.arange(len(event)) - np.repeat(np.cumsum(times) - times, times)
    step = np.repeat(first, times) + offset
    left = np.maximum(np.repeat(start, times), begin[step])
    right = np.minimum(np.repeat(stop, times), end[step])
    keep = right > left
    order = np.argsort(left[keep], kind="stable")
    return _Work(
        left[keep][order], right[keep][order], of[event[keep]][order], step[keep][order],
        event[keep][order],
    )  # fmt: skip


def _own(trace: Trace, levels: list[_Work], steps: int) -> list[FloatArray]:
    """Return the microseconds that each span owns, level by level."""
    cover = Cover(np.zeros(0), np.zeros(0))
    out = []
    for level in levels:
        nested = np.isin(trace.kind[level.event], (CPU_OP, RUNTIME, ANNOTATION, PYTHON))
        if len(level.event) and nested.all():
            out.append(_nested(trace, level, cover))
        else:
            start, end = first_come(level.start, level.end)
            out.append((end - start).clip(0) - cover.inside(start, np.maximum(start, end)))
        cover = cover.joined(level.start, level.end)
    return out


def _nested(trace: Trace, level: _Work, cover: Cover) -> FloatArray:
    """Return what each call owns by itself: helper threads first, the thread of the steps last."""
    own = np.zeros(len(level.start))
    lanes = trace.lane[level.event]
    stepping = [n for n, name in enumerate(trace.names) if _STEP.match(name)]
    mains = set(trace.lane[np.isin(trace.name, stepping)].tolist())
    for main in (False, True):
        mine = np.flatnonzero(np.isin(lanes, list(mains)) == main)
        start, end = level.start[mine], level.end[mine]
        exposed = (end - start) - cover.inside(start, end)
        seen = np.flatnonzero(exposed > 0)
        one_lane: IntArray = lanes[mine][seen]
        left = innermost(start[seen], end[seen], one_lane, exposed[seen])
        if not main:
            # Threads of one worker may overlap; together they own no more than the time there was.
            left *= _shrink(start[seen], end[seen], cover, left)
        own[mine[seen]] = left
        cover = cover.joined(start, end)
    return own


def _shrink(start: FloatArray, end: FloatArray, cover: Cover, own: FloatArray) -> float:
    union = Cover(start, end)
    there = float((union.stop - union.begin).sum() - cover.inside(union.begin, union.stop).sum())
    total = float(own.sum())
    return min(1.0, there / total) if total > 0 else 1.0


def _own_times(
    levels: list[_Work], seconds: FloatArray, functions: _Functions, step_s: FloatArray,
    device: bool, begin: FloatArray, end: FloatArray,
) -> FloatArray:  # fmt: skip
    """Return a worker's own compute in each step: kernels, or on a CPU all but collectives."""
    if device:
        mine = np.array([kind.work in DEVICE_COMPUTE for kind in functions.kinds], dtype=bool)
        own: FloatArray = seconds[mine].sum(axis=0)
        return own
    moved = Cover(levels[2].start, levels[2].end)
    return step_s - moved.inside(begin, end) * _US


@dataclass(frozen=True)
class _Use:
    mu: float
    sigma: float
    source: str
    resource: str


def _uses(trace: Trace, functions: _Functions, of: IntArray, inside: FloatArray) -> dict[int, _Use]:
    """Return how far each function used its resource: counters, or else bytes by duration."""
    out: dict[int, _Use] = {}
    events = np.flatnonzero(inside)
    events = events[np.argsort(of[events], kind="stable")]
    borders = np.flatnonzero(np.diff(of[events])) + 1
    for part in np.split(events, borders):
        if not len(part):
            continue
        function = int(of[part[0]])
        kind = functions.kinds[function]
        seen = _counted(trace, part, kind) if trace.samples is not None else None
        if seen is None and kind.work in ("collective", "memory"):
            seen = _bandwidth(trace, part, kind)
        if seen is not None:
            out[function] = seen
    return out


def _bandwidth(trace: Trace, part: IntArray, kind: FunctionKind) -> _Use | None:
    sizes, took = trace.bytes[part], trace.dur_us[part] * _US
    good = np.isfinite(sizes) & (sizes > 0) & (took > 0)
    if not good.any():
        return None
    rate = sizes[good] / took[good]
    if kind.work == "memory":
        return _Use(
            float(sizes[good].sum() / took[good].sum()),
            float(rate.std()),
            "bandwidth",
            kind.resource,
        )
    # The calls that waited least show the link; the others show who was late.
    return _Use(float(np.quantile(rate, 0.9)), float(rate.std()), "bandwidth", kind.resource)


def _counted(trace: Trace, part: IntArray, kind: FunctionKind) -> _Use | None:
    samples = trace.samples
    assert samples is not None
    if len(samples.at_us) > 1:
        # A sample is a mean since the one before: of a call shorter than that it says nothing.
        part = part[trace.dur_us[part] >= float(np.median(np.diff(samples.at_us)))]
    first = np.searchsorted(samples.at_us, trace.start_us[part])
    last = np.searchsorted(samples.at_us, trace.start_us[part] + trace.dur_us[part])
    if kind.work != "collective":
        at = _ranges(first, last)
        values = samples.use.get(kind.resource)
        if values is None or not len(at) or not np.isfinite(values[at]).any():
            return None
        good = values[at][np.isfinite(values[at])]
        return _Use(float(good.mean()), float(good.std()), "counter", kind.resource)
    resource = _busiest(samples, _ranges(first, last))
    if resource is None:
        return None
    values = samples.use[resource]
    kept = []
    for begin, end in zip(first.tolist(), last.tolist(), strict=True):
        left, right, _ = critical_span(values[begin:end])
        if right > left:
            kept.append(np.nan_to_num(values[begin + left : begin + right]))
    if not kept:
        return None
    joined = np.concatenate(kept)
    return _Use(float(joined.mean()), float(joined.std()), "counter", resource)


def _ranges(first: IntArray, last: IntArray) -> IntArray:
    """Return the indices of all ranges [first, last) in one array."""
    count = np.maximum(last - first, 0)
    start = np.repeat(first, count)
    offset = np.arange(len(start)) - np.repeat(np.cumsum(count) - count, count)
    out: IntArray = start + offset
    return out


def _busiest(samples: Samples, at: IntArray) -> str | None:
    """Return the network resource that moved most in these samples, or None."""
    totals = {
        name: float(np.nansum(samples.use[name][at]))
        for name in ("nic", "nvlink", "pcie")
        if name in samples.use
    }
    best = max(totals, key=lambda name: totals[name], default=None)
    return best if best is not None and totals[best] > 0 else None


def _patterns(
    functions: _Functions, seconds: FloatArray, ran: FloatArray, calls: IntArray,
    use: dict[int, _Use], step_s: FloatArray, device: bool,
) -> list[FunctionPattern]:  # fmt: skip
    window = float(step_s.sum())
    beta = seconds.sum(axis=1) / window
    weight = np.maximum(beta, ran / window * 0.1)
    order = np.argsort(-weight, kind="stable")
    keep = [int(i) for i in order[:_MOST_FUNCTIONS] if weight[i] >= _LEAST_SHARE and calls[i]]
    names = list(functions.number)
    out = []
    nothing = _Use(float("nan"), float("nan"), "none", "")
    for i in sorted(keep, key=lambda i: names[i]):
        kind, seen = functions.kinds[i], use.get(i, nothing)
        out.append(
            FunctionPattern(
                names[i], kind.work, seen.resource or kind.resource, float(min(beta[i], 1.0)), seen.mu,
                seen.sigma, seen.source, int(calls[i]), float(ran[i]),
                tuple(seconds[i, :_MOST_STEPS].tolist()),
            )
        )  # fmt: skip
    rest = sorted(set(range(len(names))) - set(keep))
    idle = np.maximum(step_s - seconds.sum(axis=0), 0.0)
    for called, work, by_step in (
        (OTHERS, "others", seconds[rest].sum(axis=0)), (IDLE, "idle", idle),
    ):  # fmt: skip
        out.append(
            FunctionPattern(
                called, work, "", float(min(by_step.sum() / window, 1.0)), float("nan"),
                float("nan"), "none", 0, float(by_step.sum()), tuple(by_step[:_MOST_STEPS].tolist()),
            )
        )  # fmt: skip
    return out


def _collectives(
    trace: Trace, functions: _Functions, of: IntArray, work: IntArray, begin: FloatArray,
    inside: FloatArray,
) -> list[CollectiveRuns]:  # fmt: skip
    names = list(functions.number)
    mine = np.flatnonzero((work == _CLASSES.index("collective")) & inside)
    mine = mine[np.lexsort((trace.start_us[mine], trace.group[mine], of[mine]))]
    if not len(mine):
        return []
    borders = np.flatnonzero(np.diff(of[mine]) | np.diff(trace.group[mine])) + 1
    out = []
    for part in np.split(mine, borders):
        number = int(trace.group[part[0]])
        group = trace.groups[number] if number >= 0 else Group("", "other", 0, "")
        sizes = trace.bytes[part]
        known = sizes[np.isfinite(sizes)]
        step = np.searchsorted(begin, trace.start_us[part], side="right") - 1
        out.append(
            CollectiveRuns(
                names[int(of[part[0]])], group.ranks or group.name, group.kind,
                group.size or trace.world, float(known.sum() / len(known)) if len(known) else float("nan"),
                len(part), tuple((trace.dur_us[part[:_MOST_RUNS]] * _US).tolist()),
                tuple(int(n) for n in step[:_MOST_RUNS]),
            )
        )  # fmt: skip
    return out
