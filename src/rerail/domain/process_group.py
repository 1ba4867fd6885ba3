"""What a process group is for, read from the name that a framework gave it."""

from __future__ import annotations

import re

_KINDS = (
    ("tp", re.compile(r"tensor|(?:^|[^a-z])tp(?:[^a-z]|$)", re.IGNORECASE)),
    ("cp", re.compile(r"context|(?:^|[^a-z])cp(?:[^a-z]|$)", re.IGNORECASE)),
    ("ep", re.compile(r"expert|(?:^|[^a-z])ep(?:[^a-z]|$)", re.IGNORECASE)),
    ("pp", re.compile(r"pipeline|(?:^|[^a-z])pp(?:[^a-z]|$)", re.IGNORECASE)),
    ("dp", re.compile(r"data|fsdp|(?:^|[^a-z])dp(?:[^a-z]|$)", re.IGNORECASE)),
    ("world", re.compile(r"default_pg|world", re.IGNORECASE)),
)


def group_kind(name: str) -> str:
    """Return tp, cp, ep, pp, dp or world from the description of a process group, or other.

    Known spellings: Megatron-LM (`TENSOR_MODEL_PARALLEL_GROUP`), DeviceMesh (`mesh_tp`), PyTorch
    (`default_pg`).
    """
    for kind, pattern in _KINDS:
        if pattern.search(name):
            return kind
    return "other"
