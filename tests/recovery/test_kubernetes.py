"""The Kubernetes adapter with the official client, against kmock, a fake API server.

kmock keeps objects and knows no controllers, so what controllers would do is written by the tests.
"""

import asyncio
import threading

import pytest

from rerail.domain.job import JobRef
from rerail.domain.plan import ActionKind, PlannedAction, Risk
from rerail.errors import ClusterError
from rerail.recovery.clusters.kubernetes_write import KubernetesWriter
from rerail.recovery.clusters.writer import Check
from rerail.tools.clusters.kubernetes_read import KubernetesReader

kmock = pytest.importorskip("kmock")
kubernetes = pytest.importorskip("kubernetes")
RESOURCES = (
    *("v1/nodes", "v1/pods", "batch/v1/jobs", "kubeflow.org/v1/pytorchjobs"),
    *("kubeflow.org/v2beta1/mpijobs", "jobset.x-k8s.io/v1alpha2/jobsets", "ray.io/v1/rayjobs"),
)


@pytest.fixture(scope="module")
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
    yield box
    box["loop"].call_soon_threadsafe(box["stop"].set)
    thread.join(10)


@pytest.fixture
def api(fake_server):
    emulator = fake_server["emulator"]
    for key in list(emulator.objects):
        del emulator.objects[key]
    for name in RESOURCES:
        emulator.resources[name] = {}
    configuration = kubernetes.client.Configuration()
    configuration.host = fake_server["url"].rstrip("/")
    client = kubernetes.client.ApiClient(configuration)
    yield client
    client.close()


def put(api, group, version, plural, body):
    custom = kubernetes.client.CustomObjectsApi(api)
    custom.create_namespaced_custom_object(group, version, "ml", plural, body)


def node(api, name, ready="True"):
    body = {
        "metadata": {"name": name},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "Kubelet"}]},
    }
    kubernetes.client.CoreV1Api(api).create_node(body)


def pod(api, name, label, job, on, code, reason="Error"):
    body = {
        "metadata": {"name": name, "namespace": "ml", "labels": {label: job}},
        "spec": {"nodeName": on, "containers": [{"name": "train"}]},
        "status": {
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
        },
    }
    kubernetes.client.CoreV1Api(api).create_namespaced_pod("ml", body)


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
                "spec": {"containers": [{"name": "train", "image": "x"}]},
            },
        },
        "status": FAILED if status is None else status,
    }


@pytest.fixture
def failed_job(api):
    for name in ("g1", "g2", "g3"):
        node(api, name)
    put(api, "batch", "v1", "jobs", job())
    pod(api, "llm-0", "job-name", "llm", "g1", 1)
    pod(api, "llm-1", "job-name", "llm", "g2", 137, "OOMKilled")
    reader = KubernetesReader(api)
    return reader, KubernetesWriter(reader, api), JobRef(job="ml/Job/llm")


def action(kind, target="", **parameters):
    return PlannedAction(
        step=1,
        kind=kind,
        target=target,
        parameters=parameters,
        risk=Risk.LOW,
        reversible=True,
        because="b",
        needs_approval=False,
    )


def test_a_failed_job_is_read_with_its_nodes_and_the_reason_of_its_kubelet(failed_job):
    reader, _, _ = failed_job
    [one] = reader.ended_badly(since=0)
    assert (one.job, one.attempt, one.state) == ("ml/Job/llm", 0, "OUT_OF_MEMORY")
    assert sorted(one.nodes) == ["g1", "g2"]
    assert [(s.exit_code, s.signal) for s in one.steps if s.state == "OUT_OF_MEMORY"] == [(137, 9)]
    assert reader.ended_badly(since=2e9) == []


def test_a_lost_node_is_what_the_scheduler_says(api):
    node(api, "g1", ready="Unknown")
    put(api, "batch", "v1", "jobs", job())
    pod(api, "llm-0", "job-name", "llm", "g1", 1)
    reader = KubernetesReader(api)
    assert reader.attempts("ml/Job/llm")[0].state == "NODE_FAIL"
    assert [n.node for n in reader.nodes() if n.lost] == ["g1"]


@pytest.mark.parametrize(
    ("group", "version", "plural", "kind", "label"),
    [
        ("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob", "training.kubeflow.org/job-name"),
        ("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", "jobset.sigs.k8s.io/jobset-name"),
    ],
)
def test_other_kinds_of_training_jobs(api, group, version, plural, kind, label):
    body = {**job(), "apiVersion": f"{group}/{version}", "kind": kind}
    put(api, group, version, plural, body)
    pod(api, "p", label, "llm", "g7", 1)
    [one] = KubernetesReader(api).ended_badly(since=0)
    assert (one.job, one.nodes) == (f"ml/{kind}/llm", ("g7",))


def test_a_restart_is_a_clean_copy_elsewhere_made_once(failed_job):
    reader, writer, ref = failed_job
    again = action(ActionKind.REQUEUE_EXCLUDING, ref.job, exclude=["g2"])
    assert writer.preconditions(again, ref) == ""
    assert writer.effect(again, ref) is Check.ABSENT
    for _ in range(2):
        writer.carry_out(again, ref, "INC-1")
    first, second = reader.chain(ref.job)
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("llm", "llm-r1")
    assert "status" not in second and "selector" not in second["spec"]
    assert "uid" not in second["metadata"] and second["metadata"]["labels"]["team"] == "a"
    template = second["spec"]["template"]
    assert template["metadata"]["labels"] == {"app": "llm"}
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


def test_cordon_and_uncordon_a_node_of_the_job_only(failed_job):
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


def test_a_running_job_is_only_ended_when_it_stalls(api):
    put(api, "batch", "v1", "jobs", job(status={"active": 1}))
    reader = KubernetesReader(api)
    writer, ref = KubernetesWriter(reader, api), JobRef(job="ml/Job/llm")
    assert "runs" in writer.preconditions(action(ActionKind.REQUEUE, ref.job), ref)
    stalled = action(ActionKind.REQUEUE, ref.job, running=True)
    writer.carry_out(stalled, ref, "INC-1")
    assert [one["metadata"]["name"] for one in reader.chain(ref.job)] == ["llm-r1"]


def test_a_server_that_is_away_is_worth_a_retry(api):
    api.configuration.host = "http://127.0.0.1:9"
    api.configuration.retries = False
    with pytest.raises(ClusterError) as caught:
        KubernetesReader(kubernetes.client.ApiClient(api.configuration)).nodes()
    assert caught.value.recoverable
