"""What a pod printed, container by container, and what `kubectl describe` would say of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ContainerLog:
    """One log of one container; `previous` is that of the container before its last restart in place."""

    pod: str
    container: str
    previous: bool = False


def logs_of(pod: dict[str, Any]) -> Iterator[ContainerLog]:
    """Give the logs of a pod in the order in which they were written.

    A container that crashed and was started again in its place has an empty log as often as not:
    what it died of stands in the one before.
    """
    name, spec, status = pod["metadata"]["name"], pod.get("spec") or {}, pod.get("status") or {}
    states = [
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    ]
    again = {str(one.get("name")) for one in states if one.get("restartCount")}
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        if container["name"] in again:
            yield ContainerLog(name, container["name"], previous=True)
        yield ContainerLog(name, container["name"])


def describe(pod: dict[str, Any], events: Sequence[dict[str, Any]]) -> str:
    """Return what `kubectl describe pod` prints of a pod's node, of how its containers ended and its events."""
    status = pod.get("status") or {}
    node = (pod.get("spec") or {}).get("nodeName")
    lines = [
        f"Name:             {pod['metadata']['name']}",
        f"Namespace:        {pod['metadata'].get('namespace', 'default')}",
        *([f"Node:             {node}"] if node else []),
        *([f"Start Time:       {begun}"] if (begun := status.get("startTime")) else []),
        f"Status:           {status.get('phase', 'Unknown')}",
    ]
    for key in ("reason", "message"):
        if status.get(key):
            lines.append(f"{key.capitalize() + ':':<18}{_flat(status[key])}")
    lines.append("Containers:")
    for one in status.get("containerStatuses") or []:
        lines.append(f"  {one.get('name')}:")
        for key, title in (("state", "State:"), ("lastState", "Last State:")):
            lines += _state(title, one.get(key) or {})
        lines.append(f"    Restart Count:  {one.get('restartCount', 0)}")
    if events:
        lines += ["Events:", "  Type     Reason    At                    From    Message"]
        lines += [f"  {event_line(one)}" for one in events]
    return "\n".join(lines) + "\n"


def event_line(event: dict[str, Any]) -> str:
    """Return an event as one line: type, reason, when, from whom, what."""
    at = event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp") or ""
    source = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
    said = (event.get("type"), event.get("reason"), at, source, _flat(event.get("message")))
    return "  ".join(str(one or "-") for one in said)


def _state(title: str, state: dict[str, Any]) -> list[str]:
    word = next(iter(state), "")
    if not word:
        return []
    facts = state[word] or {}
    lines = [f"    {title:<16}{word.capitalize()}"]
    named = {"reason": "Reason", "message": "Message", "exitCode": "Exit Code", "signal": "Signal"}
    named |= {"startedAt": "Started", "finishedAt": "Finished"}
    for key, shown in named.items():
        if facts.get(key) is not None:
            lines.append(f"      {shown + ':':<14}{_flat(facts[key])}")
    return lines


def _flat(value: object) -> str:
    return " ".join(str(value or "").split()) if not isinstance(value, int) else str(value)
