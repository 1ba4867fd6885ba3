"""The Kubernetes adapter with the official client: the same tests against two servers.

kmock is a fake API server that keeps objects and knows no controllers. The real one (1.20) is
started where `make kubernetes` built it. What a kubelet would report is written by the tests.
"""

import asyncio
import contextlib
import threading
import time

import pytest

from rerail.domain.job import JobRef
from rerail.domain.plan import ActionKind
from rerail.errors import ClusterError
from rerail.evals.kubernetes.control_plane import ControlPlane, cannot_run
from rerail.recovery.clusters.kubernetes_write import KubernetesWriter
from rerail.recovery.clusters.writer import Check
from rerail.tools.clusters.kubernetes_read import KINDS, KubernetesReader

kmock = pytest.importorskip("kmock")
kubernetes = pytest.importorskip("kubernetes")
REAL = pytest.param(
    "real",
    marks=[
        pytest.mark.kubernetes,
        pytest.mark.skipif(bool(cannot_run()), reason=cannot_run() or "it can"),
    ],
)


@contextlib.contextmanager
def fake_server():
    ready, box = threading.Event(), {}

    async def serve():
        emulator = kmock.KubernetesEmulator()
        async with emulator, kmock.Server(emulator) as server:
            box.update(url=str(server.url), emulator=emulator, stop=asyncio.Event())
            box["loop"] = asyncio.get_running_loop()
            ready.set()
            await box["stop"].wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(10)
    yield FakeCluster(box["url"], box["emulator"])
    box["loop"].call_soon_threadsafe(box["stop"].set)
    thread.join(10)


class Cluster:
    """Writes what users, controllers and kubelets write; how, differs between the servers."""

    def put(self, group, version, plural, body):
        custom = kubernetes.client.CustomObjectsApi(self.api)
        custom.create_namespaced_custom_object(group, version, "ml", plural, self.allowed(body))
        self.report(custom, group, version, plural, body)

    def node(self, name, ready="True"):
        status = {"conditions": [{"type": "Ready", "status": ready, "reason": "Kubelet"}]}
        body = {"metadata": {"name": name}, "spec": {}, "status": status}
        core = kubernetes.client.CoreV1Api(self.api)
        core.create_node(body)
        if self.reports_apart:
            core.patch_node_status(name, {"status": status})

    def pod(self, name, label, job, on, code, reason="Error"):
        status = {
            "phase": "Failed",
            "containerStatuses": [
                {
                    "name": "train",
                    "image": "x",
                    "imageID": "x",
                    "ready": False,
                    "restartCount": 0,
                    "state": {"terminated": {"exitCode": code, "reason": reason}},
                }
            ],
        }
        body = {
            "metadata": {"name": name, "namespace": "ml", "labels": {label: job}},
            "spec": {"nodeName": on, "containers": [{"name": "train", "image": "x"}]},
            "status": status,
        }
        core = kubernetes.client.CoreV1Api(self.api)
        core.create_namespaced_pod("ml", body)
        if self.reports_apart:
            core.patch_namespaced_pod_status(name, "ml", {"status": status})


class FakeCluster(Cluster):
    reports_apart = False

    def __init__(self, url, emulator):
        self.emulator = emulator
        configuration = kubernetes.client.Configuration()
        configuration.host = url.rstrip("/")
        self.api = kubernetes.client.ApiClient(configuration)

    def clear(self):
        for key in list(self.emulator.objects):
            del self.emulator.objects[key]
        for name in ("v1/nodes", "v1/pods"):
            self.emulator.resources[name] = {}
        for one in KINDS.values():
            self.emulator.resources[f"{one.group}/{one.version}/{one.plural}"] = {}

    def allowed(self, body):
        return body

    def report(self, *ignored):
        """The fake took the status with the object."""

    def run_pods(self):
        """The fake has no job controller that makes pods."""


class RealCluster(Cluster):
    reports_apart = True

    def __init__(self, control_plane):
        self.api = control_plane.client()
        control_plane.create_namespace("ml")

    def clear(self):
        custom = kubernetes.client.CustomObjectsApi(self.api)
        core = kubernetes.client.CoreV1Api(self.api)
        for one in KINDS.values():
            custom.delete_collection_namespaced_custom_object(
                *(one.group, one.version, "ml", one.plural), propagation_policy="Background"
            )
        deadline = time.monotonic() + 30
        while True:
            core.delete_collection_namespaced_pod("ml", grace_period_seconds=0)
            core.delete_collection_node()
            left = len(core.list_namespaced_pod("ml").items) + len(core.list_node().items)
            for one in KINDS.values():
                found = custom.list_namespaced_custom_object(
                    one.group, one.version, "ml", one.plural
                )
                left += len(found["items"])
            if not left:
                return
            assert time.monotonic() < deadline, "the namespace did not get empty"
            time.sleep(0.05)

    def run_pods(self):
        """Report of every pod what its kubelet would."""
        core = kubernetes.client.CoreV1Api(self.api)
        for pod in core.list_namespaced_pod("ml").items:
            status = {"status": {"phase": "Running"}}
            core.patch_namespaced_pod_status(pod.metadata.name, "ml", status)

    def allowed(self, body):
        """What the server sets itself may not be sent: it refuses it, or sets it anew."""
        metadata = {
            k: v for k, v in body["metadata"].items() if k not in ("uid", "resourceVersion")
        }
        metadata["labels"] = {"team": "a"}
        template = {"metadata": {"labels": {"app": "llm"}}, "spec": dict(POD)}
        return {**body, "metadata": metadata, "spec": {"template": template}, "status": {}}

    def report(self, custom, group, version, plural, body):
        """Write the status as a controller would, behind what the real job controller writes."""
        name = body["metadata"]["name"]
        deadline = time.monotonic() + 10
        while plural == "jobs" and time.monotonic() < deadline:
            now = custom.get_namespaced_custom_object(group, version, "ml", plural, name)
            if (now.get("status") or {}).get("active"):
                break
            time.sleep(0.02)
        if body["status"].get("conditions"):
            custom.patch_namespaced_custom_object_status(
                group, version, "ml", plural, name, {"status": body["status"]}
            )


@pytest.fixture(scope="module", params=["fake", REAL])
def server(request):
    if request.param == "fake":
        with fake_server() as cluster:
            yield cluster
            cluster.api.close()
    else:
        with ControlPlane() as control_plane:
            cluster = RealCluster(control_plane)
            yield cluster
            cluster.api.close()


@pytest.fixture
def cluster(server):
    server.clear()
    return server


POD = {"restartPolicy": "Never", "containers": [{"name": "train", "image": "x"}]}


FAILED = {
    "startTime": "2026-01-01T00:00:00Z",
    "conditions": [
        {
            "type": "Failed",
            "status": "True",
            "reason": "BackoffLimitExceeded",
            "lastTransitionTime": "2026-01-01T01:00:00Z",
        }
    ],
}


def job(name="llm", status=None, **metadata):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": "u1",
            "resourceVersion": "9",
            "labels": {"team": "a", "controller-uid": "u1"},
            **metadata,
        },
        "spec": {
            "selector": {"matchLabels": {"controller-uid": "u1"}},
            "template": {
                "metadata": {"labels": {"app": "llm", "controller-uid": "u1", "job-name": name}},
                "spec": dict(POD),
            },
        },
        "status": FAILED if status is None else status,
    }


@pytest.fixture
def sent(cluster, monkeypatch):
    """Whether each request that would change something asked for a dry run.

    kmock knows no dry run: for it the request is answered by what is there already.
    """
    dry, send = [], cluster.api.rest_client.request

    def request(method, url, **named):
        if method not in ("POST", "PATCH", "PUT", "DELETE"):
            return send(method, url, **named)
        dry.append("dryRun=All" in url)
        if dry[-1] and not cluster.reports_apart:
            return send("GET", url.partition("?")[0])
        return send(method, url, **named)

    monkeypatch.setattr(cluster.api.rest_client, "request", request)
    return dry


@pytest.fixture
def failed_job(cluster):
    for name in ("g1", "g2", "g3"):
        cluster.node(name)
    cluster.put("batch", "v1", "jobs", job())
    cluster.pod("llm-0", "job-name", "llm", "g1", 1)
    cluster.pod("llm-1", "job-name", "llm", "g2", 137, "OOMKilled")
    reader = KubernetesReader(cluster.api)
    return reader, KubernetesWriter(reader, cluster.api), JobRef(job="ml/Job/llm")


def test_a_failed_job_is_read_with_its_nodes_and_the_reason_of_its_kubelet(failed_job):
    reader, _, _ = failed_job
    [one] = reader.ended_badly(since=0)
    assert (one.job, one.attempt, one.state) == ("ml/Job/llm", 0, "OUT_OF_MEMORY")
    assert sorted(one.nodes) == ["g1", "g2"]
    assert [(s.exit_code, s.signal) for s in one.steps if s.state == "OUT_OF_MEMORY"] == [(137, 9)]
    assert reader.ended_badly(since=2e9) == []


def test_a_lost_node_is_what_the_scheduler_says(cluster):
    cluster.node("g1", ready="Unknown")
    cluster.put("batch", "v1", "jobs", job())
    cluster.pod("llm-0", "job-name", "llm", "g1", 1)
    reader = KubernetesReader(cluster.api)
    assert reader.attempts("ml/Job/llm")[0].state == "NODE_FAIL"
    assert [n.node for n in reader.nodes() if n.lost] == ["g1"]


@pytest.mark.parametrize(
    ("group", "version", "plural", "kind", "label"),
    [
        ("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob", "training.kubeflow.org/job-name"),
        ("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", "jobset.sigs.k8s.io/jobset-name"),
    ],
)
def test_other_kinds_of_training_jobs(cluster, group, version, plural, kind, label):
    body = {**job(), "apiVersion": f"{group}/{version}", "kind": kind}
    cluster.put(group, version, plural, body)
    cluster.pod("p", label, "llm", "g7", 1)
    [one] = KubernetesReader(cluster.api).ended_badly(since=0)
    assert (one.job, one.nodes) == (f"ml/{kind}/llm", ("g7",))


def test_a_restart_is_a_clean_copy_elsewhere_made_once(failed_job, action):
    reader, writer, ref = failed_job
    again = action(ActionKind.REQUEUE_EXCLUDING, ref.job, exclude=["g2"])
    assert writer.preconditions(again, ref) == ""
    assert writer.effect(again, ref) is Check.ABSENT
    sent = writer.next_attempt(again, ref)
    assert "status" not in sent and "selector" not in sent["spec"]
    assert "uid" not in sent["metadata"] and sent["metadata"]["labels"]["team"] == "a"
    assert sent["spec"]["template"]["metadata"]["labels"] == {"app": "llm"}
    for _ in range(2):
        writer.carry_out(again, ref, "INC-1")
    first, second = reader.chain(ref.job)
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("llm", "llm-r1")
    assert first["metadata"]["uid"] != second["metadata"].get("uid")
    template = second["spec"]["template"]
    terms = template["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert terms == [
        {
            "matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["g2"]}
            ]
        }
    ]
    assert writer.effect(again, ref) is Check.DONE
    assert "exists already" in writer.preconditions(again, ref)


def test_cordon_and_uncordon_a_node_of_the_job_only(failed_job, action):
    reader, writer, ref = failed_job
    assert "never the job's" in writer.preconditions(action(ActionKind.DRAIN, "g3"), ref)
    drain = action(ActionKind.DRAIN, "g2", reason="gpu")
    assert writer.preconditions(drain, ref) == ""
    writer.carry_out(drain, ref, "INC-1")
    assert writer.effect(drain, ref) is Check.DONE
    assert [n.node for n in reader.nodes() if n.drained] == ["g2"]
    back = action(ActionKind.UNDRAIN, "g2")
    writer.carry_out(back, ref, "INC-1")
    assert writer.effect(back, ref) is Check.DONE


def test_a_dry_run_is_tried_by_the_server_and_leaves_nothing_behind(failed_job, action, sent):
    reader, writer, ref = failed_job
    requeue = action(ActionKind.REQUEUE_EXCLUDING, "ml/Job/llm", exclude=["g2"])
    steps = (requeue, action(ActionKind.DRAIN, "g2"), action(ActionKind.CANCEL, "ml/Job/llm"))
    for step in steps:
        assert writer.rehearse(step, ref, "INC-1") == "accepted by the API server (dryRun=All)"
        assert writer.effect(step, ref) is Check.ABSENT
    assert sent and all(dry for dry in sent)
    assert [one.attempt for one in reader.attempts(ref.job)] == [0]
    with pytest.raises(ClusterError):  # what the server would refuse is refused
        writer.rehearse(action(ActionKind.DRAIN, "nowhere"), ref, "INC-1")


def test_a_running_job_is_only_ended_when_it_stalls(cluster, action):
    cluster.put("batch", "v1", "jobs", job(status={"active": 1}))
    reader = KubernetesReader(cluster.api)
    writer, ref = KubernetesWriter(reader, cluster.api), JobRef(job="ml/Job/llm")
    again = action(ActionKind.REQUEUE, ref.job)
    assert "only a stalled one" in writer.preconditions(again, ref)
    cluster.run_pods()
    assert "the job runs" in writer.preconditions(again, ref)
    stalled = action(ActionKind.REQUEUE, ref.job, running=True)
    writer.carry_out(stalled, ref, "INC-1")
    assert [one["metadata"]["name"] for one in reader.chain(ref.job)] == ["llm-r1"]


def test_a_server_that_is_away_is_worth_a_retry():
    configuration = kubernetes.client.Configuration()
    configuration.host, configuration.retries = "http://127.0.0.1:9", False
    with pytest.raises(ClusterError) as caught:
        KubernetesReader(kubernetes.client.ApiClient(configuration)).nodes()
    assert caught.value.recoverable
