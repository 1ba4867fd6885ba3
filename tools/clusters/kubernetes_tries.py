"""Which pods of a job are of an earlier try: a Job makes a new pod in the place of one that failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

_JOB = "job-name"
_INDEX = "batch.kubernetes.io/job-completion-index"
"""https://kubernetes.io/docs/reference/labels-annotations-taints/#batch-kubernetes-io-job-completion-index-label"""


def tries_of(pods: Sequence[dict[str, Any]]) -> list[int]:
    """Return the number of the try that each pod belongs to, from 1; a pod that lives on belongs to the last.

    A new try begins with a pod that has started after another one of its place had ended. Where the server keeps
    no times, all pods are of one try.
    """
    begun = [_seconds(pod["metadata"].get("creationTimestamp")) for pod in pods]
    ended = [_ended(pod) for pod in pods]
    begins = sorted(
        begin
        for pod, begin in zip(pods, begun, strict=True)
        if begin is not None
        and _has_started(pod)
        and any(
            end is not None and end <= begin and _place(other) == _place(pod)
            for other, end in zip(pods, ended, strict=True)
        )
    )
    return [
        1 + sum(end is None or begin < end or begin == own for begin in begins)
        for own, end in zip(begun, ended, strict=True)
    ]


def _place(pod: dict[str, Any]) -> tuple[str, str]:
    """Return which pod of its Job it is; what no Job has made has a place of its own."""
    labels = pod["metadata"].get("labels") or {}
    if _JOB not in labels:
        return "", str(pod["metadata"]["name"])
    index = labels.get(_INDEX) or (pod["metadata"].get("annotations") or {}).get(_INDEX) or ""
    return str(labels[_JOB]), str(index)


def _has_started(pod: dict[str, Any]) -> bool:
    states = (pod.get("status") or {}).get("containerStatuses") or []
    return any({"running", "terminated"} & (one.get("state") or {}).keys() for one in states)


def _ended(pod: dict[str, Any]) -> float | None:
    """Return when the last container of a pod ended, None where one goes on or nothing tells it."""
    states = (pod.get("status") or {}).get("containerStatuses") or []
    ends = [
        _seconds(((one.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for one in states
    ]
    known = [end for end in ends if end is not None]
    return max(known) if known and len(known) == len(ends) else None


def _seconds(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None
