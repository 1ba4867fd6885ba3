"""slurmrestd as a fake server on a Unix socket that gives recorded answers of real 22.05 and 24.11.

The real one is asked in tests/evals/cluster.
"""

import json
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from rerail.domain.job import JobRef
from rerail.domain.plan import ActionKind
from rerail.errors import ClusterError
from rerail.recovery.clusters.slurm_rest_write import SlurmRestWriter
from rerail.tools.clusters.slurm_read import SlurmReader
from rerail.tools.clusters.slurm_rest import SlurmRest
from rerail.tools.clusters.slurm_rest_read import NOBODY_KNOWN, SlurmRestReader, TextFirst

DATA = Path(__file__).parents[2] / "data" / "slurm_read"
SERVES = {"22.05": (36, 37, 38), "24.11": (40, 41, 42)}


def recorded(name):
    return json.loads((DATA / f"{name}.json").read_text())


def described(numbers, slash):
    paths = {}
    for number in numbers:
        paths[f"/slurm/v0.0.{number}/jobs{slash}"] = {"get": {}}
        node = {"get": {}, "post": {}} if number >= 40 else {"get": {}}
        paths[f"/slurm/v0.0.{number}/node/{{node_name}}"] = node
    return {"paths": paths}


class FakeSlurmrestd:
    """Answers by path; what is not known gets slurmrestd's own 404. `asked` keeps the requests."""

    def __init__(self, folder, answers):
        self.path, self.answers, self.asked = folder / "socket", answers, []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                fake.asked.append((self.command, self.path, body))
                known = fake.answers.get(self.path)
                text = json.dumps(known) if known is not None else "Unable find requested URL."
                self.send_response(200 if known is not None else 404)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *arguments):
                pass

            def address_string(self):
                return "socket"

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.server = Server(str(self.path), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def fake(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket may have 107 characters
    made = []

    def start(answers):
        made.append(FakeSlurmrestd(Path(), answers))
        return made[-1]

    yield start
    for one in made:
        one.close()


def newer(**more):
    return {
        "/openapi/v3": described(SERVES["24.11"], "/"),
        "/slurm/v0.0.42/job/1": recorded("24.11_rest_exception"),
        "/slurmdb/v0.0.42/job/1": recorded("24.11_restdb_exception"),
        "/slurm/v0.0.42/jobs": recorded("24.11_rest_exception"),
        **more,
    }


def older(**more):
    return {
        "/openapi/v3": described(SERVES["22.05"], ""),
        "/slurm/v0.0.38/job/11": recorded("22.05_rest_nodedown"),
        "/slurmdb/v0.0.38/job/11": recorded("22.05_restdb_nodedown"),
        "/slurm/v0.0.38/jobs": recorded("22.05_rest_nodedown"),
        **more,
    }


@pytest.mark.parametrize(
    ("serves", "chosen"), [((36, 37, 38), 38), ((40, 41, 42), 42), ((41, 99), 41), ((36,), 36)]
)
def test_the_newest_version_that_both_know_is_spoken(fake, serves, chosen):
    server = fake({"/openapi/v3": described(serves, "/" if max(serves) > 38 else "")})
    assert SlurmRest(server.path).version == f"v0.0.{chosen}"


def test_a_server_that_is_too_new_or_too_old_is_told_apart_from_one_that_is_away(fake):
    server = fake({"/openapi/v3": described((35, 99), "")})
    with pytest.raises(
        ClusterError, match=r"serves v0\.0\.35, v0\.0\.99; known here are"
    ) as caught:
        _ = SlurmRest(server.path).version
    assert not caught.value.recoverable


def test_24_11_tells_exit_codes_and_paths_itself(fake):
    reader = SlurmRestReader(SlurmRest(fake(newer()).path))
    [one] = reader.attempts("1")
    assert (one.job, one.attempt, one.state, one.nodes) == ("1", 0, "FAILED", ("n1", "n2"))
    assert {step.step: step.exit_code for step in one.steps} == {"batch": 143, "extern": 0, "0": 1}
    assert (one.uid, one.start is not None) == (0, True)
    assert reader.files("1").stdout == "/tmp/lab/feas/slurm_runs/t24/exception-1.slurm.out"
    assert [(a.job, a.state) for a in reader.ended_badly(0)] == [("1", "FAILED")]
    assert reader.ended_badly(2e9) == []


def test_22_05_requeued_the_job_by_itself_and_its_lost_attempt_is_still_found(fake):
    reader = SlurmRestReader(SlurmRest(fake(older()).path))
    first, second = reader.attempts("11")
    assert (first.state, first.nodes, second.state, second.attempt) == (
        *("NODE_FAIL", ("n2", "n3"), "PENDING", 1),
    )
    assert [(a.attempt, a.state) for a in reader.ended_badly(0)] == [(0, "NODE_FAIL")]
    # 22.05 writes SUCCESS, 0 for what failed: left open, never taken over.
    assert first.exit_code is None
    assert {step.exit_code for step in first.steps if step.state != "COMPLETED"} <= {None}


def test_a_job_of_a_user_whom_this_host_does_not_know_owns_no_file(fake):
    gone = recorded("24.11_restdb_exception")
    gone["jobs"][0]["user"] = "nobody-of-this-host"
    answers = newer(**{"/slurmdb/v0.0.42/job/1": gone, "/slurm/v0.0.42/job/1": {"jobs": []}})
    [one] = SlurmRestReader(SlurmRest(fake(answers).path)).attempts("1")
    assert one.uid == NOBODY_KNOWN


@pytest.mark.parametrize(
    ("node", "drained", "lost"),
    [
        ({"name": "n1", "state": "idle", "state_flags": ["DRAIN"], "reason": "x"}, True, False),
        ({"name": "n1", "state": "down", "state_flags": ["NOT_RESPONDING"]}, False, True),
        ({"name": "n1", "state": ["IDLE", "DRAIN"], "reason": "x"}, True, False),
        ({"name": "n1", "state": ["DOWN", "NOT_RESPONDING"]}, False, True),
        ({"name": "n1", "state": ["ALLOCATED"]}, False, False),
    ],
)
def test_node_states_of_both_generations(fake, node, drained, lost):
    reader = SlurmRestReader(
        SlurmRest(fake(newer(**{"/slurm/v0.0.42/nodes": {"nodes": [node]}})).path)
    )
    [one] = reader.nodes(["n1"])
    assert (one.drained, one.lost) == (drained, lost)


def test_errors_of_slurm_are_errors_here_and_say_whether_to_try_again(fake):
    away = {"errors": [{"error_number": 1, "error": "Unable to contact slurm controller"}]}
    denied = {"errors": [{"error_number": 2002, "error": "Access/permission denied"}]}
    rest = SlurmRest(fake({"/a": away, "/b": denied}).path)
    for url, again in (("/a", True), ("/b", False), ("/c", False)):
        with pytest.raises(ClusterError) as caught:
            rest.call("GET", url)
        assert caught.value.recoverable is again


def test_nobody_at_the_socket(tmp_path, fake):
    with pytest.raises(ClusterError) as caught:
        SlurmRest(tmp_path / "absent").call("GET", "/x")
    assert not caught.value.recoverable
    server = fake({})
    server.server.server_close()  # the daemon is gone, its socket is left
    with pytest.raises(ClusterError) as caught:
        SlurmRest(server.path).call("GET", "/x")
    assert caught.value.recoverable


def test_slurmrestd_answers_only_where_the_commands_do_not(fake):
    rest = SlurmRestReader(SlurmRest(fake(newer()).path))
    nowhere = SlurmReader(environment={"PATH": "/nonexistent"})
    assert TextFirst(nowhere, rest).attempts("1")[0].steps[0].exit_code == 143

    class Commands(SlurmReader):
        def _run(self, *argv):
            return "1|FAILED|7:0|n1|10|20|0\n" if argv[0] == "sacct" else ""

    assert TextFirst(Commands(), rest).attempts("1")[0].exit_code == 7
    gone = SlurmRestReader(SlurmRest("absent"))
    with pytest.raises(ClusterError, match="not installed"):
        TextFirst(nowhere, gone).attempts("1")


def test_the_writer_sends_what_the_server_offers_and_runs_commands_for_the_rest(fake, action):
    job = JobRef(job="1")
    drain = action(ActionKind.DRAIN, "n2", reason="gpu; rm -rf /")
    done = {"/slurm/v0.0.42/node/n2": {"errors": []}, "/slurm/v0.0.42/job/1": {"errors": []}}
    new = fake(newer(**done))
    writer = SlurmRestWriter(SlurmReader(), SlurmRest(new.path))
    writer.carry_out(drain, job, "INC-1")
    writer.carry_out(action(ActionKind.CANCEL, "1"), job, "INC-1")
    reason = "rerail INC-1 gpu rm -rf"
    assert new.asked[1:] == [
        ("POST", "/slurm/v0.0.42/node/n2", {"state": ["DRAIN"], "reason": reason}),
        ("DELETE", "/slurm/v0.0.42/job/1", None),
    ]
    [shown] = writer.commands(drain, job, "INC-1")
    assert shown[:3] == ["curl", "--unix-socket", "socket"]
    # A signal for stack dumps stays with scancel: slurmrestd's reaches the batch script too.
    [dumps] = writer.commands(action(ActionKind.COLLECT_DUMPS, "1"), job, "INC-1")
    assert dumps[0] == "scancel"


def test_22_05_offers_no_update_of_nodes(fake, action):
    writer = SlurmRestWriter(SlurmReader(), SlurmRest(fake(older()).path))
    [drain] = writer.commands(action(ActionKind.DRAIN, "n2"), JobRef(job="1"), "INC-1")
    assert drain[0] == "scontrol"
