"""Rules of others on the same profiles: EROICA's as published, and NVRx's score below 0.75."""

from __future__ import annotations

import numpy as np

from rerail.domain.series import FloatArray
from rerail.tools.profiles.channels import BETA, Float32
from rerail.tools.profiles.function_table import DEVICE_COMPUTE
from rerail.tools.profiles.matrix import ProfileMatrix

_SAMPLED, _DELTA, _K = 100, 0.4, 5.0
_LEAST_BETA, _HOST_BOX, _COLLECTIVE_BOX = 0.01, 0.01, 0.3
_NVRX = 0.75


def differential(pattern: Float32, random: np.random.Generator) -> FloatArray:
    """Return the share of sampled workers that each worker differs from, (F, W).

    `pattern` (F, 3, W); each number is scaled by its largest over the workers, differences are summed
    (Manhattan) and count from 0.4. EROICA, arXiv 2506.08528, as reported.
    """
    count = pattern.shape[2]
    sampled = random.permutation(count)[:_SAMPLED]
    out = np.zeros((len(pattern), count))
    for f, rows in enumerate(np.nan_to_num(pattern)):
        scaled = rows / np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-12)
        for s in sampled:
            out[f] += np.abs(scaled - scaled[:, [s]]).sum(axis=0) >= _DELTA
    return out / len(sampled)


def published_rule(matrix: ProfileMatrix, seed: int = 0) -> list[tuple[str, frozenset[int]]]:
    """Return the abnormal functions with their workers, by the published rule without roles."""
    delta = differential(matrix.pattern, np.random.default_rng(seed))
    found = []
    for f, name in enumerate(matrix.functions):
        if matrix.work[f] in ("idle", "others"):
            continue
        beta = matrix.pattern[f, BETA]
        middle = float(np.median(delta[f]))
        mad = float(np.median(np.abs(delta[f] - middle)))
        outside = np.zeros(len(beta), dtype=bool)
        if matrix.work[f] in ("host", "loader", "collector", "checkpoint"):
            outside = beta > _HOST_BOX
        if matrix.work[f] == "collective":
            outside = beta > _COLLECTIVE_BOX
        flagged = (beta > _LEAST_BETA) & (outside | (delta[f] > middle + _K * mad))
        if flagged.any():
            found.append((name, frozenset(matrix.of_ranks(np.flatnonzero(flagged)))))
    return found


def nvrx_score(matrix: ProfileMatrix) -> frozenset[int]:
    """Return the workers below 0.75 of the best: kernels on all workers, weighted by time."""
    compute = matrix.of_class(*DEVICE_COMPUTE)
    common = compute[(matrix.pattern[compute, BETA] > 0).all(axis=1)]
    if matrix.by_step_s is None or not len(common):
        return frozenset()
    typical = np.median(matrix.by_step_s[common], axis=1)
    score = typical.min(axis=1, keepdims=True) / np.maximum(typical, 1e-12)
    total = (score * typical).sum(axis=0) / typical.sum(axis=0)
    return frozenset(matrix.of_ranks(np.flatnonzero(total < _NVRX)))
