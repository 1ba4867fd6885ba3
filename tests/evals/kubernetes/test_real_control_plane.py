"""Recovery on a real Kubernetes 1.20 control plane; `make kubernetes` builds it and runs this.

The job controller, access control, watches and validation are real. There are no kubelets: the tests
bind pods to nodes and report of them what a kubelet would.
"""

import time
import uuid
from pathlib import Path

import pytest
import yaml

from rerail.assistant.locate.budget import Budget
from rerail.assistant.locate.kubernetes import KubernetesLocator
from rerail.domain.job import JobRef
from rerail.domain.plan import ActionKind
from rerail.errors import ClusterError
from rerail.evals.kubernetes.control_plane import ControlPlane, cannot_run
from rerail.recovery.clusters.kubernetes_write import KubernetesWriter, may_do
from rerail.recovery.clusters.writer import Check
from rerail.tools.clusters.kubernetes_pods import PodKeeper, PodWatch
from rerail.tools.clusters.kubernetes_read import KINDS, KubernetesReader
from rerail.tools.clusters.kubernetes_watch import KindWatch

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(bool(cannot_run()), reason=cannot_run() or "it can"),
]
kubernetes = pytest.importorskip("kubernetes")
EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "kubernetes"
READER, WRITER = (f"system:serviceaccount:rerail:rerail-{face}" for face in ("reader", "writer"))


def until(ready, limit_s=30):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if found := ready():
            return found
        time.sleep(0.05)
    raise AssertionError("not reached in time")


@pytest.fixture(scope="module")
def plane():
    with ControlPlane() as one:
        one.create_namespace("ml")
        with one.client() as api:
            for name in ("g1", "g2", "g3"):
                core = kubernetes.client.CoreV1Api(api)
                core.create_node(
                    {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}
                )
                report_node(api, name, "True")
            for document in yaml.safe_load_all((EXAMPLES / "rbac.yaml").read_text()):
                kubernetes.utils.create_from_dict(api, document)
        yield one


def report_node(api, name, ready):
    status = {"conditions": [{"type": "Ready", "status": ready, "reason": "Kubelet"}]}
    kubernetes.client.CoreV1Api(api).patch_node_status(name, {"status": status})


@pytest.fixture
def api(plane):
    with plane.client() as one:
        yield one


def start_job(api, name):
    """Create a job whose only pod the real job controller makes."""
    container = {"name": "train", "image": "train:1"}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {
            "backoffLimit": 0,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }
    kubernetes.client.BatchV1Api(api).create_namespaced_job("ml", body)


def run_pod(api, job, node):
    """Bind the job's pod to a node and report that it runs, as scheduler and kubelet do."""
    core = kubernetes.client.CoreV1Api(api)
    [pod] = until(lambda: core.list_namespaced_pod("ml", label_selector=f"job-name={job}").items)
    name = pod.metadata.name
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    core.create_namespaced_binding(
        "ml", {"metadata": {"name": name}, "target": target}, _preload_content=False
    )
    core.patch_namespaced_pod_status(name, "ml", {"status": {"phase": "Running"}})
    return pod


def end_pod(api, pod, code, reason):
    container = {
        "name": "train",
        "image": "train:1",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "reason": reason}},
    }
    kubernetes.client.CoreV1Api(api).patch_namespaced_pod_status(
        pod.metadata.name, "ml", {"status": {"phase": "Failed", "containerStatuses": [container]}}
    )


def allowed(api, verb, group, resource, subresource=None):
    """SelfSubjectAccessReview: what `kubectl auth can-i --as` asks."""
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": "ml"}
    if subresource:
        attributes["subresource"] = subresource
    calls = kubernetes.client.AuthorizationV1Api(api)
    answer = calls.create_self_subject_access_review({"spec": {"resourceAttributes": attributes}})
    return bool(answer.status.allowed)


def test_the_example_roles_allow_what_is_needed_and_nothing_else(plane):
    kinds = [(one.group, one.plural) for one in KINDS.values()]
    reads = {(verb, *kind) for kind in kinds for verb in ("get", "list", "watch")}
    reads |= {(verb, "", what) for what in ("pods", "nodes") for verb in ("get", "list")}
    reads |= {("watch", "", "pods"), ("watch", "", "nodes")}
    writes = {("patch", "", "nodes")} | {
        (verb, *kind) for kind in kinds for verb in ("create", "delete")
    }
    never = {
        *(
            ("get", "", "secrets"),
            ("create", "", "pods"),
            ("delete", "", "pods"),
            ("delete", "", "nodes"),
        ),
        *(
            ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
            ("impersonate", "", "users"),
        ),
        *(("patch", *kind) for kind in kinds),
    }
    with plane.client(READER) as reader, plane.client(WRITER) as writer:
        wanted = {(one, reader): one in reads for one in reads | writes | never}
        wanted |= {(one, writer): one in reads | writes for one in reads | writes | never}
        wrong = [
            (one, who is writer)
            for (one, who), may in wanted.items()
            if allowed(who, *one) is not may
        ]
        assert wrong == []
        for who in (reader, writer):
            assert allowed(who, "get", "", "pods", "log")
            assert not allowed(who, "create", "", "pods", "exec")
        assert may_do(reader) == []
        assert may_do(writer) == ["cordon nodes", "create jobs", "delete jobs"]


def test_the_example_deployment_is_valid(api):
    deployment = yaml.safe_load((EXAMPLES / "watch.yaml").read_text())
    apps = kubernetes.client.AppsV1Api(api)
    made = apps.create_namespaced_deployment("rerail", deployment, dry_run="All")
    assert made.spec.template.spec.service_account_name == "rerail-writer"


def test_a_job_killed_for_memory_goes_on_elsewhere_under_the_two_identities(plane, api, action):
    start_job(api, "llm")
    pod = run_pod(api, "llm", "g1")
    end_pod(api, pod, 137, "OOMKilled")
    job = JobRef(job="ml/Job/llm")
    with plane.client(READER) as reading, plane.client(WRITER) as writing:
        reader = KubernetesReader(reading)
        # BackoffLimitExceeded, said by the real job controller
        [lost] = until(lambda: reader.ended_badly(since=0))
        assert (lost.state, lost.nodes) == ("OUT_OF_MEMORY", ("g1",))
        again = action(ActionKind.REQUEUE_EXCLUDING, job.job, exclude=["g1"])
        with pytest.raises(ClusterError, match="403") as refused:
            KubernetesWriter(reader, reading).carry_out(again, job, "INC-1")
        assert not refused.value.recoverable
        writer = KubernetesWriter(reader, writing)
        assert writer.preconditions(again, job) == ""
        for _ in range(2):
            writer.carry_out(again, job, "INC-1")
        assert [one["metadata"]["name"] for one in reader.chain(job.job)] == ["llm", "llm-r1"]
        assert writer.running_elsewhere(again, job) is Check.PENDING
        made = run_pod(api, "llm-r1", "g2")
        term = made.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
        [wanted] = term.node_selector_terms[0].match_expressions
        assert (wanted.key, wanted.operator, wanted.values) == (
            "kubernetes.io/hostname",
            "NotIn",
            ["g1"],
        )
        assert until(lambda: writer.running_elsewhere(again, job) is Check.DONE)
        drain = action(ActionKind.DRAIN, "g1", reason="gpu")
        writer.carry_out(drain, job, "INC-1")
        assert writer.effect(drain, job) is Check.DONE
        writer.carry_out(action(ActionKind.UNDRAIN, "g1"), job, "INC-1")
        assert not reader.nodes(["g1"])[0].drained


def test_the_watch_hears_at_once_resumes_and_lists_anew_when_the_server_has_forgotten(plane, api):
    heard = []
    with plane.client(READER) as reading:
        watch = KindWatch(
            KubernetesReader(reading, namespace="ml"), "Job", heard.append, stream_s=2
        )
        watch.once()
        before = watch.version
        heard.clear()

        def fail(name):
            start_job(api, name)
            end_pod(api, run_pod(api, name, "g3"), 1, "Error")
            batch = kubernetes.client.BatchV1Api(api)
            until(lambda: batch.read_namespaced_job(name, "ml").status.conditions)

        fail("resumed")  # nobody listens meanwhile
        watch.once()
        assert {one.job for one in heard} == {"ml/Job/resumed"}
        assert (watch.lists, int(watch.version) > int(before)) == (1, True)
        heard.clear()
        fail("forgotten")
        plane.compact()
        watch.once()
        assert (watch.version, heard) == ("", [])  # 410 Gone
        watch.once()
        assert "ml/Job/forgotten" in {one.job for one in heard}
        assert watch.lists == 2


def test_the_node_of_a_failed_pod_is_known_after_the_pod_is_gone(plane, api, tmp_path):
    with plane.client(READER) as reading:
        reader = KubernetesReader(reading, namespace="ml")
        keeper = PodKeeper(tmp_path / "pods")
        watch = PodWatch(reader, "Pod", print, keeper=keeper, stream_s=2)
        watch.once()
        start_job(api, "swept")
        pod = run_pod(api, "swept", "g3")
        end_pod(api, pod, 1, "Error")
        batch = kubernetes.client.BatchV1Api(api)
        until(lambda: batch.read_namespaced_job("swept", "ml").status.conditions)
        watch.once()  # goes on from the version of before: the real server tells what happened
        core = kubernetes.client.CoreV1Api(api)
        core.delete_namespaced_pod(pod.metadata.name, "ml", grace_period_seconds=0)
        assert reader.attempts("ml/Job/swept")[0].nodes == ()
        reader.kept = keeper
        [attempt] = reader.attempts("ml/Job/swept")
        assert (attempt.nodes, attempt.exit_code, watch.lists) == (("g3",), 1, 1)


@pytest.mark.parametrize("first", ["node", "pod", "long before the node"])
def test_a_lost_node_is_cordoned_and_its_job_goes_on_elsewhere_by_itself(
    plane, api, tmp_path, first
):
    """Whether the node or the pod is reported first is chance; what is done is the same."""
    from rerail.assistant.watch.daemon import Daemon
    from rerail.assistant.watch.site import Site
    from rerail.knowledge_base.store.engine import open_store
    from rerail.recovery.site_policy import SitePolicy
    from rerail.settings import Settings

    policy = {
        "dry_run": False,
        "rules": [{"id": "lost", "states": ["NODE_FAIL"], "mode": "auto-low"}],
        "jobs": {"group_wait_s": 0.0},
    }
    settings = Settings(data_dir=tmp_path, scheduler="kubernetes")
    identity = plane.client(WRITER)
    site = Site(settings, SitePolicy.model_validate(policy), tmp_path, KubernetesReader(identity))
    engine = open_store(settings)
    said = []
    # Polling would hear of it after an hour: what is heard here came through the streams.
    daemon = Daemon(site, engine, said.append, poll_s=3600.0)
    daemon.round()
    daemon.stream.start()
    big = f"big-{uuid.uuid4().hex[:8]}"
    reader = KubernetesReader(api)
    try:
        start_job(api, big)
        pod = run_pod(api, big, "g3")
        if first == "node":
            report_node(api, "g3", "Unknown")
        end_pod(api, pod, 137, "Error")
        if first == "long before the node":  # a plan was made, and nothing in it
            until(lambda: daemon.round() and any("plan P-" in line for line in said))
        if first != "node":
            report_node(api, "g3", "Unknown")

        def cordoned():
            daemon.round()
            return reader.nodes(["g3"])[0].drained

        until(cordoned)
        [again] = until(lambda: (daemon.round(), reader.chain(f"ml/Job/{big}")[1:])[1])
        run_pod(api, again["metadata"]["name"], "g2")
        until(lambda: "g2" in reader.attempts(f"ml/Job/{big}")[-1].nodes)
    finally:
        daemon.stream.end()
        engine.dispose()
        report_node(api, "g3", "True")
        kubernetes.client.CoreV1Api(api).patch_node("g3", {"spec": {"unschedulable": False}})
        identity.close()
    wanted = ("drain g3", f"requeue_excluding ml/Job/{big}")
    assert any(all(one in line for one in wanted) for line in said), said


def test_a_job_is_found_by_its_name_with_its_events_and_the_missing_log_is_told(plane, api):
    start_job(api, "found")
    pod = run_pod(api, "found", "g2")
    end_pod(api, pod, 137, "OOMKilled")
    until(lambda: KubernetesReader(api).ended_badly(since=0))
    with plane.client(READER) as reading:
        locator = KubernetesLocator(reading)
        found = locator.locate("ml/found", None, Budget(20.0))
        assert (found.job, found.attempt) == ("ml/Job/found", 0)
        described, log = found.items[:2]
        text = locator.open(described).read().decode()
        assert (described.node, "OOMKilled" in text) == ("g2", True)
        # There is no kubelet to ask for the log.
        with pytest.raises(ClusterError):
            locator.open(log)
