"""How much of its time a job trains: ETTR of a run with all its attempts, goodput of a site.

ETTR (effective training time ratio) is productive time over the time from the first start to the last
end, waits between attempts among it (Kokolis et al., HPCA 2025, section II). Goodput is productive over allocated
GPU-hours. Not productive is what stood still after a fault and what has to be trained again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rerail.tools.fleet.runs import Run


@dataclass(frozen=True, slots=True)
class Loss:
    """What one failed attempt lost, in seconds; None is not known and counts as nothing lost."""

    idle_s: float | None
    again_s: float | None


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Ratios weighted by GPU-hours; upper bounds where `known` is less than `failures`.

    `known` of the `failures` had both their idle time and their work to do again on record.
    """

    ettr: float | None
    goodput: float | None
    jobs: int
    failures: int
    known: int
    allocated_gpu_hours: float
    lost_gpu_hours: float


def efficiency(runs: Sequence[Run], losses: Mapping[tuple[str, int], Loss]) -> Efficiency:
    """Return ETTR and goodput of attempts with GPUs, with what their failures lost."""
    jobs: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.gpus > 0:
            jobs[run.job].append(run)
    productive = available = allocated = 0.0
    seen = known = 0
    for attempts in jobs.values():
        gpus = max(one.gpus for one in attempts)
        good = 0.0
        for one in attempts:
            allocated += one.gpu_hours
            loss = losses.get((one.job, one.attempt))
            seen += loss is not None
            known += loss is not None and loss.idle_s is not None and loss.again_s is not None
            lost_s = 0.0 if loss is None else (loss.idle_s or 0.0) + (loss.again_s or 0.0)
            good += max(0.0, one.end - one.start - lost_s) * one.gpus / 3600.0
        productive += good
        available += (attempts[-1].end - attempts[0].start) * gpus / 3600.0
    return Efficiency(
        ettr=productive / available if available else None,
        goodput=productive / allocated if allocated else None,
        jobs=len(jobs),
        failures=seen,
        known=known,
        allocated_gpu_hours=allocated,
        lost_gpu_hours=allocated - productive,
    )
