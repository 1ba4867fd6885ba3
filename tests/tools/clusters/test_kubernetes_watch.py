"""The watch streams against a scripted fake API server; the real one is asked in tests/evals/kubernetes."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

import pytest

from rerail.tools.clusters.kubernetes_pods import PodKeeper, PodWatch
from rerail.tools.clusters.kubernetes_read import KubernetesReader
from rerail.tools.clusters.kubernetes_watch import KindWatch, KubernetesWatch, NodeWatch
from rerail.tools.clusters.slurm_records import AttemptRecord

kubernetes = pytest.importorskip("kubernetes")


def job(name, version, failed=True, **labels):
    conditions = [
        {"type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T01:00:00Z"}
    ]
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "resourceVersion": str(version),
            "labels": labels,
        },
        "status": {"conditions": conditions} if failed else {"active": 1},
    }


def event(kind, one):
    return {"type": kind, "object": one}


GONE = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})


class FakeServer:
    """Answers lists and watches of jobs from a script, in turn; `asked` keeps the versions of watches."""

    def __init__(self, lists, watches):
        fake, self.asked, self.logs = self, [], {}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                query = parse_qs(urlparse(self.path).query)
                if urlparse(self.path).path.endswith("/log"):
                    text = fake.logs.get(urlparse(self.path).path.split("/")[-2])
                    self.give(200 if text else 404, text or "{}")
                    return
                if "watch" not in query:
                    self.give(200, json.dumps(lists.pop(0) if len(lists) > 1 else lists[0]))
                    return
                fake.asked.append(query["resourceVersion"][0])
                found = watches.pop(0) if watches else []
                if isinstance(found, int):
                    self.give(found, json.dumps({"kind": "Status", "code": found}))
                else:
                    self.give(200, "".join(json.dumps(one) + "\n" for one in found))

            def give(self, status, text):
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        configuration = kubernetes.client.Configuration()
        configuration.host = f"http://127.0.0.1:{self.server.server_port}"
        configuration.retries = False
        self.reader = KubernetesReader(kubernetes.client.ApiClient(configuration), kinds=("Job",))

    def watch(self, heard, said=None):
        return KindWatch(
            self.reader, "Job", heard.append, (said if said is not None else []).append
        )


@pytest.fixture
def scripted():
    made = []

    def start(lists, watches):
        made.append(FakeServer(lists, watches))
        return made[-1]

    yield start
    for one in made:
        one.server.shutdown()
        one.server.server_close()
        one.reader.api.close()


def listed(version, *items):
    return {"metadata": {"resourceVersion": str(version)}, "items": list(items)}


def test_failures_are_heard_from_the_list_and_the_stream_and_others_are_not(scripted):
    stream = [
        event("MODIFIED", job("b", 11, failed=False)),
        event("MODIFIED", job("b", 12)),
        event("BOOKMARK", {"metadata": {"resourceVersion": "20"}}),
        event("DELETED", job("c", 21)),
    ]
    heard = []
    server = scripted(
        [listed(10, job("a-r1", 5, **{"rerail.dev/origin": "a", "rerail.dev/attempt": "1"}))],
        [stream],
    )
    watch = server.watch(heard)
    watch.once()
    assert [(one.job, one.attempt, one.state) for one in heard] == [
        ("ml/Job/a", 1, "FAILED"),
        ("ml/Job/b", 0, "FAILED"),
    ]
    assert watch.version == "21"


def test_a_broken_stream_goes_on_where_it_broke_off_without_a_new_list(scripted):
    server = scripted(
        [listed(10)], [[event("MODIFIED", job("a", 15))], [event("MODIFIED", job("b", 16))]]
    )
    heard = []
    watch = server.watch(heard)
    watch.once()
    watch.once()
    assert server.asked == ["10", "15"]
    assert (watch.lists, [one.job for one in heard]) == (1, ["ml/Job/a", "ml/Job/b"])


@pytest.mark.parametrize("gone", [[GONE], 410])
def test_a_forgotten_version_lists_anew_and_misses_nothing(scripted, gone):
    server = scripted([listed(10), listed(90, job("missed", 50))], [gone, []])
    heard = []
    watch = server.watch(heard)
    watch.once()
    assert (watch.version, heard) == ("", [])
    watch.once()
    assert [one.job for one in heard] == ["ml/Job/missed"]
    assert server.asked == ["10", "90"]


def test_a_refusal_is_said_once_and_ends_nothing(scripted):
    server = scripted([listed(10)], [403])
    said = []
    watch = server.watch([], said)
    thread = threading.Thread(target=watch.run)
    thread.start()
    deadline = time.monotonic() + 10
    while not said and time.monotonic() < deadline:
        time.sleep(0.01)
    watch.end()
    thread.join(10)
    assert said == ["may not watch jobs (403): polling alone"]
    assert not thread.is_alive()


def test_streams_run_beside_each_other_and_hand_over_once(scripted):
    server = scripted([listed(10, job("a", 5))], [])
    watch = KubernetesWatch(server.reader)
    watch.start()
    found = []
    deadline = time.monotonic() + 10
    while not found and time.monotonic() < deadline:
        found = watch.taken()
        time.sleep(0.01)
    watch.end()
    assert [one.job for one in found] == ["ml/Job/a"]


def pod(name, version, code=None, label="job-name", place="state", ended=None):
    at = ended or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    end = {"terminated": {"exitCode": code, "reason": "OOMKilled", "finishedAt": at}}
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "labels": {label: "llm"},
        },
        "spec": {"nodeName": "g2", "containers": [{"name": "train", "image": "x"}]},
        "status": {"containerStatuses": [{"name": "train", place: {} if code is None else end}]},
    }


def test_what_a_failed_pod_said_is_there_after_its_operator_removed_it(scripted, tmp_path):
    stream = [
        event("MODIFIED", pod("llm-1", 11)),
        event("MODIFIED", pod("llm-1", 12, code=137)),
        event("DELETED", pod("llm-1", 13, code=137)),
    ]
    server = scripted([listed(10, job("llm", 5))], [stream])
    server.logs["llm-1"] = "CUDA error: out of memory"
    keeper = PodKeeper(tmp_path / "pods")
    PodWatch(server.reader, "Pod", print, keeper=keeper).once()
    server.logs.clear()
    attempt = AttemptRecord("ml/Job/llm", 0, "FAILED", ())
    (tmp_path / "job").mkdir()
    assert server.reader.save_logs(attempt, tmp_path) == []
    assert list((tmp_path / "job").iterdir()) == []  # without the keeper they are lost
    server.reader.kept = keeper
    assert server.reader.save_logs(attempt, tmp_path) == []
    assert (tmp_path / "job/llm-1.train.log").read_text() == "CUDA error: out of memory"
    [one] = server.reader._pods()[1:]
    assert (one["spec"]["nodeName"], one["metadata"]["name"]) == ("g2", "llm-1")
    assert keeper.pods(but={"uid-llm-1"}) == []  # the server's own word goes before


def test_of_a_job_that_was_tried_again_the_logs_of_the_last_try_are_written(
    scripted, tmp_path, monkeypatch
):
    """The pods of earlier tries are told of."""
    server = scripted([listed(10, job("llm", 5))], [[]])
    first = pod("llm-1", 11, code=1, ended="2026-03-01T10:08:00Z")
    last = pod("llm-2", 12, code=1, ended="2026-03-01T10:18:00Z")
    first["metadata"]["creationTimestamp"] = "2026-03-01T10:00:00Z"
    last["metadata"]["creationTimestamp"] = "2026-03-01T10:10:00Z"
    monkeypatch.setattr(server.reader, "_pods", lambda: [first, last])
    server.logs["llm-1"] = server.logs["llm-2"] = "KeyError: 'x'"
    (tmp_path / "job").mkdir()
    (problem,) = server.reader.save_logs(AttemptRecord("ml/Job/llm", 0, "FAILED", ()), tmp_path)
    assert "pod llm-1 is of try 1 of 2" in problem
    assert [one.name for one in (tmp_path / "job").iterdir()] == ["llm-2.train.log"]


@pytest.mark.parametrize(
    ("one", "kept"),
    [
        (pod("a", 11, code=1, place="lastState"), True),  # started again in its place
        (pod("a", 11, code=0), False),
        (pod("a", 11, code=1, label="app"), False),  # no training job's
        (pod("a", 11, code=1, ended="2026-01-01T00:00:00Z"), False),  # long ago
        ({**pod("a", 11, code=1), "metadata": {**pod("a", 11)["metadata"], "uid": "../x"}}, False),
    ],
)
def test_only_what_failed_now_of_a_training_job_is_kept(scripted, tmp_path, one, kept):
    server = scripted([listed(10)], [[event("ADDED", one)]])
    keeper = PodKeeper(tmp_path / "pods")
    PodWatch(server.reader, "Pod", print, keeper=keeper).once()
    assert bool(keeper.pods(set())) is kept
    assert len(list(tmp_path.rglob("*.json"))) == kept


def test_what_a_later_list_shows_and_the_first_did_not_is_new_whatever_its_time(scripted):
    """410 Gone: what failed meanwhile is only in the list, with a time of the server's clock."""
    heard = []
    server = scripted(
        [listed(10, job("old", 5)), listed(30, job("old", 5), job("meanwhile", 20))],
        [[event("MODIFIED", job("streamed", 11)), GONE], []],
    )
    watch = server.watch(heard)
    watch.once()
    watch.once()
    assert [(one.job, one.listed) for one in heard] == [
        ("ml/Job/old", True),
        ("ml/Job/streamed", False),
        ("ml/Job/meanwhile", False),
    ]


def test_a_node_is_told_once_each_time_it_gets_lost(scripted):
    def node(name, version, ready):
        conditions = [{"type": "Ready", "status": ready}]
        metadata = {"name": name, "resourceVersion": str(version)}
        return {"metadata": metadata, "status": {"conditions": conditions}}

    lost = []
    stream = [
        event("MODIFIED", node("g1", 11, "Unknown")),
        event("MODIFIED", node("g1", 12, "Unknown")),
        event("MODIFIED", node("g1", 13, "True")),
        event("MODIFIED", node("g1", 14, "False")),
        event("ADDED", {"metadata": {"name": "new", "resourceVersion": "15"}}),
    ]
    server = scripted([listed(10, node("g1", 1, "True"), node("g2", 2, "Unknown"))], [stream])
    NodeWatch(server.reader, "Node", print, lost=lost.append).once()
    assert lost == ["g2", "g1", "g1"]
