"""A job on Kubernetes through the official client, against a server that answers as the API does."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from rerail.assistant.locate.gather import gather
from rerail.assistant.locate.job_name import job_name
from rerail.assistant.locate.kubernetes import KubernetesLocator
from rerail.assistant.pipeline import diagnose_paths
from rerail.errors import ClusterError, EvidenceError, UsageError
from rerail.tools.clusters.kubernetes_read import READABLE
from rerail.tools.clusters.kubernetes_tries import tries_of

kubernetes = pytest.importorskip("kubernetes")
OOM = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def pod(name, label, job, node="g1", restarts=0, reason="Error"):
    ended = {"terminated": {"exitCode": 1, "reason": reason}}
    own = {"name": "train", "restartCount": restarts, "state": ended, "lastState": ended}
    return {
        "metadata": {"name": name, "namespace": "ml", "labels": {label: job}},
        "spec": {"nodeName": node, "containers": [{"name": "train"}]},
        "status": {"phase": "Failed", "containerStatuses": [own]},
    }


class Server:
    """Paths to answers: an object is sent as JSON, a text as it is, a number as a refusal, an event is waited for."""

    def __init__(self):
        self.answers, self.asked, self.pods, self.events = {}, [], [], []

    def answer(self, url):
        parts = urlsplit(url)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.asked.append(url)
        if parts.path.endswith("/pods"):
            label, _, value = query["labelSelector"].partition("=")
            chosen = [p for p in self.pods if p["metadata"]["labels"].get(label) == value]
            return {"items": chosen}
        if parts.path.endswith("/events"):
            return {"items": self.events} if isinstance(self.events, list) else self.events
        if parts.path.endswith("/log"):
            key = parts.path.split("/")[-2] + (
                ".previous" if query.get("previous", "").lower() == "true" else ""
            )
            return self.answers.get(key, "")
        return self.answers.get(parts.path, 404)

    def put(self, kind, name="llm", owner=None):
        one = READABLE[kind]
        facts = {"name": name, "namespace": "ml"} | ({"ownerReferences": [owner]} if owner else {})
        self.answers[f"/apis/{one.group}/{one.version}/namespaces/ml/{one.plural}/{name}"] = {
            "metadata": facts
        }


@pytest.fixture
def server():
    made = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            found = made.answer(self.path)
            if isinstance(found, threading.Event):
                found.wait(300)
                found = ""
            refused = isinstance(found, int)
            body = found if isinstance(found, str) else json.dumps({} if refused else found)
            self.send_response(found if refused else 200)
            self.send_header(
                "Content-Type", "text/plain" if isinstance(found, str) else "application/json"
            )
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *ignored):
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    listening.block_on_close = False
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    configuration = kubernetes.client.Configuration()
    configuration.host = f"http://127.0.0.1:{listening.server_port}"
    configuration.retries = False
    made.api = kubernetes.client.ApiClient(configuration)
    yield made
    listening.shutdown()
    listening.server_close()


def look(server, text="k8s://ml/llm", seconds=20.0, attempt=None):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "rerail.assistant.locate.locator.BUILT_IN",
            (("k8s", lambda: KubernetesLocator(server.api)),),
        )
        return gather(job_name(text), seconds, attempt)


def why(found, word):
    return " ".join(f"{p.subject} {p.why}" for p in found.evidence.problems if word in p.subject)


KINDS = {
    "Job": ("batch/v1", "job-name"),
    "JobSet": ("jobset.x-k8s.io/v1alpha2", "jobset.sigs.k8s.io/jobset-name"),
    "PyTorchJob": ("kubeflow.org/v1", "training.kubeflow.org/job-name"),
    "MPIJob": ("kubeflow.org/v2beta1", "training.kubeflow.org/job-name"),
    "RayJob": ("ray.io/v1", "ray.io/originated-from-cr-name"),
    "TrainJob": ("trainer.kubeflow.org/v1alpha1", "jobset.sigs.k8s.io/jobset-name"),
}


def test_the_kinds_and_their_labels_are_those_of_their_operators():
    known = {kind: (f"{one.group}/{one.version}", one.pod_label) for kind, one in READABLE.items()}
    assert known == KINDS


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_pods_of_every_kind_are_found_by_its_label(server, kind):
    server.put(kind)
    server.pods = [
        pod("llm-0", READABLE[kind].pod_label, "llm", node="g7"),
        pod("other-0", READABLE[kind].pod_label, "other"),
    ]
    server.answers["llm-0"] = OOM
    with look(server) as found:
        diagnosis = diagnose_paths([], located=found.evidence).diagnosis
    assert diagnosis.failure_type == "cuda_oom"
    assert diagnosis.first_fault.file == "k8s://ml/pods/llm-0/train.log"
    assert diagnosis.first_fault.node == "g7"
    assert found.job == f"ml/{kind}/llm"
    assert not any("other-0" in one for one in server.asked)


def test_a_job_without_pods_is_told_with_the_command_that_shows_them(server):
    server.put("Job")
    server.events = [{"involvedObject": {"name": "llm"}, "reason": "DeadlineExceeded"}]
    with look(server) as found:
        assert "removed with the job" in why(found, "pods of ml/llm")
        (hint,) = [one.hint for one in found.evidence.problems if "pods of" in one.subject]
    assert hint == "kubectl get pods -n ml -l job-name=llm"


def test_each_attempt_is_an_object_of_its_own(server):
    server.put("Job")
    server.pods = [pod("llm-0", "job-name", "llm")]
    with look(server, attempt=0) as found:
        assert found.attempt == 0
    with pytest.raises(UsageError, match="ml/llm is attempt 0"):
        look(server, attempt=1)


def test_a_restarted_container_is_read_as_it_was_before(server):
    server.put("Job")
    server.pods = [pod("llm-0", "job-name", "llm", restarts=3)]
    server.answers["llm-0.previous"] = OOM
    with look(server) as found:
        diagnosis = diagnose_paths([], located=found.evidence).diagnosis
    assert diagnosis.first_fault.file == "k8s://ml/pods/llm-0/train.previous.log"


def test_events_and_states_are_evidence_where_no_log_is(server):
    server.put("Job")
    server.pods = [pod("llm-0", "job-name", "llm", reason="OOMKilled")]
    server.answers["llm-0"] = 404
    server.events = [
        {
            "involvedObject": {"name": "llm"},
            "type": "Warning",
            "reason": "BackoffLimitExceeded",
            "message": "Job has reached the specified backoff limit",
        }
    ]
    with look(server) as found:
        diagnosis = diagnose_paths([], located=found.evidence).diagnosis
    assert diagnosis.failure_type == "cgroup_oom_kill"
    assert diagnosis.first_fault.node == "g1"
    assert "log of llm-0/train" in why(found, "train.log")
    assert any(one.name == "kubectl get events -n ml" for one in found.evidence.sources)


def test_what_a_launcher_prints_is_not_of_its_node(server):
    server.put("MPIJob")
    label = "training.kubeflow.org/job-name"
    starts = pod("llm-x7k", label, "llm", node="cpu-1")
    starts["metadata"]["labels"]["training.kubeflow.org/job-role"] = "launcher"
    works = pod("llm-worker-0", label, "llm", node="g2")
    server.pods = [starts, works]
    server.answers["llm-x7k"] = "[1,0]<stderr>:RuntimeError: CUDA error: uncorrectable ECC error\n"
    server.answers["llm-worker-0"] = "Server listening on 0.0.0.0 port 2222.\n"
    with look(server) as found:
        nodes = {one.name: one.origin.node for one in found.evidence.sources}
    assert nodes["k8s://ml/pods/llm-x7k/train.log"] is None
    assert nodes["k8s://ml/pods/llm-worker-0/train.log"] == "g2"


def test_events_of_a_pod_stand_with_its_state_and_refused_ones_are_told(server):
    server.put("Job")
    server.pods = [pod("llm-0", "job-name", "llm"), pod("llm-1", "job-name", "llm")]
    about = {"involvedObject": {"name": "llm-1"}, "type": "Warning", "reason": "Evicted"}
    server.events = [about | {"message": "The node was low on resource: memory."}]
    with look(server) as found:
        texts = {one.name: one.path.read_text() for one in found.evidence.sources}
    assert "low on resource" in texts["kubectl describe pod llm-1 -n ml"]
    assert "low on resource" not in texts["kubectl describe pod llm-0 -n ml"]
    server.events = 403
    with look(server) as found:
        assert "kubectl describe pod llm-1 -n ml" in [one.name for one in found.evidence.sources]
    assert "403" in why(found, "events of ml")


def test_of_objects_of_one_name_the_owner_is_the_job(server):
    server.put("JobSet", owner={"kind": "TrainJob", "name": "llm"})
    server.put("TrainJob")
    server.pods = [pod("llm-0", "jobset.sigs.k8s.io/jobset-name", "llm")]
    server.answers["llm-0"] = OOM
    with look(server) as found:
        assert found.job == "ml/TrainJob/llm"
    server.put("PyTorchJob")
    with pytest.raises(UsageError, match="PyTorchJob and of a TrainJob"):
        look(server)
    with look(server, "k8s://ml/trainjob/llm") as found:
        assert found.job == "ml/TrainJob/llm"


def test_no_job_no_pods_no_rights(server):
    with pytest.raises(EvidenceError, match="no training job ml/llm"):
        look(server)
    server.put("Job")
    server.events = 403
    with pytest.raises(EvidenceError, match="pods of ml/llm"):
        look(server)
    path = next(iter(server.answers))
    server.answers[path] = 403
    with pytest.raises(ClusterError, match="403"):
        look(server, "k8s://ml/Job/llm")


def test_a_log_that_hangs_costs_its_share_and_the_others_are_read(server):
    server.put("Job")
    server.pods = [pod(name, "job-name", "llm") for name in ("llm-0", "llm-1")]
    hung = server.answers["llm-0"] = threading.Event()
    server.answers["llm-1"] = OOM
    with look(server, seconds=4.0) as found:
        diagnosis = diagnose_paths([], located=found.evidence).diagnosis
    hung.set()
    assert diagnosis.first_fault.file == "k8s://ml/pods/llm-1/train.log"
    assert why(found, "llm-0/train.log")


def test_a_log_that_is_too_long_is_cut_and_that_is_told(server, monkeypatch):
    monkeypatch.setattr("rerail.assistant.locate.gather.MOST_COPIED_BYTES", 3 << 20)
    server.put("Job")
    server.pods = [pod("llm-0", "job-name", "llm")]
    server.answers["llm-0"] = OOM + "x\n" * (2 << 20)
    with look(server) as found:
        sizes = {one.name: one.size for one in found.evidence.sources}
    assert sizes["k8s://ml/pods/llm-0/train.log"] == 3 << 20
    assert "only its first 3 MiB were read" in why(found, "train.log")


@pytest.mark.parametrize("kind", ["", "Job/"])
def test_a_server_that_takes_the_call_and_stays_silent_does_not_answer(server, kind):
    server.put("Job")
    hung = threading.Event()
    server.answers |= {
        f"/apis/{one.group}/{one.version}/namespaces/ml/{one.plural}/llm": hung
        for one in READABLE.values()
    }
    with pytest.raises(ClusterError) as error:
        look(server, f"k8s://ml/{kind}llm", seconds=1.0)
    hung.set()
    assert error.value.exit_code == 75 and error.value.recoverable


@pytest.mark.parametrize("answer", [410, 429, 500, 503])
def test_a_server_that_refuses_for_now_is_told_with_its_number(server, answer):
    server.put("Job")
    path = next(iter(server.answers))
    server.answers[path] = answer
    with pytest.raises(ClusterError, match=str(answer)) as error:
        look(server, "k8s://ml/Job/llm")
    assert error.value.recoverable is (answer != 410)


def test_a_lost_call_is_put_into_words(server):
    server.put("Job")
    server.pods = [pod("llm-0", "job-name", "llm")]
    hung = server.answers["llm-0"] = threading.Event()
    with look(server, seconds=8.0) as found:
        pass
    hung.set()
    assert "no answer" in why(found, "train.log")
    server.api.configuration.host = "http://127.0.0.1:1"
    with pytest.raises(ClusterError, match=r"no connection|no answer"):
        look(server, "k8s://ml/Job/llm")


def test_a_kind_is_asked_for_in_each_version_that_operators_serve(server):
    server.answers["/apis/kubeflow.org/v1/namespaces/ml/mpijobs/llm"] = {
        "metadata": {"name": "llm", "namespace": "ml"}
    }
    server.pods = [pod("llm-launcher", READABLE["MPIJob"].pod_label, "llm")]
    server.answers["llm-launcher"] = OOM
    with look(server) as found:
        assert found.job == "ml/MPIJob/llm"
        assert any("llm-launcher" in one.name for one in found.evidence.sources)


@pytest.mark.parametrize(("pages", "whole"), [(3, True), (99, False)])
def test_events_are_asked_for_page_by_page_and_what_is_left_is_told(server, pages, whole):
    server.put("Job")
    server.pods = [pod("llm-0", "job-name", "llm")]
    server.answers["llm-0"] = OOM
    about = {"kind": "Pod", "name": "llm-0", "namespace": "ml"}
    event = {"involvedObject": about, "reason": "Evicted", "message": "no room", "type": "Warning"}

    class Pages(dict):
        def items(self):
            asked = sum("/events" in one for one in server.asked)
            more = {"continue": f"page{asked}"} if asked < pages else {}
            return {"metadata": more, "items": [event]}.items()

    server.events = Pages(one=1)
    with look(server) as found:
        told = why(found, "events of ml")
    asked = [one for one in server.asked if "/events" in one]
    assert all(f"continue=page{n}" in one for n, one in enumerate(asked[1:], 1))
    if whole:
        assert len(asked) == pages and not told
    else:
        assert f"there are more than were asked for; {len(asked)} are read" in told


def test_what_was_not_to_be_had_in_time_is_to_be_given_more(server):
    server.put("Job")
    server.pods = [pod("llm-0", "job-name", "llm"), pod("llm-1", "job-name", "llm")]
    server.answers |= {"llm-0": OOM, "llm-1": threading.Event()}
    with look(server, seconds=8.0) as found:
        found_hints = {p.hint for p in found.evidence.problems if "llm-1" in p.subject}
    assert found_hints == {"give it more time: --locate-budget SECONDS"}
    server.answers["llm-1"].set()


def lived(one, begun, ended=None, index=None):
    """Give a pod its times, as minutes of one hour."""
    one["metadata"]["creationTimestamp"] = f"2026-03-01T10:{begun:02d}:00Z"
    state = one["status"]["containerStatuses"][0]
    state["state"] = {"running": {}}
    if ended is not None:
        at = f"2026-03-01T10:{ended:02d}:00Z"
        state["state"] = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": at}}
    if index is not None:
        one["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] = str(index)
    return one


def test_of_a_job_that_was_tried_again_the_last_try_counts(server):
    server.put("Job")
    names = ("llm-x", "llm-b", "llm-r")  # in no order of theirs
    server.pods = [
        lived(pod(name, "job-name", "llm", node=f"g{at}"), 10 * at, 10 * at + 8)
        for at, name in enumerate(names)
    ]
    server.answers["llm-x"] = server.answers["llm-b"] = OOM
    server.answers["llm-r"] = (
        "[rank0]: FileNotFoundError: [Errno 2] No such file or directory: '/data/x'\n"
    )
    with look(server) as found:
        diagnosis = diagnose_paths([], located=found.evidence).diagnosis
    assert diagnosis.first_fault.file == "k8s://ml/pods/llm-r/train.log"
    assert [one.number for one in diagnosis.attempts] == [1, 2, 3]
    assert "was tried 3 times" in found.told[0] and "llm-r" in found.told[0]


def test_a_pod_that_lives_on_while_another_one_is_replaced_belongs_to_the_last_try():
    pods = [
        lived(pod("a", "job-name", "llm"), 0, 8, index=0),
        lived(pod("b", "job-name", "llm"), 0, 30, index=1),
        lived(pod("c", "job-name", "llm"), 9, 29, index=0),
        lived(pod("d", "job-name", "llm"), 31, index=0),
    ]
    assert tries_of(pods) == [1, 2, 2, 3]
    waits = lived(pod("e", "job-name", "llm"), 40, index=1)
    waits["status"]["containerStatuses"] = []
    assert tries_of([*pods, waits]) == [1, 2, 2, 3, 3]
    others = [
        lived(pod(one, "training.kubeflow.org/job-name", "llm"), 10 * at, 10 * at + 5)
        for at, one in enumerate("xyz")
    ]
    assert tries_of(others) == [1, 1, 1]
