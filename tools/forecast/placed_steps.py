"""The distribution of the step under placements of slow nodes, and what the best one saves.

All placements are drawn with the same random numbers, so that they differ by the placement and not by
luck; the error of what is saved is a bootstrap that resamples all of them alike.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from rerail.domain.series import FloatArray
from rerail.tools.durations import seconds
from rerail.tools.forecast.durations import Duration
from rerail.tools.forecast.placement import PlacementFound
from rerail.tools.forecast.step import Places, StepModel, mixture
from rerail.tools.forecast.tails import slowest

PLACEMENT_WORDS = {"best": "best found", "given": "as given", "worst": "worst seen"}
PLACEMENTS = tuple(PLACEMENT_WORDS)
_LEAST_SAMPLES = 1000
_MOST_DRAWN = 6  # times the samples, over all kinds of replicas
_BOOTSTRAPS = 24
_MOST_RESAMPLED = 10_000
_P95 = np.array([0.95])


@dataclass(frozen=True, eq=False)
class PlacedSteps:
    """Step times of the placements by name (best, given, worst), and what the best one saves.

    Savings are those over the placement as given, in seconds, with the standard errors of the drawing.
    """

    step: dict[str, Duration]
    saved_mean_s: float
    saved_mean_error_s: float
    saved_p95_s: float
    saved_p95_error_s: float
    samples: int

    def saved(self) -> str:
        """Return what the best placement saves over the given one, with standard errors, in words."""
        return (
            f"{seconds(self.saved_mean_s)} +- {seconds(self.saved_mean_error_s)} of the mean and "
            f"{seconds(self.saved_p95_s)} +- {seconds(self.saved_p95_error_s)} of the p95"
        )


def placed_steps(
    model: StepModel, found: PlacementFound, samples: int = 20_000, seed: int = 0
) -> PlacedSteps:
    """Draw the step under the best placement, the given one and the worst.

    `samples` pipelines of each kind of replica are drawn; fewer where there are many kinds.
    """
    classes = {
        "best": replica_classes(model, found.node),
        "given": model.classes(),
        "worst": replica_classes(model, found.worst_node),
    }
    kinds = list(dict.fromkeys(places for one in classes.values() for places in one))
    count = max(_LEAST_SAMPLES, min(samples, _MOST_DRAWN * samples // len(kinds)))
    errors = (0.0, 0.0)
    common = max(share for share, _ in model.regimes())
    by_regime = []
    for share, scale in model.regimes():
        drawn = {places: model.replica_samples(places, scale, count, seed) for places in kinds}
        by_regime.append(
            {
                name: model.step_part(
                    share, scale, [(drawn[places], n) for places, n in one.items()], seed
                )
                for name, one in classes.items()
            }
        )
        if share == common:
            errors = _errors(drawn, classes["given"], classes["best"], seed)
    made = {name: mixture([one[name] for one in by_regime], seed) for name in PLACEMENTS}
    saved_p95 = made["given"].quantile(_P95) - made["best"].quantile(_P95)
    return PlacedSteps(
        made, made["given"].mean - made["best"].mean, errors[0], float(saved_p95[0]), errors[1],
        count,
    )  # fmt: skip


def replica_classes(model: StepModel, node: np.ndarray) -> Counter[Places]:
    """Return how many replicas there are of each kind where `node` [replicas, stages] are the nodes.

    Each node holds all ranks of one stage of one replica.
    """
    parallel = model.spec.parallel
    held = parallel.tp * parallel.cp
    ratio = {one.node: one.ratio for one in model.spec.nodes.slow}
    return Counter(
        tuple((ratio[n],) * held if n in ratio else (1.0,) for n in row) for row in node.tolist()
    )


def _errors(
    drawn: dict[Places, FloatArray], given: Counter[Places], best: Counter[Places], seed: int
) -> tuple[float, float]:
    """Return the standard errors of what is saved, of mean and p95 in seconds, by paired bootstrap."""
    rng = np.random.default_rng([seed, 29])
    count = len(next(iter(drawn.values())))
    taken = min(count, _MOST_RESAMPLED)
    saved = []
    for _ in range(_BOOTSTRAPS):
        pick = rng.integers(0, count, taken)
        alike = {places: values[pick] for places, values in drawn.items()}
        one, other = (
            slowest([(alike[places], n) for places, n in classes.items()])
            for classes in (given, best)
        )
        p95 = one.quantile(_P95) - other.quantile(_P95)
        saved.append((one.mean - other.mean, float(p95[0])))
    mean, p95 = np.std(saved, axis=0, ddof=1) * np.sqrt(taken / count)
    return float(mean), float(p95)
