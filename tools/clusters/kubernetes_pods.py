"""Keeps what failed pods said before their controller removes them: an operator may do so at once.

A stream of all pods is followed; of a pod of a training job that failed, its object and the logs of
its containers are written down. The reader takes them where the server has the pod no longer.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rerail.tools.clusters.kubernetes_read import KINDS, KubernetesReader, epoch_of
from rerail.tools.clusters.kubernetes_watch import KindWatch

RECENT_S = 3600.0
MOST_KEPT = 2000
KEPT_LINES, KEPT_BYTES = 20_000, 4 << 20
_UID = re.compile(r"[A-Za-z0-9-]{1,64}")
LABELS = frozenset(kind.pod_label for kind in KINDS.values())


@dataclass
class PodKeeper:
    """A folder of failed pods, one JSON file each with the logs inside."""

    folder: Path

    def keep(self, pod: dict[str, Any], logs: dict[str, str]) -> None:
        """Write a pod down; a second time changes nothing."""
        path = self._path(pod)
        if path is None or path.exists() or len(list(self.folder.glob("*.json"))) >= MOST_KEPT:
            return
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps({"pod": pod, "logs": logs}))
        temporary.replace(path)

    def knows(self, pod: dict[str, Any]) -> bool:
        """Tell whether a pod is kept."""
        path = self._path(pod)
        return path is not None and path.exists()

    def pods(self, but: set[str]) -> list[dict[str, Any]]:
        """Return the kept pods, without those of these uids."""
        found = []
        for path in sorted(self.folder.glob("*.json")):
            if path.stem not in but:
                with contextlib.suppress(OSError, ValueError, KeyError):
                    found.append(dict(json.loads(path.read_text())["pod"]))
        return found

    def log(self, pod: dict[str, Any], container: str) -> str | None:
        """Return what a container of a kept pod printed, or None."""
        path = self._path(pod)
        if path is None:
            return None
        try:
            text = json.loads(path.read_text())["logs"].get(container)
        except (OSError, ValueError, KeyError, AttributeError):
            return None
        return None if text is None else str(text)

    def _path(self, pod: dict[str, Any]) -> Path | None:
        uid = str(pod["metadata"].get("uid") or "")
        return self.folder / f"{uid}.json" if _UID.fullmatch(uid) else None


def ended_badly(pod: dict[str, Any], now: float) -> bool:
    """Tell whether a pod failed within the last hour, or one of its containers did."""
    status = pod.get("status") or {}
    failed = status.get("phase") == "Failed"
    ended: list[float] = []
    for one in status.get("containerStatuses") or []:
        # A container that is started again in its place told the reason in `lastState`.
        for place in ("state", "lastState"):
            end = (one.get(place) or {}).get("terminated")
            if end and end.get("exitCode"):
                failed = True
                ended.append(epoch_of(end.get("finishedAt")) or now)
    return failed and now - max(ended, default=now) <= RECENT_S


@dataclass
class PodWatch(KindWatch):
    """The stream of pods; what failed of a training job is kept, and told to nobody."""

    keeper: PodKeeper = field(default_factory=lambda: PodKeeper(Path("pods")))

    @property
    def plural(self) -> str:
        """The name of the resource."""
        return "pods"

    def _call(self, **options: Any) -> Any:
        from kubernetes.client import CoreV1Api

        core: Any = CoreV1Api(self.reader.api)
        options |= {"_preload_content": False}
        if self.reader.namespace:
            return core.list_namespaced_pod(self.reader.namespace, **options)
        return core.list_pod_for_all_namespaces(**options)

    def _judge(self, one: dict[str, Any]) -> None:
        labels = (one.get("metadata") or {}).get("labels") or {}
        if not LABELS & labels.keys() or self.keeper.knows(one):
            return
        if ended_badly(one, time.time()):
            self.keeper.keep(one, read_logs(self.reader, one))


def read_logs(reader: KubernetesReader, pod: dict[str, Any]) -> dict[str, str]:
    """Return what the containers of a pod printed, as far as the server gives it."""
    from kubernetes.client import CoreV1Api

    found = {}
    for container in (pod.get("spec") or {}).get("containers", []):
        with contextlib.suppress(Exception):  # without a kubelet there is none
            found[container["name"]] = CoreV1Api(reader.api).read_namespaced_pod_log(
                pod["metadata"]["name"],
                pod["metadata"].get("namespace", "default"),
                container=container["name"],
                tail_lines=KEPT_LINES,
                limit_bytes=KEPT_BYTES,
            )
    return found
