"""Finds the evidence of a job on Kubernetes: logs of its pods, also of containers before a restart, and events."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from rerail.assistant.locate.attempt import ENDED, MOST_SHOWN
from rerail.assistant.locate.budget import Budget
from rerail.assistant.locate.locator import Found, Item, UnknownJobError
from rerail.assistant.locate.ranges import ranged
from rerail.domain.evidence import Stream
from rerail.errors import ClusterError, UsageError
from rerail.knowledge_base.phrases import says
from rerail.log_parsers.sources import Problem
from rerail.tools.clusters.kubernetes_logs import ContainerLog, describe, event_line, logs_of
from rerail.tools.clusters.kubernetes_read import (
    READABLE,
    Kind,
    attempt_of,
    default_api,
    failed,
    job_of,
    state_of,
)
from rerail.tools.clusters.kubernetes_tries import tries_of

MOST_EVENTS = 5_000
_MOST_PAGES = 10  # a server may give out fewer at once than it is asked for


@dataclass(frozen=True, slots=True)
class _Log:
    namespace: str
    log: ContainerLog
    limit_s: float


class KubernetesLocator:
    """Asks the API server with the usual configuration (kubeconfig or service account); only reads."""

    def __init__(self, api: Any = None) -> None:
        self._api = api

    def locate(self, job: str, attempt: int | None, budget: Budget) -> Found:
        """Return the logs of the pods of `namespace/name` or `namespace/kind/name`, with their events.

        Raises:
            UsageError: The name is not of that form, or means several jobs.
            UnknownJobError: There is no such job.
            ClusterError: The server does not answer, or its client is not installed.
        """
        namespace, kind, name = _parts(job)
        if self._api is None:
            with contextlib.suppress(ModuleNotFoundError):  # which `default_api` puts into words
                # Loading the client takes seconds on a busy machine and asks nobody.
                import kubernetes  # noqa: F401
            self._api = budget.call(default_api, "kubeconfig")
        found = Found(job, attempt)
        kind, one = self._object(namespace, kind, name, budget, found)
        found.job, found.attempt = job_of(kind, one), attempt_of(one)
        found.state = state_of(one)[0]
        found.ended = found.state in ENDED
        if attempt is not None and attempt != found.attempt:
            raise UsageError(
                f"{namespace}/{name} is attempt {found.attempt}; each attempt is an object of its own",
                subject="--attempt",
                hint=f"kubectl get {READABLE[kind].plural} -n {namespace}",
            )
        label = f"{READABLE[kind].pod_label}={name}"
        pods = self._list("list_namespaced_pod", namespace, budget, label_selector=label)
        if not pods:
            why = "there is none: removed with the job, or not made yet"
            command = f"kubectl get pods -n {namespace} -l {label}"
            found.missing.append(Problem(f"pods of {namespace}/{name}", why, command))
        events = self._events(namespace, budget, found)
        tried = list(zip(pods, tries_of(pods), strict=True))
        times = max((number for _, number in tried), default=1)
        for pod, number in tried:
            self._add_pod(namespace, pod, events, budget, found, number if times > 1 else None)
        if times > 1:
            last = [pod["metadata"]["name"] for pod, number in tried if number == times]
            found.told.append(
                f"{namespace}/{name} was tried {times} times; the verdict is that of the last try "
                f"({', '.join(last[:MOST_SHOWN])}{', ...' if len(last) > MOST_SHOWN else ''})"
            )
        told = [event_line(event) for event in events if _about(event) == name]
        if told:
            text = "\n".join(told) + "\n"
            found.items.append(Item(f"kubectl get events -n {namespace}", text.encode()))
        return found

    def _object(
        self, namespace: str, kind: str, name: str, budget: Budget, found: Found
    ) -> tuple[str, dict[str, Any]]:
        """Return the job itself: of several objects of one name the one that owns the others."""
        there: dict[str, dict[str, Any]] = {}
        refused: list[ClusterError] = []
        for one in [kind] if kind else list(READABLE):
            try:
                answer = budget.call(partial(self._get, one, namespace, name, budget), f"get {one}")
            except ClusterError as error:
                if error.recoverable:
                    raise
                refused.append(error)
                found.missing.append(
                    Problem(f"{one} {namespace}/{name}", error.message, error.hint)
                )
                continue
            if answer is not None:
                there[one] = answer
        top = {
            one: body for one, body in there.items() if not body["metadata"].get("ownerReferences")
        }
        chosen = top or there
        if not chosen and refused:
            raise refused[0]
        if not chosen:
            raise UnknownJobError(
                f"there is no {kind or 'training job'} {namespace}/{name}"
                + ("" if kind else f" (asked for {', '.join(READABLE)})"),
                subject=f"k8s://{namespace}/{name}",
                hint=f"kubectl get pods -n {namespace} --show-labels",
            )
        if len(chosen) > 1:
            raise UsageError(
                f"{namespace}/{name} is the name of a {' and of a '.join(chosen)}",
                subject=name,
                hint=f"rerail diagnose k8s://{namespace}/{next(iter(chosen))}/{name}",
            )
        return next(iter(chosen.items()))

    def _get(self, kind: str, namespace: str, name: str, budget: Budget) -> dict[str, Any] | None:
        one = READABLE[kind]
        versions = (one.version, *one.read_too)
        answers = (self._of_version(one, version, namespace, name, budget) for version in versions)
        return next((answer for answer in answers if answer is not None), None)

    def _of_version(
        self, one: Kind, version: str, namespace: str, name: str, budget: Budget
    ) -> dict[str, Any] | None:
        from kubernetes.client import CustomObjectsApi
        from kubernetes.client.exceptions import ApiException

        calls: Any = CustomObjectsApi(self._api)
        try:
            return dict(
                calls.get_namespaced_custom_object(
                    *(one.group, version, namespace, one.plural, name),
                    _request_timeout=max(0.1, budget.share_s),
                )
            )
        except ApiException as error:
            if error.status == 404:
                return None
            raise failed(error, f"get {one.plural}/{name}") from None
        except Exception as error:  # urllib3's own family: the server is away
            raise failed(error, f"get {one.plural}/{name}") from None

    def _list(self, call: str, namespace: str, budget: Budget, **how: Any) -> list[dict[str, Any]]:
        return self._page(call, namespace, budget, **how)[0]

    def _page(
        self, call: str, namespace: str, budget: Budget, **how: Any
    ) -> tuple[list[dict[str, Any]], str]:
        """Return a part of a list, and how to ask for the next one; nothing behind the last one."""
        from kubernetes.client import CoreV1Api

        def ask() -> tuple[list[dict[str, Any]], str]:
            try:
                answer = getattr(CoreV1Api(self._api), call)(
                    namespace,
                    _preload_content=False,
                    _request_timeout=max(0.1, budget.share_s),
                    **how,
                )
                found = json.loads(answer.data)
                return list(found["items"]), (found.get("metadata") or {}).get("continue") or ""
            except Exception as error:
                raise failed(error, call.replace("_namespaced_", " ")) from None

        return budget.call(ask, call.replace("_namespaced_", " "))

    def _events(self, namespace: str, budget: Budget, found: Found) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        further, why = "", ""
        for _ in range(_MOST_PAGES):
            how = {"_continue": further} if further else {}
            try:
                page, further = self._page(
                    "list_namespaced_event", namespace, budget, limit=MOST_EVENTS, **how
                )
            except ClusterError as error:
                why = error.message
                break
            events += page
            if not further or len(events) >= MOST_EVENTS:
                break
        if further and not why:
            why = "there are more than were asked for"
        if why:
            why += f"; {len(events):,} are read" if events else ""
            hint = f"kubectl get events -n {namespace}"
            found.missing.append(Problem(f"events of {namespace}", why, hint))
        return events

    def _add_pod(
        self,
        namespace: str,
        pod: dict[str, Any],
        events: list[dict[str, Any]],
        budget: Budget,
        found: Found,
        attempt: int | None = None,
    ) -> None:
        name = pod["metadata"]["name"]
        # What a launcher prints, and how it ends, comes from the ranks that it started on other nodes.
        node = None if _launches(pod) else (pod.get("spec") or {}).get("nodeName")
        own = [event for event in events if _about(event) == name]
        said = f"kubectl describe pod {name} -n {namespace}"
        found.items.append(Item(said, describe(pod, own).encode(), node=node, attempt=attempt))
        for log in logs_of(pod):
            before = ".previous" if log.previous else ""
            address = f"k8s://{namespace}/pods/{name}/{log.container}{before}.log"
            key = _Log(namespace, log, _patience(budget))
            found.items.append(Item(address, key, node, Stream.TRAIN, attempt=attempt))

    def open(self, item: Item, first: int = 0, length: int | None = None) -> BinaryIO:
        """Return an item's bytes; of a log those of the file that the node writes now.

        Raises:
            ClusterError: The server refuses it, or is away.
        """
        if isinstance(item.key, bytes):
            return ranged(io.BytesIO(item.key), first, length)
        assert isinstance(item.key, _Log)
        from kubernetes.client import CoreV1Api

        log = item.key.log
        try:
            answer: Any = CoreV1Api(self._api).read_namespaced_pod_log(
                *(log.pod, item.key.namespace),
                container=log.container,
                previous=log.previous,
                _preload_content=False,
                _request_timeout=item.key.limit_s,
            )
        except Exception as error:
            raise failed(error, f"log of {log.pod}/{log.container}") from None
        if first or length is not None:
            # The interface gives a log from its beginning only.
            return ranged(io.BytesIO(answer.read()), first, length)
        stream: BinaryIO = answer
        return stream


def _parts(job: str) -> tuple[str, str, str]:
    parts = job.split("/")
    kinds = {name.lower(): name for name in READABLE}
    kind = kinds.get(parts[1].lower(), "") if len(parts) == 3 else ""
    if len(parts) not in (2, 3) or not all(parts) or (len(parts) == 3 and not kind):
        raise UsageError(
            f"k8s://{job} names no job",
            subject=job,
            hint="k8s://namespace/job or k8s://namespace/kind/job, kind one of "
            + ", ".join(READABLE),
        )
    return parts[0], kind, parts[-1]


def _patience(budget: Budget) -> float:
    """Return how long a request for a log may take: longer than the budget waits for it, which says so then."""
    return 2 * max(0.1, budget.share_s)


def _launches(pod: dict[str, Any]) -> bool:
    """Tell whether a pod starts the ranks in other pods (the MPI operator's launcher)."""
    labels = pod["metadata"].get("labels") or {}
    roles = [value for key, value in labels.items() if key.endswith("/job-role")]
    return any(says("only-launches", one) for one in (*roles, pod["metadata"]["name"]))


def _about(event: dict[str, Any]) -> str:
    return str((event.get("involvedObject") or {}).get("name") or "")
