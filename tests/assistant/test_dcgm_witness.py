"""DCGM accuses a node only through a source in whose place no job can stand."""

import json
import os
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest
from pydantic import ValidationError

from rerail.assistant.cli.doctor_dcgm import dcgm_findings
from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.watch.dcgm_witness import dcgm_facts
from rerail.assistant.watch.evidence import collect_evidence
from rerail.assistant.watch.site import Site
from rerail.domain.job import JobEvent, JobRef
from rerail.domain.plan import ActionKind
from rerail.recovery.policy import decide
from rerail.recovery.site_policy import Dcgm, JobLayout, SitePolicy
from rerail.recovery.situation import Situation
from rerail.settings import Settings
from rerail.tools.clusters.attempt_span import AttemptSpan
from rerail.tools.clusters.slurm_outputs import Outputs
from rerail.tools.clusters.slurm_read import JobFiles
from rerail.tools.clusters.slurm_records import AttemptRecord, NodeRecord

NO_JOB = 54321
START = 1_000_000.0
ATTEMPT = AttemptRecord(
    "7", 0, "FAILED", ("n1", "n2"), start=START, end=START + 900.0, uid=NO_JOB
)  # fmt: skip
LABELS = 'gpu="3",UUID="GPU-3",pci_bus_id="00000000:8D:00.0",Hostname="n2",pod="job-7"'


def exposition(xid, labels=LABELS):
    return f"# HELP DCGM_FI_DEV_XID_ERRORS Last XID.\nDCGM_FI_DEV_XID_ERRORS{{{labels}}} {xid}\n"


@pytest.fixture
def scrapes(tmp_path):
    """Two scrapes of n2, before and after an Xid, in a folder of the site."""
    folder = tmp_path / "dcgm" / "n2"
    folder.mkdir(parents=True)

    def write(first, second, labels=LABELS, code=79):
        for name, at, value in (("a", first, 0), ("b", second, code)):
            path = folder / f"{name}.prom"
            path.write_text(exposition(value, labels))
            path.chmod(0o644)
            os.utime(path, (at, at))
        return folder

    return write


def ask(tmp_path, **more):
    policy = Dcgm(files=(str(tmp_path / "dcgm" / "{node}" / "*"),))
    return dcgm_facts(ATTEMPT, policy, clock=lambda: START + 1_000.0, **more)


def test_an_xid_within_the_attempt_names_node_gpu_and_time(scrapes, tmp_path):
    scrapes(START + 100, START + 160)
    (fact,) = ask(tmp_path).attested
    assert (fact.source, fact.node, fact.gpu, fact.at) == ("dcgm", "n2", "3", START + 160)
    assert fact.enough and "Xid 79" in fact.what


@pytest.mark.parametrize(
    ("first", "second", "code", "told"),
    [
        (START - 5_000, START - 4_000, 79, "cannot be dated"),
        (START - 5_000, START + 160, 79, "cannot be dated"),
        (START + 100, START + 160, 13, None),  # the user's own kernel
        (START + 100, START + 160, 43, None),  # the driver's echo of it
    ],
)
def test_what_is_old_undated_or_the_job_s_own_accuses_nobody(
    scrapes, tmp_path, first, second, code, told
):
    scrapes(first, second, code=code)
    facts = ask(tmp_path)
    assert facts.attested == []
    assert any(told in one for one in facts.problems) if told else not facts.problems


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize(
    "forged", ["file of the job's user", "writable", "writable folder", "link", "job's own folder"]
)
def test_a_scrape_that_the_job_placed_is_no_witness(scrapes, tmp_path, forged):
    folder, more = scrapes(START + 100, START + 160), {}
    if forged == "file of the job's user":
        os.chown(folder / "b.prom", NO_JOB, -1)
    elif forged == "writable":
        (folder / "b.prom").chmod(0o666)
    elif forged == "writable folder":
        folder.chmod(0o1777)
    elif forged == "link":
        (folder / "b.prom").rename(tmp_path / "elsewhere")
        (folder / "b.prom").symlink_to(tmp_path / "elsewhere")
    else:
        more = {"job_folder": str(tmp_path)}  # even a file of root, as `sudo` in a prolog leaves
    facts = ask(tmp_path, **more)
    assert facts.attested == []
    assert any("no witness" in one or "symbolic links" in one for one in facts.problems)


def test_a_source_of_one_node_cannot_accuse_another(scrapes, tmp_path):
    scrapes(START + 100, START + 160, labels='gpu="3",Hostname="n1"')
    facts = ask(tmp_path)
    assert facts.attested == [] and any("n1: left out" in one for one in facts.problems)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"files": ["{folder}/dcgm/{node}.prom"]}, "the job can write"),
        ({"files": ["/var/log/dcgm.prom"]}, "{node}"),
        ({"files": ["/var/log/{host}/{node}.prom"]}, "unknown field {host}"),
        ({"exporters": ["http://{node}:9400/metrics"]}, "can listen on port 9400"),
        ({"exporters": ["file:///etc/{node}"]}, "no http"),
        ({"prometheus": "http://prometheus:9090"}, "needs a selector"),
        ({"commands": [["dcgmi", "health", "-c"]]}, "{node}"),
    ],
)
def test_the_policy_refuses_sources_that_a_job_could_be(wrong, word):
    with pytest.raises(ValidationError) as refused:
        Dcgm.model_validate(wrong)
    assert word in str(refused.value)
    assert Dcgm(exporters=("https://{node}:9400/metrics", "http://{node}:940/metrics"))


@contextmanager
def fake_server(answer):
    """A fake of an exporter or a Prometheus server; `answer` gives (status, headers, body)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            length = int(self.headers.get("Content-Length") or 0)
            status, headers, body = answer(self.path, parse_qs(self.rfile.read(length).decode()))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_an_exporter_dates_an_xid_by_its_window_and_redirects_are_not_followed():
    now = START + 960.0

    def answer(path, _):
        if path == "/n1":
            return 302, {"Location": "/n2"}, ""
        labels = f'{LABELS},xid="79",window_size_in_ms="300000"'
        return 200, {}, f"# HELP x\nDCGM_EXP_XID_ERRORS_COUNT{{{labels}}} 1\n"

    with fake_server(answer) as url:
        dcgm = Dcgm(exporters=(url + "/{node}",), jobs_cannot_listen=True)
        facts = dcgm_facts(ATTEMPT, dcgm, clock=lambda: now)
    assert [(one.node, one.enough) for one in facts.attested] == [("n2", True)]
    assert any("/n1: HTTP 302" in one for one in facts.problems)


def test_a_prometheus_server_is_asked_for_the_job_s_nodes_and_time_only():
    asked = []

    def answer(path, form):
        asked.append((path, form))
        metric = {"__name__": "DCGM_FI_DEV_XID_ERRORS", "gpu": "3", "UUID": "GPU-3"}
        values = [[START + 100, "0"], [START + 160, "79"]]
        hosts = ("n2.site.org:9400", "n22:9400", "other")
        series = [{"metric": {**metric, "instance": one}, "values": values} for one in hosts]
        return 200, {}, json.dumps({"status": "success", "data": {"result": series}})

    with fake_server(answer) as url:
        dcgm = Dcgm(prometheus=url, selector='job="dcgm-exporter"', node_label="instance")
        facts = dcgm_facts(ATTEMPT, dcgm, clock=lambda: START + 1_000.0)
    assert {(one.node, one.at) for one in facts.attested} == {("n2", START + 160)}
    ((path, form),) = asked
    query = form["query"][0]
    assert path == "/api/v1/query" and 'job="dcgm-exporter"' in query and query.endswith("[1120s]")
    hosts = re.compile(json.loads(re.search(r"instance=~(\".*?\")\}", query)[1]))
    assert hosts.fullmatch("n2.site.org:9400") and not hosts.fullmatch("n22:9400")
    assert any("no samples of n1" in one for one in facts.problems)


def test_a_server_that_refuses_or_is_away_is_told_and_proves_nothing():
    with fake_server(lambda *_: (200, {}, '{"status": "error", "error": "bad"}')) as url:
        dcgm = Dcgm(prometheus=url, selector='job="x"')
        assert "bad" in dcgm_facts(ATTEMPT, dcgm).problems[0]
    assert dcgm_facts(ATTEMPT, dcgm).problems[0].startswith(f"dcgm: {url}/api/v1/query: ")


class FakeReader:
    def __init__(self, stdout):
        self.stdout = stdout

    def outputs(self, attempt):
        return Outputs()

    def files(self, job):
        return JobFiles(str(self.stdout), None, str(self.stdout.parent))

    def nodes(self, names=()):
        return [NodeRecord(name, "IDLE") for name in names]

    def save_logs(self, attempt, folder):
        return []


def test_a_job_s_crash_and_dcgm_together_drain_the_node_and_the_crash_alone_does_not(
    scrapes, tmp_path
):
    scrapes(START + 100, START + 160)
    work = tmp_path / "work"
    work.mkdir()
    out = work / "slurm-7.out"
    out.write_text("1: CUDA error: unspecified launch failure\nsrun: error: n2: task 1: Aborted\n")
    # What the job itself left in its folder looks the same, and counts for nothing.
    (work / "n1.prom").write_text(exposition(79, LABELS.replace("n2", "n1")))
    event = JobEvent(job=JobRef(job="7"), source="t", state="FAILED", time="t")

    def plan(dcgm, name):
        (tmp_path / name).mkdir()
        found = collect_evidence(
            *(event, AttemptSpan(ATTEMPT), FakeReader(out), JobLayout(), tmp_path / name), dcgm=dcgm
        )
        diagnosis = diagnose_paths(found.paths).diagnosis
        situation = Situation(
            incident="INC-1",
            job=event.job,
            state="FAILED",
            nodes=ATTEMPT.nodes,
            cluster_nodes=10,
            diagnosis=diagnosis,
            attested=tuple(found.attested),
            now=START,
        )
        drained = [
            one.target
            for one in decide(situation, SitePolicy()).actions
            if one.kind is ActionKind.DRAIN
        ]
        return diagnosis, drained

    diagnosis, drained = plan(Dcgm(files=(str(tmp_path / "dcgm/{node}/*"),)), "with")
    assert drained == ["n2"]
    assert diagnosis.failure_type == "gpu_fallen_off_bus"
    assert (diagnosis.first_fault.node, diagnosis.first_fault.file) == ("n2", "system/dcgm/n2.log")
    assert plan(Dcgm(), "without")[1] == []
    assert plan(Dcgm(files=(str(work / "{node}.prom"),)), "forged")[1] == []


def test_doctor_says_what_can_be_read_of_dcgm_and_what_a_job_could_have_written(scrapes, tmp_path):
    folder = scrapes(START, START)
    reader = FakeReader(tmp_path / "x")
    reader.nodes = lambda names=(): [NodeRecord("n2", "IDLE")]

    def say(**sources):
        site = Site(Settings(data_dir=tmp_path), SitePolicy(dcgm=Dcgm(**sources)), tmp_path, reader)
        return dcgm_findings(site)

    files = (str(tmp_path / "dcgm/{node}/*.prom"),)
    ((_, state, text),) = say(files=files)
    assert state == "ok" and "1 of 9 fields on n2" in text and "dated by changes only" in text
    (folder / "b.prom").chmod(0o666)
    ((_, state, text),) = say(files=files)
    assert state == "bad" and "no witness" in text
    ((_, state, text),) = say(commands=(("echo", "{node}"),))
    assert state == "bad" and "dcgmi health" in text
    assert say()[0][1] == "off"
