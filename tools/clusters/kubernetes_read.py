"""Reads training jobs, pods and nodes of a Kubernetes cluster; no method here can change it.

A job is `namespace/kind/name` of one of the kinds below. A failed object is never started again;
rerail's restart is a copy under the name `name-rN`, labelled with the name of the first, so attempt N
of a job is that copy. Needs get and list on these kinds, pods, pod logs and nodes, nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rerail.cached_yaml import load_cached
from rerail.errors import ClusterError, UsageError
from rerail.tools.clusters.kubernetes_logs import logs_of
from rerail.tools.clusters.kubernetes_tries import tries_of
from rerail.tools.clusters.slurm_outputs import Outputs
from rerail.tools.clusters.slurm_read import JobFiles
from rerail.tools.clusters.slurm_records import AttemptRecord, NodeRecord, StepRecord

ORIGIN = "rerail.dev/origin"
ATTEMPT = "rerail.dev/attempt"
LOG_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Kind:
    """How the interface names a kind, and the label that its pods carry."""

    group: str
    version: str
    plural: str
    pod_label: str
    read_too: tuple[str, ...] = ()
    """Further versions in which a server may know a job."""


def _kinds(*, restarts: bool) -> dict[str, Kind]:
    return {
        one["kind"]: Kind(
            *(one["group"], one["version"], one["plural"], one["pod_label"]),
            tuple(one.get("read_too", ())),
        )
        for one in load_cached(KINDS_FILE)["kinds"]
        if one["restarts"] or not restarts
    }


KINDS_FILE = Path(__file__).with_name("kubernetes_kinds.yaml")
READABLE = _kinds(restarts=False)
"""Every kind whose pods are found."""
KINDS = _kinds(restarts=True)
"""The kinds of which recovery may start a copy."""
DONE = ("Complete", "Succeeded", "Completed")


def parse_job(job: str) -> tuple[str, str, str]:
    """Return namespace, kind and name.

    Raises:
        UsageError: The text is not `namespace/kind/name` of a known kind.
    """
    parts = job.split("/")
    if len(parts) != 3 or parts[1] not in KINDS or not all(parts):
        raise UsageError(
            f"{job!r} is no Kubernetes job",
            subject=job,
            hint="namespace/kind/name, kind one of " + ", ".join(KINDS),
        )
    return parts[0], parts[1], parts[2]


def failed(error: Exception, what: str) -> ClusterError:
    """Return the error of a refused or lost call; recoverable where a retry may help."""
    status = getattr(error, "status", None)
    reason = _said(error) or _lost(error) or getattr(error, "reason", None) or type(error).__name__
    lost = status is None or int(status) >= 500 or int(status) in (0, 408, 429)
    return ClusterError(
        f"Kubernetes: {what}: {reason}" + (f" ({status})" if status else ""),
        subject=what,
        hint="rerail doctor; is the kubeconfig right, and its role?",
        recoverable=lost,
    )


def _lost(error: Exception) -> str:
    """Return in words how a call was lost; the client lets errors of urllib3 through, whose reason is another error."""
    names = {type(one).__name__ for one in (error, getattr(error, "reason", None))}
    if names & {"ReadTimeoutError", "ConnectTimeoutError"}:
        return "no answer in time"
    return "no connection" if names & {"MaxRetryError", "NewConnectionError"} else ""


def _said(error: Exception) -> str:
    """Return what the server itself says of a refusal, in one line."""
    try:
        text = str(json.loads(getattr(error, "body", "") or "")["message"])
    except (ValueError, KeyError, TypeError):
        return ""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:300]


class KeptPods(Protocol):
    """Failed pods that were written down before the server forgot them."""

    def pods(self, but: set[str]) -> list[dict[str, Any]]:
        """Return the kept pods, without those of these uids."""

    def log(self, pod: dict[str, Any], container: str) -> str | None:
        """Return what a container of a kept pod printed, or None."""


@dataclass
class KubernetesReader:
    """The read-only face of one cluster. `api` is an ApiClient; None takes the usual configuration.

    `kept` gives failed pods that the server has no longer.
    """

    api: Any = None
    namespace: str = ""
    kinds: Sequence[str] = field(default_factory=lambda: tuple(KINDS))
    kept: KeptPods | None = None

    def __post_init__(self) -> None:
        if self.api is None:
            self.api = default_api()

    def objects(self, kind: str) -> list[dict[str, Any]]:
        """Return every object of a kind; none where the kind is not installed."""
        from kubernetes.client import CustomObjectsApi
        from kubernetes.client.exceptions import ApiException

        one = KINDS[kind]
        calls: Any = CustomObjectsApi(self.api)
        try:
            if self.namespace:
                found = calls.list_namespaced_custom_object(
                    one.group, one.version, self.namespace, one.plural
                )
            else:
                found = calls.list_cluster_custom_object(one.group, one.version, one.plural)
        except ApiException as error:
            if error.status == 404:
                return []
            raise failed(error, f"list {one.plural}") from None
        except Exception as error:  # urllib3's own family: the server is away
            raise failed(error, f"list {one.plural}") from None
        # The items of a list of a built-in kind do not carry what kind they are.
        api_version = f"{one.group}/{one.version}"
        return [
            {"apiVersion": api_version, "kind": kind, **item} for item in found.get("items", [])
        ]

    def chain(self, job: str) -> list[dict[str, Any]]:
        """Return the objects of a job's attempts, the first one first.

        Raises:
            ClusterError: There is no such object.
        """
        namespace, kind, name = parse_job(job)
        own = [
            one
            for one in self.objects(kind)
            if one["metadata"].get("namespace") == namespace
            and (
                one["metadata"]["name"] == name
                or (one["metadata"].get("labels") or {}).get(ORIGIN) == name
            )
        ]
        if not own:
            raise ClusterError(f"there is no {kind} {namespace}/{name}", subject=job)
        return sorted(own, key=attempt_of)

    def attempts(self, job: str) -> list[AttemptRecord]:
        """Return every attempt of a job, oldest first.

        Raises:
            ClusterError: There is no such job, or the server does not answer.
        """
        _, kind, _ = parse_job(job)
        pods = self._pods()
        lost = {one.node for one in self.nodes() if one.lost}
        return [self._record(job, kind, one, pods, lost) for one in self.chain(job)]

    def _record(
        self, job: str, kind: str, one: dict[str, Any], pods: list[dict[str, Any]], lost: set[str]
    ) -> AttemptRecord:
        own = pods_of(kind, one, pods)
        nodes = tuple(
            dict.fromkeys(p["spec"]["nodeName"] for p in own if p["spec"].get("nodeName"))
        )
        steps = tuple(step for pod in own for step in _containers(pod))
        state, ended = state_of(one)
        if state == "FAILED":
            state = _why(own, steps, lost & set(nodes))
        if state == "RUNNING" and own and all(_phase(pod) == "Pending" for pod in own):
            state = "PENDING"  # a Job calls its pods active before any has found a node
        codes = [step.exit_code for step in steps if step.exit_code]
        started = (one.get("status") or {}).get("startTime")
        return AttemptRecord(
            *(job, attempt_of(one), state, nodes, codes[0] if codes else None, None),
            *(epoch_of(started), ended, None, steps),
        )

    def ended_badly(self, since: float) -> list[AttemptRecord]:
        """Return the latest attempts that failed since a time.

        Raises:
            ClusterError: The server does not answer.
        """
        found = []
        pods, lost = self._pods(), {one.node for one in self.nodes() if one.lost}
        for kind in self.kinds:
            for one in self.objects(kind):
                state, ended = state_of(one)
                if state == "FAILED" and (ended is None or ended >= since):
                    found.append(self._record(job_of(kind, one), kind, one, pods, lost))
        return found

    def running(self) -> list[AttemptRecord]:
        """Return the jobs that run now."""
        pods = self._pods()
        found = [
            self._record(job_of(kind, one), kind, one, pods, set())
            for kind in self.kinds
            for one in self.objects(kind)
            if state_of(one)[0] == "RUNNING"
        ]
        return [one for one in found if one.state == "RUNNING"]

    def _pods(self) -> list[dict[str, Any]]:
        from kubernetes.client import CoreV1Api

        core = CoreV1Api(self.api)
        if self.namespace:
            live = self._plain(core.list_namespaced_pod, "list pods", self.namespace)
        else:
            live = self._plain(core.list_pod_for_all_namespaces, "list pods")
        if self.kept is None:
            return live
        return live + self.kept.pods({str(one["metadata"].get("uid")) for one in live})

    def _plain(self, call: Any, what: str, *arguments: str) -> list[dict[str, Any]]:
        """Return items as the server sent them: newer fields are kept, none has to be known."""
        try:
            answer = call(*arguments, _preload_content=False)
            return list(json.loads(answer.data)["items"])
        except Exception as error:
            raise failed(error, what) from None

    def nodes(self, names: Sequence[str] = ()) -> list[NodeRecord]:
        """Return the state of nodes; a cordoned one counts as drained.

        Raises:
            ClusterError: The server does not answer.
        """
        from kubernetes.client import CoreV1Api

        found = []
        for one in self._plain(CoreV1Api(self.api).list_node, "list nodes"):
            name = one["metadata"]["name"]
            if names and name not in names:
                continue
            ready: dict[str, Any] = next(
                (
                    c
                    for c in (one.get("status") or {}).get("conditions") or []
                    if c.get("type") == "Ready"
                ),
                {},
            )
            words = ["IDLE" if ready.get("status") == "True" else "DOWN"]
            if ready.get("status") == "Unknown":
                words.append("NOT_RESPONDING")
            if (one.get("spec") or {}).get("unschedulable"):
                words.append("DRAIN")
            found.append(NodeRecord(name, "+".join(words), str(ready.get("reason", ""))))
        return found

    def files(self, job: str) -> JobFiles:
        """Return nothing: logs come through the interface (`save_logs`)."""
        return JobFiles(None, None, None)

    def outputs(self, attempt: AttemptRecord) -> Outputs:
        """Return nothing: containers print, and what they printed comes through the interface."""
        return Outputs()

    def cannot_requeue(self, job: str) -> str:
        """Return nothing: a restart is a copy, which can always be made."""
        return ""

    def submit_line(self, job: str) -> str:
        """Return nothing: an object is applied, not submitted."""
        return ""

    def save_logs(self, attempt: AttemptRecord, folder: Path) -> list[str]:
        """Write the logs of the attempt's pods into `folder/job`, one file a container; of several tries the last."""
        from kubernetes.client import CoreV1Api

        namespace, kind, _ = parse_job(attempt.job)
        one = next(o for o in self.chain(attempt.job) if attempt_of(o) == attempt.attempt)
        problems = []
        pods = pods_of(kind, one, self._pods())
        tries = tries_of(pods)
        for pod, number in zip(pods, tries, strict=True):
            name = pod["metadata"]["name"]
            if number < max(tries):
                problems.append(
                    f"pod {name} is of try {number} of {max(tries)}: its log was not read"
                )
                continue
            for log in logs_of(pod):
                try:
                    text = CoreV1Api(self.api).read_namespaced_pod_log(
                        *(name, namespace),
                        container=log.container,
                        previous=log.previous,
                        limit_bytes=LOG_BYTES,
                    )
                except Exception as error:
                    kept = self.kept.log(pod, log.container) if self.kept else None
                    if kept is None or log.previous:
                        problems.append(failed(error, f"log of {name}").message)
                        continue
                    text = kept
                before = ".previous" if log.previous else ""
                (folder / "job" / f"{name}.{log.container}{before}.log").write_text(text)
        return problems


def default_api() -> Any:
    """Return a client from the pod's service account, or from the kubeconfig.

    Raises:
        ClusterError: The client library or a configuration is missing.
    """
    try:
        from kubernetes import client, config
    except ModuleNotFoundError:
        raise ClusterError(
            "the Kubernetes client is not installed",
            subject="kubernetes",
            hint="pip install 'rerail[kubernetes]'",
        ) from None
    # The library's own choice between the two prints to standard output and knows no list of files.
    named = os.environ.get("KUBECONFIG") or "~/.kube/config"
    files = [os.path.expanduser(one) for one in named.split(os.pathsep) if one]
    there = [one for one in files if os.path.exists(one)]
    try:
        load: Any = config.load_incluster_config
        if there:
            load = partial(config.load_kube_config, os.pathsep.join(there))
        load()
    except Exception as error:
        where = " ".join(there) or f"{named} is not there, and no service account of a pod"
        raise ClusterError(
            f"no Kubernetes configuration: {where}: {' '.join(str(error).split())}",
            subject="kubeconfig",
            hint="set KUBECONFIG; kubectl config view",
        ) from None
    return client.ApiClient()


def attempt_of(one: dict[str, Any]) -> int:
    """Return which attempt of its job an object is."""
    text = (one["metadata"].get("labels") or {}).get(ATTEMPT, "0")
    return int(text) if str(text).isdigit() else 0


def job_of(kind: str, one: dict[str, Any]) -> str:
    """Return the job that an object is an attempt of."""
    facts = one["metadata"]
    origin = (facts.get("labels") or {}).get(ORIGIN) or facts["name"]
    return f"{facts.get('namespace', 'default')}/{kind}/{origin}"


def pods_of(kind: str, one: dict[str, Any], pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pods of one object, by the label that its controller sets."""
    label, facts = KINDS[kind].pod_label, one["metadata"]
    return [
        pod
        for pod in pods
        if pod["metadata"].get("namespace") == facts.get("namespace")
        and (pod["metadata"].get("labels") or {}).get(label) == facts["name"]
    ]


def state_of(one: dict[str, Any]) -> tuple[str, float | None]:
    """Return FAILED, COMPLETED, RUNNING or PENDING, and when it ended."""
    status = one.get("status") or {}
    word = str(status.get("jobStatus") or "").upper()  # RayJob
    if word in ("FAILED", "STOPPED"):
        return "FAILED", epoch_of(status.get("endTime"))
    if word == "SUCCEEDED":
        return "COMPLETED", epoch_of(status.get("endTime"))
    for condition in status.get("conditions") or []:
        if condition.get("status") != "True":
            continue
        ended = epoch_of(condition.get("lastTransitionTime"))
        if condition.get("type") == "Failed":
            late = condition.get("reason") == "DeadlineExceeded"
            return ("TIMEOUT" if late else "FAILED"), ended
        if condition.get("type") in DONE:
            return "COMPLETED", ended
    replicas = (status.get("replicaStatuses") or {}).values()
    runs = status.get("active") or any((r or {}).get("active") for r in replicas)
    return ("RUNNING" if runs or word == "RUNNING" else "PENDING"), None


def _phase(pod: dict[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def _containers(pod: dict[str, Any]) -> list[StepRecord]:
    """Return how the containers of a pod ended, as its kubelet says."""
    found = []
    for one in (pod.get("status") or {}).get("containerStatuses") or []:
        ended = (one.get("state") or {}).get("terminated") or (one.get("lastState") or {}).get(
            "terminated"
        )
        if ended:
            code = ended.get("exitCode")
            number = code - 128 if isinstance(code, int) and code > 128 else 0
            state = "OUT_OF_MEMORY" if ended.get("reason") == "OOMKilled" else "FAILED"
            node = pod["spec"].get("nodeName")
            found.append(
                StepRecord(
                    f"{pod['metadata']['name']}/{one.get('name', '')}",
                    "COMPLETED" if code == 0 else state,
                    code,
                    number,
                    (node,) if node else (),
                )
            )
    return found


def _why(pods: list[dict[str, Any]], steps: tuple[StepRecord, ...], lost: set[str]) -> str:
    """Return the word in Slurm's terms for why an attempt failed."""
    reasons = {str((pod.get("status") or {}).get("reason") or "") for pod in pods}
    if lost or "NodeLost" in reasons:
        return "NODE_FAIL"
    if reasons & {"Preempting", "Preempted"}:
        return "PREEMPTED"
    if any(step.state == "OUT_OF_MEMORY" for step in steps):
        return "OUT_OF_MEMORY"
    return "FAILED"


def epoch_of(text: object) -> float | None:
    """Return a time of the API in seconds since the epoch, or None where there is none."""
    try:
        return (
            datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() if text else None
        )
    except ValueError:
        return None
