"""What each worker does, where nobody said it: by which functions run, then by their shares.

The set of functions is tried first (a first or last stage runs others). Workers with the same set are
then clustered by how their compute is shared out among the functions, on a sample: an expert host has
other shares, while a slow device has the shares of its like and stays with them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rerail.domain.series import IntArray
from rerail.tools.profiles.channels import BETA, Float32

_LEAST_WORKERS = 32
_SAMPLE = 2000
_LEAST_SHARE = 0.1
_APART = 0.08
_COMPUTE = ("matmul", "attention", "compute")


def unknown_roles(values: Float32, work: list[str]) -> tuple[IntArray, tuple[str, ...]]:
    """Return a role for each worker and the names of the roles; `values` is (F, 3, W)."""
    role = _signature(values, work)
    shares = _shares(values, work)
    out = np.zeros_like(role)
    count = 0
    for number in np.unique(role):
        mine = np.flatnonzero(role == number)
        parts = _clusters(shares[:, mine].T)
        out[mine] = count + parts
        count += int(parts.max()) + 1
    return out, tuple(f"kind {i}" for i in range(count)) if count > 1 else ("all",)


def _signature(values: Float32, work: list[str]) -> IntArray:
    """Number workers by which functions they run on the device.

    Only what fills a thousandth of the window counts, so that a rare call makes no role of its own;
    a function that is near that limit on some workers says nothing. On the host, functions come
    and go with the data and are left out.
    """
    mine = [i for i, name in enumerate(work) if name in (*_COMPUTE, "collective")]
    beta = values[mine, BETA]
    clear = (np.max(beta, axis=1, initial=0) >= 5e-3) & ((beta > 0).mean(axis=1) < 1)
    packed = np.packbits(beta[clear] >= 1e-3, axis=0).T
    if not packed.shape[1]:
        return np.zeros(values.shape[2], dtype=np.int64)
    _, role = np.unique(packed, axis=0, return_inverse=True)
    found: IntArray = role.reshape(-1).astype(np.int64)
    return found


def _shares(values: Float32, work: list[str]) -> Float32:
    mine = [i for i, name in enumerate(work) if name in _COMPUTE]
    beta = values[mine, BETA]
    total = np.maximum(beta.sum(axis=0), 1e-9)
    shares: Float32 = (beta / total).astype(np.float32)
    return shares


def _clusters(points: Float32) -> IntArray:
    """Return clusters of (n, functions) that hold a tenth of the workers or more each."""
    one: IntArray = np.zeros(len(points), dtype=np.int64)
    if len(points) < _LEAST_WORKERS or points.shape[1] < 2:
        return one
    try:
        from sklearn.cluster import HDBSCAN
    except ImportError:
        return one
    sample = points[:: max(1, len(points) // _SAMPLE)]
    least = max(8, int(_LEAST_SHARE * len(sample)))
    label = HDBSCAN(min_cluster_size=least, allow_single_cluster=False, copy=True).fit_predict(
        sample
    )
    centres = [np.median(sample[label == n], axis=0) for n in range(int(label.max()) + 1)]
    far: list[NDArray[np.float32]] = []
    for centre in centres:
        # Clusters of one kind that noise alone has parted are put together again.
        if all(np.abs(centre - other).sum() >= _APART for other in far):
            far.append(centre)
    if len(far) < 2:
        return one
    distance = np.stack([np.abs(points - centre).sum(axis=1) for centre in far])
    nearest: IntArray = distance.argmin(axis=0).astype(np.int64)
    return nearest
