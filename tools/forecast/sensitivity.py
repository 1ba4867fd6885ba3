"""What moves the step time: by class of kernel, and by place on the critical path."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from rerail.tools.forecast.engine import ends_of_all
from rerail.tools.forecast.spec import Pool, Spec
from rerail.tools.forecast.step import StepModel

MOST_CLASSES = 40  # each is forecast three times
_GROUPS = 512  # the same groups before and after a change

CHANGES: dict[str, dict[str, float]] = {
    "no variation": {"spread": 1e-6},  # not 0: other ops keep their random numbers
    "twice the variation": {"spread": 2.0},
    "10 % longer": {"scale": 1.1},
}


@dataclass(frozen=True)
class Effect:
    """How a change of one class of kernels changes the step time, as ratios minus one."""

    kernel: str
    change: str
    p50_change: float
    p95_change: float


@dataclass(frozen=True)
class Critical:
    """Share of the critical path's time that lies here, over all drawn steps.

    A pipeline's ops have a `stage` and a `position` in its schedule, those of an explicit graph a `rank`,
    but for ops of several ranks; what does not apply is None.
    """

    stage: int | None
    rank: int | None
    op: str
    position: str | None
    share: float

    @property
    def where(self) -> str:
        """Return the stage or rank in words; empty for an op of several ranks."""
        if self.rank is not None:
            return f"rank {self.rank}"
        return "" if self.stage is None else f"stage {self.stage}"


def kernel_class(name: str, pool: Pool) -> str:
    """Return the class of a pool: as the spec says, else its own name."""
    return pool.kernel or name


def kernel_classes(spec: Spec) -> dict[str, list[str]]:
    """Return the names of the pools of each class of kernels."""
    classes: dict[str, list[str]] = defaultdict(list)
    for name, pool in spec.pools.items():
        classes[kernel_class(name, pool)].append(name)
    return classes


def effects_by_kernel(spec: Spec, samples: int = 4000, seed: int = 0) -> list[Effect]:
    """Change one class of kernels after the other and compare, with the same random numbers."""
    base = StepModel(spec, _GROUPS).forecast(samples, seed, errors=False)
    out = []
    for kernel, names in kernel_classes(spec).items():
        if all(spec.duration(name).mean == 0.0 for name in names):
            continue
        for change, fields in CHANGES.items():
            if "spread" in fields and all(spec.duration(name).sd == 0.0 for name in names):
                continue
            pools = dict(spec.pools)
            for name in names:
                before = pools[name]
                now = {key: getattr(before, key) * value for key, value in fields.items()}
                pools[name] = before.model_copy(update=now)
            changed = StepModel(spec.model_copy(update={"pools": pools}), _GROUPS)
            other = changed.forecast(samples, seed, errors=False)
            out.append(
                Effect(
                    kernel,
                    change,
                    other.percentile(50) / base.percentile(50) - 1.0,
                    other.percentile(95) / base.percentile(95) - 1.0,
                )
            )
    return sorted(out, key=lambda one: -abs(one.p95_change))


def critical_path(spec: Spec, samples: int = 200, seed: int = 0) -> list[Critical]:
    """Return where the critical path of one replica runs, the largest share first.

    From the last op back: the predecessor that ended last is critical.
    """
    model = StepModel(spec)
    places = max(model.classes().items(), key=lambda item: item[1])[0]
    draws = model.draws(places, 1.0, samples, seed)
    ends = ends_of_all(model.program, draws, samples, seed)
    nodes = model.program.nodes
    critical = np.zeros(ends.shape, dtype=bool)
    sinks = np.array(model.program.sinks)
    critical[sinks[ends[sinks].argmax(axis=0)], np.arange(ends.shape[1])] = True
    spent: dict[tuple[int, str, str], float] = defaultdict(float)
    for v in range(len(nodes) - 1, -1, -1):
        mine = np.flatnonzero(critical[v])
        if not len(mine):
            continue
        before = np.array(nodes[v].before, dtype=int)
        began = 0.0
        if len(before):
            latest = ends[np.ix_(before, mine)]
            critical[before[latest.argmax(axis=0)], mine] = True
            began = latest.max(axis=0)
        node = nodes[v]
        spent[node.place, node.duration, node.position] += float((ends[v, mine] - began).sum())
    whole = sum(spent.values()) or 1.0
    rows = []
    for (place, op, position), value in spent.items():
        known = None if place < 0 else place
        if spec.graph is None:
            rows.append(Critical(known, None, op, position, value / whole))
        else:
            rows.append(Critical(None, known, op, None, value / whole))
    return sorted(rows, key=lambda one: -one.share)
