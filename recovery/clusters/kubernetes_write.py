"""Carries out recovery on Kubernetes; the writer's identity, never the reader's.

A restart makes a copy of the failed object under a fixed name, and only then removes one that still
runs: a crash in between leaves two objects, never none, and doing it twice makes one copy.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from rerail.domain.job import JobRef
from rerail.domain.plan import ActionKind, PlannedAction
from rerail.errors import RecoveryError
from rerail.recovery.clusters.writer import Before, Check, nothing_before
from rerail.tools.clusters.host_list import is_node_name
from rerail.tools.clusters.kubernetes_read import (
    ATTEMPT,
    KINDS,
    ORIGIN,
    KubernetesReader,
    attempt_of,
    failed,
    parse_job,
)

REASON = "rerail.dev/reason"
REQUEUES = (
    ActionKind.REQUEUE,
    ActionKind.REQUEUE_EXCLUDING,
    ActionKind.RESTART_FROM_CHECKPOINT,
    ActionKind.SKIP_DATA,
)
# Set by the server or by controllers; a copy must not carry them.
SERVER_FIELDS = (
    *("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"),
    *("ownerReferences", "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds"),
)
CONTROLLER_LABELS = (
    *("controller-uid", "job-name"),
    *("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"),
)


class KubernetesWriter:
    """Kubernetes' write face; `api` is an ApiClient of the writer's identity."""

    def __init__(self, reader: KubernetesReader, api: Any) -> None:
        self.reader = reader
        self.api = api

    def commands(self, action: PlannedAction, job: JobRef, incident: str) -> list[list[str]]:
        """Return the kubectl commands that would do the same, for show.

        Raises:
            RecoveryError: The action is not one of Kubernetes'.
        """
        namespace, kind, _ = parse_job(job.job)
        if action.kind is ActionKind.DRAIN:
            return [["kubectl", "cordon", action.target]]
        if action.kind is ActionKind.UNDRAIN:
            return [["kubectl", "uncordon", action.target]]
        plural = KINDS[kind].plural
        if action.kind is ActionKind.CANCEL:
            return [["kubectl", "-n", namespace, "delete", plural, self._last_name(job)]]
        if action.kind in REQUEUES:
            body = self.next_attempt(action, job)
            shown = [["kubectl", "-n", namespace, "create", "-f", "-", body["metadata"]["name"]]]
            if action.parameters.get("running"):
                shown.append(["kubectl", "-n", namespace, "delete", plural, self._last_name(job)])
            return shown
        raise RecoveryError(f"{action.kind} is no action on Kubernetes", subject=action.kind)

    def _last_name(self, job: JobRef) -> str:
        chain = self.reader.chain(job.job)
        own = next((one for one in chain if attempt_of(one) == job.attempt), chain[-1])
        return str(own["metadata"]["name"])

    def next_attempt(self, action: PlannedAction, job: JobRef) -> dict[str, Any]:
        """Return the object of the next attempt: the present one, cleaned, named, kept off nodes."""
        chain = self.reader.chain(job.job)
        source = next((one for one in chain if attempt_of(one) == job.attempt), None)
        if source is None:
            raise RecoveryError(f"attempt {job.attempt} of {job.job} is gone", subject=job.job)
        _, _, origin = parse_job(job.job)
        body = copy.deepcopy(source)
        body.pop("status", None)
        facts = body["metadata"]
        for name in SERVER_FIELDS:
            facts.pop(name, None)
        facts.get("annotations", {}).pop("kubectl.kubernetes.io/last-applied-configuration", None)
        number = job.attempt + 1
        facts["name"] = f"{origin[:55]}-r{number}"
        facts["labels"] = {
            **{k: v for k, v in (facts.get("labels") or {}).items() if k not in CONTROLLER_LABELS},
            ORIGIN: origin,
            ATTEMPT: str(number),
        }
        spec = body.get("spec", {})
        if body.get("kind") == "Job":
            spec.pop("selector", None)
        excluded = [str(node) for node in action.parameters.get("exclude", [])]
        for template in _templates(spec):
            labels = (template.get("metadata") or {}).get("labels") or {}
            for name in CONTROLLER_LABELS:
                labels.pop(name, None)
            if excluded:
                _keep_off(template["spec"], excluded)
        return body

    def preconditions(self, action: PlannedAction, job: JobRef) -> str:
        """Return which precondition does not hold (any more), or an empty string."""
        if action.kind in (ActionKind.DRAIN, ActionKind.UNDRAIN):
            if not is_node_name(action.target):
                return f"{action.target!r} is no node name"
            nodes = self.reader.nodes([action.target])
            if not nodes:
                return f"there is no node {action.target}"
            if action.kind is ActionKind.UNDRAIN:
                return "" if nodes[0].drained else "the node is not cordoned"
            if nodes[0].drained:
                return f"{action.target} is cordoned already"
            known = {name for one in self.reader.attempts(job.job) for name in one.nodes}
            return "" if action.target in known else f"{action.target} was never the job's"
        last = self.reader.attempts(job.job)[-1]
        if action.kind in REQUEUES:
            if last.attempt > job.attempt:
                return f"attempt {last.attempt} exists already ({last.state.lower()})"
            if last.state == "COMPLETED":
                return "the job is completed"
            if last.state in ("RUNNING", "PENDING") and not action.parameters.get("running"):
                word = "runs" if last.state == "RUNNING" else "waits for its pods"
                return f"the job {word}; only a stalled one may be ended to be restarted"
        return ""

    def rehearse(self, action: PlannedAction, job: JobRef, incident: str) -> str:
        """Send the same requests with `dryRun=All`: admission and rights are tried, nothing is kept.

        Raises:
            ClusterError: The server would refuse it, or does not answer.
            RecoveryError: The action is not one of Kubernetes'.
        """
        self._send(action, job, incident, {"dry_run": "All"})
        return "accepted by the API server (dryRun=All)"

    def carry_out(
        self, action: PlannedAction, job: JobRef, incident: str, before: Before = nothing_before
    ) -> None:
        """Perform the action.

        Raises:
            ClusterError: It was refused, or the server does not answer (recoverable).
            RecoveryError: The action is not one of Kubernetes'.
        """
        for command in self.commands(action, job, incident):
            before(command)
        self._send(action, job, incident, {})

    def _send(self, action: PlannedAction, job: JobRef, incident: str, how: dict[str, Any]) -> None:
        from kubernetes.client import CoreV1Api

        if action.kind in (ActionKind.DRAIN, ActionKind.UNDRAIN):
            drain = action.kind is ActionKind.DRAIN
            why = f"{incident} {action.parameters.get('reason', '')}".strip()
            body = {
                "metadata": {"annotations": {REASON: why if drain else None}},
                "spec": {"unschedulable": drain},
            }
            try:
                CoreV1Api(self.api).patch_node(action.target, body, _preload_content=False, **how)
            except Exception as error:
                raise failed(error, f"cordon {action.target}") from None
            return
        if action.kind is ActionKind.CANCEL:
            self._delete(job, self._last_name(job), how)
            return
        if action.kind not in REQUEUES:
            raise RecoveryError(f"{action.kind} is no action on Kubernetes", subject=action.kind)
        old = self._last_name(job)
        self._create(job, self.next_attempt(action, job), how)
        if action.parameters.get("running"):
            self._delete(job, old, how)

    def _create(self, job: JobRef, body: dict[str, Any], how: dict[str, Any]) -> None:
        from kubernetes.client import CustomObjectsApi
        from kubernetes.client.exceptions import ApiException

        namespace, kind, _ = parse_job(job.job)
        one = KINDS[kind]
        try:
            CustomObjectsApi(self.api).create_namespaced_custom_object(
                *(one.group, one.version, namespace, one.plural, json.loads(json.dumps(body))),
                **how,
            )
        except ApiException as error:
            if error.status != 409:  # it exists: made before a crash
                raise failed(error, f"create {body['metadata']['name']}") from None
        except Exception as error:
            raise failed(error, f"create {body['metadata']['name']}") from None

    def _delete(self, job: JobRef, name: str, how: dict[str, Any]) -> None:
        from kubernetes.client import CustomObjectsApi
        from kubernetes.client.exceptions import ApiException

        namespace, kind, _ = parse_job(job.job)
        one = KINDS[kind]
        try:
            CustomObjectsApi(self.api).delete_namespaced_custom_object(
                *(one.group, one.version, namespace, one.plural, name),
                propagation_policy="Background",
                **how,
            )
        except ApiException as error:
            if error.status != 404:
                raise failed(error, f"delete {name}") from None
        except Exception as error:
            raise failed(error, f"delete {name}") from None

    def effect(self, action: PlannedAction, job: JobRef) -> Check:
        """Say whether the action has taken effect, or never happened."""
        if action.kind in (ActionKind.DRAIN, ActionKind.UNDRAIN):
            nodes = self.reader.nodes([action.target])
            wanted = action.kind is ActionKind.DRAIN
            return Check.DONE if nodes and nodes[0].drained == wanted else Check.ABSENT
        attempts = self.reader.attempts(job.job)
        if action.kind is ActionKind.CANCEL:
            gone = all(one.attempt != job.attempt for one in attempts)
            return Check.DONE if gone else Check.ABSENT
        return Check.DONE if attempts[-1].attempt > job.attempt else Check.ABSENT

    def running_elsewhere(self, action: PlannedAction, job: JobRef) -> Check:
        """Say whether a later attempt runs, and not on an excluded node."""
        last = self.reader.attempts(job.job)[-1]
        if last.attempt <= job.attempt or last.state not in ("RUNNING", "COMPLETED", "PENDING"):
            return Check.ABSENT
        excluded = {str(node) for node in action.parameters.get("exclude", [])}
        if last.state == "PENDING" or excluded & set(last.nodes):
            return Check.PENDING
        return Check.DONE


def _templates(part: Any) -> Iterator[dict[str, Any]]:
    """Yield every pod template below an object's spec, whatever the kind calls it."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "template" and isinstance(value, dict):
                spec = value.get("spec")
                if isinstance(spec, dict) and "containers" in spec:
                    yield value
                    continue
            yield from _templates(value)
    elif isinstance(part, list):
        for value in part:
            yield from _templates(value)


def _keep_off(spec: dict[str, Any], nodes: list[str]) -> None:
    """Add a required node affinity that excludes nodes; alternatives that exist are each narrowed."""
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.setdefault("nodeSelectorTerms", []) or [{}]
    required["nodeSelectorTerms"] = terms
    for term in terms:
        term.setdefault("matchExpressions", []).append(
            {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": nodes}
        )


ASKED = {
    "cordon nodes": ("", "nodes", "patch"),
    "create jobs": ("batch", "jobs", "create"),
    "delete jobs": ("batch", "jobs", "delete"),
}


def may_do(api: Any) -> list[str]:
    """Return what this identity may change, as the server itself says (SelfSubjectAccessReview).

    Raises:
        ClusterError: The server does not answer.
    """
    from kubernetes.client import AuthorizationV1Api

    allowed = []
    for what, (group, resource, verb) in ASKED.items():
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"group": group, "resource": resource, "verb": verb}},
        }
        try:
            calls: Any = AuthorizationV1Api(api)
            answer = calls.create_self_subject_access_review(body, _preload_content=False)
            status = json.loads(answer.data).get("status") or {}
        except Exception as error:
            raise failed(error, "ask for rights") from None
        if status.get("allowed"):
            allowed.append(what)
    return allowed
