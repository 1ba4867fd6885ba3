"""A job by its name on a real Kubernetes 1.20 control plane: every kind, logs through the API server, refusals.

Objects, labels, access control, events and the way to a log are the server's; the kubelet at its end is a double,
and what the operators of the training kinds would create is created by the tests.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
import yaml

from rerail.assistant import follow
from rerail.assistant.locate import live as live_module
from rerail.assistant.locate.budget import TimeIsUp
from rerail.assistant.locate.gather import gather
from rerail.assistant.locate.job_name import job_name
from rerail.assistant.locate.kubernetes import KubernetesLocator
from rerail.assistant.locate.live import LiveJob
from rerail.assistant.pipeline import diagnose_paths
from rerail.errors import ClusterError
from rerail.evals.kubernetes.control_plane import ControlPlane, cannot_run
from rerail.evals.kubernetes.kubelet_double import KubeletDouble
from rerail.tools.clusters.kubernetes_read import READABLE

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(bool(cannot_run()), reason=cannot_run() or "it can"),
]
kubernetes = pytest.importorskip("kubernetes")
EXAMPLES = Path(__file__).parents[3] / "docs" / "examples" / "kubernetes"
READER = "system:serviceaccount:rerail:rerail-reader"
OOM = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
RERAIL = "from rerail.assistant.cli.main import main; main()"


@pytest.fixture(scope="module")
def kubelet(tmp_path_factory):
    with KubeletDouble(tmp_path_factory.mktemp("kubelet")) as one:
        yield one


@pytest.fixture(scope="module")
def plane(kubelet):
    with ControlPlane() as one:
        one.create_namespace("ml")
        with one.client() as api:
            core = kubernetes.client.CoreV1Api(api)
            core.create_node({"metadata": {"name": "g7"}})
            ready = {"conditions": [{"type": "Ready", "status": "True", "reason": "Kubelet"}]}
            core.patch_node_status("g7", {"status": ready | kubelet.status()})
            for document in yaml.safe_load_all((EXAMPLES / "rbac.yaml").read_text()):
                kubernetes.utils.create_from_dict(api, document)
        yield one


@pytest.fixture
def core(plane):
    with plane.client() as api:
        yield kubernetes.client.CoreV1Api(api)


@pytest.fixture
def job(plane, core):
    """Create an object of a kind with one pod, as its operator labels it; returns the name of both."""

    def make(kind="PyTorchJob"):
        one, name = READABLE[kind], f"j{uuid.uuid4().hex[:8]}"
        container = {"name": "train", "image": "train:1"}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        with plane.client() as api:
            kubernetes.client.CustomObjectsApi(api).create_namespaced_custom_object(
                one.group, one.version, "ml", one.plural,
                {
                    "apiVersion": f"{one.group}/{one.version}", "kind": kind, "metadata": {"name": name},
                    "spec": {"backoffLimit": 0, "template": template} if kind == "Job" else {},
                },
            )  # fmt: skip
        if kind != "Job":  # those of a Job the real job controller makes
            core.create_namespaced_pod(
                "ml",
                {"metadata": {"name": f"{name}-0", "labels": {one.pod_label: name}}, **template},
            )
        label = f"{one.pod_label}={name}"
        deadline = time.monotonic() + 60
        while not (pods := core.list_namespaced_pod("ml", label_selector=label).items):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        pod = pods[0].metadata.name
        core.create_namespaced_binding(
            "ml",
            {
                "metadata": {"name": pod},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "g7"},
            },
            _preload_content=False,
        )
        return name, pod

    return make


def report(core, pod, *, restarts=0, ended=False):
    state = {"terminated": {"exitCode": 1, "reason": "Error"}} if ended else {"running": {}}
    last = {"lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}} if restarts else {}
    own = {"name": "train", "image": "train:1", "imageID": "", "ready": False, "restartCount": restarts, "state": state}  # fmt: skip
    phase = "Failed" if ended else "Running"
    core.patch_namespaced_pod_status(
        pod, "ml", {"status": {"phase": phase, "containerStatuses": [own | last]}}
    )


@pytest.fixture
def look(plane, monkeypatch):
    def run(name, seconds=20.0, who=READER):
        api = plane.client(who)
        monkeypatch.setattr(
            "rerail.assistant.locate.locator.BUILT_IN", (("k8s", lambda: KubernetesLocator(api)),)
        )
        return gather(job_name(f"k8s://ml/{name}"), seconds)

    return run


def problems(found):
    return " | ".join(f"{one.subject}: {one.why}" for one in found.evidence.problems)


@pytest.mark.parametrize("kind", list(READABLE))
def test_the_pods_of_every_kind_are_found_and_their_logs_read(kind, job, look, core, kubelet):
    name, pod = job(kind)
    report(core, pod)
    kubelet.logs[pod, "train", False] = OOM
    with look(name) as found:
        diagnosis = diagnose_paths([], located=found.evidence).diagnosis
    assert found.job == f"ml/{kind}/{name}"
    assert diagnosis.failure_type == "cuda_oom"
    assert diagnosis.first_fault.file == f"k8s://ml/pods/{pod}/train.log"
    assert diagnosis.first_fault.node == "g7"


def test_a_restarted_container_is_read_as_it_was_before(job, look, core, kubelet):
    name, pod = job()
    report(core, pod, restarts=1)
    kubelet.logs[pod, "train", True] = OOM
    kubelet.logs[pod, "train", False] = "starting\n"
    with look(name) as found:
        diagnosis = diagnose_paths([], located=found.evidence).diagnosis
    assert (pod, "train", True) in kubelet.asked
    assert diagnosis.first_fault.file == f"k8s://ml/pods/{pod}/train.previous.log"


def test_events_of_pod_and_job_are_evidence_and_a_refused_log_is_told(job, look, core, kubelet):
    name, pod = job()
    report(core, pod, ended=True)
    for about, message in ((pod, "Liveness probe failed"), (name, "gave up")):
        core.create_namespaced_event(
            "ml",
            {
                "metadata": {"generateName": "e"},
                "involvedObject": {"name": about, "namespace": "ml"},
                "type": "Warning", "reason": "Unhealthy", "message": message,
            },
        )  # fmt: skip
    with look(name) as found:
        texts = {one.name: one.path.read_text() for one in found.evidence.sources}
    assert "Liveness probe failed" in texts[f"kubectl describe pod {pod} -n ml"]
    assert "gave up" in texts["kubectl get events -n ml"]
    assert f"log of {pod}/train" in problems(found)


def test_without_rights_it_is_said_what_was_refused(plane, job, look, core):
    name, pod = job()
    report(core, pod)
    with pytest.raises(ClusterError, match=r"cannot get resource.*\(403\)"):
        look(name, who="system:serviceaccount:ml:default")
    # One that may read the job and its pods, and neither logs nor events.
    role = f"some-{uuid.uuid4().hex[:6]}"
    with plane.client() as api:
        rules = [
            {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        ]
        kubernetes.client.RbacAuthorizationV1Api(api).create_cluster_role(
            {"metadata": {"name": role}, "rules": rules}
        )
        kubernetes.client.RbacAuthorizationV1Api(api).create_cluster_role_binding(
            {
                "metadata": {"name": role},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": role, "apiGroup": "rbac.authorization.k8s.io"}],
            }
        )  # fmt: skip
    with look(name, who=role) as found:
        assert [one.name for one in found.evidence.sources] == [f"kubectl describe pod {pod} -n ml"]
    assert "events of ml: Kubernetes: list event" in problems(found)
    assert "log of" in problems(found)
    assert "403" in problems(found)


def test_a_node_that_does_not_answer_costs_its_share(job, look, core, kubelet):
    name, pod = job()
    report(core, pod)
    hung = kubelet.logs[pod, "train", False] = threading.Event()
    began = time.monotonic()
    with look(name, seconds=4.0) as found:
        pass
    hung.set()
    assert "no answer within" in problems(found) or "no answer in time" in problems(found)
    assert time.monotonic() - began < 60  # and not the five minutes of the double


def test_a_server_that_hangs_ends_the_search_at_the_budget(plane, job, look):
    name, _ = job()
    server = plane._children["kube-apiserver"]
    server.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises((TimeIsUp, ClusterError)):
            look(name, seconds=2.0)
    finally:
        server.send_signal(signal.SIGCONT)


def test_the_command_finds_the_job_with_the_usual_configuration(
    plane, job, core, kubelet, tmp_path
):
    name, pod = job()
    report(core, pod)
    kubelet.logs[pod, "train", False] = OOM
    done = subprocess.run(
        [sys.executable, "-c", RERAIL, "diagnose", "--json", "--no-model", f"k8s://ml/{name}"],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300,
        env={**os.environ, "KUBECONFIG": str(plane.kubeconfig()), "RERAIL_DATA_DIR": str(tmp_path / "data")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["failure_type"] == "cuda_oom"


def test_a_running_job_is_followed_to_its_end(plane, job, core, kubelet, monkeypatch, capsys):
    name, pod = job("Job")
    report(core, pod)
    kubelet.logs[pod, "train", False] = "step 1 loss 2.0\nstep 2 loss 1.9\n"
    reading = plane.client(READER)
    monkeypatch.setattr(
        "rerail.assistant.locate.locator.BUILT_IN", (("k8s", lambda: KubernetesLocator(reading)),)
    )
    monkeypatch.setattr(live_module, "LOOKS_BETWEEN", 1)

    def prints():
        kubelet.logs[pod, "train", False] += OOM

    def ends():
        report(core, pod, ended=True)

    todo = iter((prints, ends))
    monkeypatch.setattr(
        follow.time, "sleep", lambda _: next(todo, lambda: threading.Event().wait(0.5))()
    )
    with LiveJob(job_name(f"k8s://ml/{name}"), 20.0) as one:
        code = follow.follow_command([], json_output=False, quiet=True, polls=60, job=one)
    assert (code, one.state, one.ended) == (0, "FAILED", True)
    assert "cuda_oom" in capsys.readouterr().out
