"""People are told of an incident once by each service, and edited; loopback servers stand for the services."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from rerail.assistant.cli.doctor import _messages
from rerail.assistant.cli.notify import notify_command
from rerail.assistant.notify import site_words, told
from rerail.assistant.notify.alertmanager import AlertmanagerService
from rerail.assistant.notify.by_apprise import AppriseService, harmless
from rerail.assistant.notify.configured import services_of
from rerail.assistant.notify.pagerduty import PagerDutyService
from rerail.assistant.notify.slack import SlackService
from rerail.assistant.notify.telling import Post, Telling
from rerail.assistant.watch.daemon import Daemon
from rerail.assistant.watch.site import Site
from rerail.domain.incident import Confirmation, SignOff
from rerail.domain.job import Allocation, JobEvent, JobRef, NodeShare
from rerail.errors import ConfigError, UsageError
from rerail.evals.fleet.year import Truth, incidents_of, simulate
from rerail.knowledge_base.store.engine import open_store, reading, writing
from rerail.knowledge_base.store.incidents import list_incidents, record
from rerail.knowledge_base.store.judgement import confirm, sign_off
from rerail.recovery import spool
from rerail.recovery.notify_services import Alertmanager, Apprise, PagerDuty, Slack
from rerail.recovery.site_policy import JobLayout, Notify, SitePolicy, load_policy
from rerail.settings import Settings

RERAIL = Path(sys.executable).parent / "rerail"
LOG = "srun: error: gpu-7: task 1: Killed\n"
STALE = "[rank0]: OSError: [Errno 116] Stale file handle: '/lustre/ckpt/step_20.pt'\n"


class Fake(ThreadingHTTPServer):
    """A service of the loopback: keeps what it gets; `answers` are given first, then `usual`."""

    daemon_threads = True

    def __init__(self):
        self.got, self.answers, self.usual = [], [], (200, {"ok": True})
        self.arrived, self.held = threading.Event(), None
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def bodies(self, path=""):
        return [body for where, body, _ in self.got if path in where]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        fake = self.server
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fake.got.append((self.path, json.loads(raw), dict(self.headers)))
        fake.arrived.set()
        if fake.held is not None:
            fake.held.wait(30)
        status, body = fake.answers.pop(0) if fake.answers else fake.usual
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@pytest.fixture
def fake():
    server = Fake()
    yield server
    if server.held is not None:
        server.held.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def daemon(tmp_path):
    settings = Settings(data_dir=tmp_path / "data")
    engine = open_store(settings)
    policy = SitePolicy(jobs=JobLayout(group_wait_s=0))
    yield Daemon(Site(settings, policy, tmp_path / "data", None), engine, say=lambda text: None)
    engine.dispose()


class Clock:
    now = 1_000.0

    def __call__(self):
        return self.now


def post(daemon, service, said=None):
    found = Post(
        daemon.engine,
        service,
        "https://rerail.site",
        ([] if said is None else said).append,
        Clock(),
    )
    found.begin()
    return found


def fail(daemon, folder, job, text=LOG, node="gpu-7"):
    logs = folder / f"logs-{job}"
    logs.mkdir(exist_ok=True)
    (logs / "train.log").write_text(text)
    event = JobEvent(
        job=JobRef(cluster="c", job=job), source="t", state="FAILED", time="2026-01-01T00:00:00Z",
        logs=(str(logs),), allocation=Allocation(nodes=(NodeShare(node=node),)),
    )  # fmt: skip
    spool.leave(daemon.site.data / spool.FOLDER, event.model_dump_json().encode())
    daemon.drain(30)


def close(daemon, number=0):
    with reading(daemon.engine) as connection:
        name = list_incidents(connection)[number].id
    with writing(daemon.engine) as connection:
        confirm(connection, name, Confirmation(verdict="right", by="ito", time="2026-01-01T01:00:00.000Z"))  # fmt: skip
        sign_off(connection, name, SignOff(by="ito", time="2026-01-01T01:00:00.000Z"))
    return name


def test_slack_gets_one_message_of_the_headline_and_edits_it(daemon, fake, tmp_path):
    fake.usual = (200, {"ok": True, "channel": "C0123456", "ts": "17.5"})
    one = post(daemon, SlackService("C0123456", "xoxb-1", f"{fake.url}/api"))
    fail(daemon, tmp_path, "1")
    one.round(), one.round()
    [(path, body, headers)] = fake.got
    assert path == "/api/chat.postMessage" and headers["Authorization"] == "Bearer xoxb-1"
    headline = body["blocks"][0]["text"]
    assert headline["type"] == "plain_text" and "gpu-7" in headline["text"]
    assert body["unfurl_links"] is False and "ENOSPC" not in json.dumps(body)
    fields = [row["text"] for row in body["blocks"][1]["fields"]]
    assert fields[0] == "Now: nothing has been done" and "Job: 1 on local" in fields
    name = close(daemon)
    assert body["blocks"][2]["elements"][0]["url"] == f"https://rerail.site/incidents/{name}"
    one.round(), one.round()
    [edit] = fake.bodies("chat.update")
    assert (edit["channel"], edit["ts"]) == ("C0123456", "17.5")
    assert edit["text"].startswith("Over: ") and "Now: signed off by ito" in json.dumps(edit)
    assert len(fake.got) == 2


def test_a_message_that_somebody_deleted_is_written_again(daemon, fake, tmp_path):
    fake.usual = (200, {"ok": True, "channel": "C0123456", "ts": "1.0"})
    one = post(daemon, SlackService("C0123456", "t", fake.url))
    fail(daemon, tmp_path, "1")
    one.round()
    fake.answers = [(200, {"ok": False, "error": "message_not_found"})]
    with reading(daemon.engine) as connection:
        name = list_incidents(connection)[0].id
    note(daemon, name, "note", "x")
    one.round()
    assert len(fake.got) == 1  # a note changes nothing that is said
    with writing(daemon.engine) as connection:
        connection.exec_driver_sql("UPDATE incidents SET confirmed='wrong', confirmed_type='cuda_oom'")  # fmt: skip
    note(daemon, name, "confirmed", "y")
    one.round()
    assert [path for path, _, _ in fake.got] == [
        "/chat.postMessage", "/chat.update", "/chat.postMessage",
    ]  # fmt: skip
    assert "GPU out of memory" in fake.got[-1][1]["text"]


def note(daemon, name, kind, text):
    from rerail.domain.incident import EntrySource, TimelineEntry
    from rerail.knowledge_base.store.incidents import append

    entry = TimelineEntry(
        time="2026-01-01T02:00:00.000Z", source=EntrySource.HUMAN, kind=kind, text=text,
        data={"verdict": "wrong", "by": "a", "time": "b"} if kind == "confirmed" else {},
    )  # fmt: skip
    with writing(daemon.engine) as connection:
        append(connection, name, entry)


def test_pagerduty_counts_by_fingerprint_and_resolves_with_the_last_of_it(daemon, fake, tmp_path):
    one = post(daemon, PagerDutyService(fake.url, "R1"))
    fail(daemon, tmp_path, "1"), fail(daemon, tmp_path, "2", node="gpu-7")
    one.round()
    first, second = fake.bodies("/v2/enqueue")
    with reading(daemon.engine) as connection:
        rows = list_incidents(connection)
    assert {row.fingerprint for row in rows} == {first["dedup_key"]} == {second["dedup_key"]}
    assert first["event_action"] == "trigger" and first["routing_key"] == "R1"
    assert "gpu-7" in first["payload"]["summary"] and first["payload"]["class"]
    close(daemon, 0)
    one.round()
    assert len(fake.got) == 2  # the other one is still open
    close(daemon, 1)
    one.round()
    assert fake.got[2][1] == {"routing_key": "R1", "dedup_key": first["dedup_key"], "event_action": "resolve"}  # fmt: skip


def test_alertmanager_keeps_the_labels_and_ends_the_alert(daemon, fake, tmp_path):
    one = post(daemon, AlertmanagerService(fake.url, "tok"))
    fail(daemon, tmp_path, "1")
    one.round()
    close(daemon)
    one.round()
    (_, [fired], headers), (_, [ended], _) = fake.got
    assert headers["Authorization"] == "Bearer tok"
    assert fired["labels"] == ended["labels"] and fired["labels"]["job"] == "1"
    assert fired["startsAt"] == ended["startsAt"]
    assert fired["endsAt"] > ended["endsAt"] >= ended["startsAt"]
    assert "gpu-7" in fired["annotations"]["summary"]


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # of Apprise
def test_apprise_tells_once_and_once_that_it_is_over(daemon, fake, tmp_path):
    one = post(daemon, AppriseService(f"json://127.0.0.1:{fake.server_port}/hook"), said := [])
    fail(daemon, tmp_path, "1")
    one.round(), one.round()
    close(daemon)
    one.round(), one.round()
    assert said == []
    first, last = fake.bodies()
    assert "gpu-7" in first["title"] and first["type"] == "failure"
    assert last["title"].startswith("Over: ") and last["type"] == "success"


def test_what_is_not_taken_is_tried_again_later_and_survives_the_process(daemon, fake, tmp_path):
    said = []
    one = post(daemon, PagerDutyService(fake.url, "R"), said)
    fake.answers = [(500, {}), (429, {})]
    fail(daemon, tmp_path, "1")
    assert one.round() == 1
    one.round()
    assert len(fake.got) == 1  # not before its time
    one.clock.now += 2.1
    one.round()
    with reading(daemon.engine) as connection:
        [row] = told.waiting(connection)
    assert row.tries == 2 and "429" in row.note
    again = post(daemon, PagerDutyService(fake.url, "R"))
    again.clock.now += 10
    assert again.round() == 0 and len(fake.got) == 3
    with reading(daemon.engine) as connection:
        assert told.waiting(connection) == []
    assert "INC-" in said[0] and "HTTP 500" in said[0]


def test_a_wrong_token_is_said_once_with_what_to_try_and_not_tried_every_second(daemon, fake, tmp_path):  # fmt: skip
    said = []
    one = post(daemon, SlackService("C0123456", "t", fake.url), said)
    fake.usual = (200, {"ok": False, "error": "invalid_auth"})
    fail(daemon, tmp_path, "1"), fail(daemon, tmp_path, "2", STALE)
    one.round()
    one.clock.now += 300
    one.round()
    assert len(fake.got) == 1 and len(said) == 1 and "xoxb-" in said[0]


def test_a_service_that_hangs_holds_up_neither_the_daemon_nor_the_others(daemon, fake, tmp_path):
    fake.held = threading.Event()
    other = Fake()
    telling = Telling(daemon.engine, lambda text: None, interval_s=0.01)
    telling.start([PagerDutyService(fake.url, "R"), AlertmanagerService(other.url, "")], "")
    fail(daemon, tmp_path, "1")
    assert fake.arrived.wait(10) and other.arrived.wait(10)
    fail(daemon, tmp_path, "2", STALE)  # returns while the service still holds its answer
    with reading(daemon.engine) as connection:
        assert len(list_incidents(connection)) == 2
    assert len(fake.got) == 1 and not fake.held.is_set()
    telling.finish(0)
    other.shutdown(), other.server_close()


def test_what_people_diagnose_by_hand_and_what_was_before_is_not_told(daemon, fake, tmp_path):
    fail(daemon, tmp_path, "1")
    one = post(daemon, AlertmanagerService(fake.url, ""))
    one.round()
    log = tmp_path / "by_hand.log"
    log.write_text(STALE)
    diagnose(log, tmp_path)
    one.round()
    assert fake.got == []


def diagnose(log, tmp_path):
    subprocess.run(
        [str(RERAIL), "diagnose", "-q", "--no-model", str(log)], check=True, capture_output=True,
        env={**os.environ, "RERAIL_DATA_DIR": str(tmp_path / "data")}, timeout=60,
    )  # fmt: skip


def test_jobs_that_fail_together_are_one_open_message(daemon, fake, tmp_path):
    one = post(daemon, AlertmanagerService(fake.url, ""))
    for number in range(4):
        fail(daemon, tmp_path, str(number), STALE, node=f"n{number}")
        one.round()
    last = {body["labels"]["incident"]: body for [body] in fake.bodies()}
    open_ones = [b for b in last.values() if b["endsAt"] > b["startsAt"][:4] + "-12-31"] or [
        b for b in last.values() if "shares" not in b["annotations"]["now"]
    ]
    assert len(last) == 3 and len(open_ones) == 1  # two before it was known, then one for all
    assert "share one root" in open_ones[0]["annotations"]["summary"]


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # of Apprise
def test_that_steps_are_held_is_told_by_every_service_changed_in_place_and_ended(
    daemon, fake, tmp_path
):
    slack = SlackService("C0123456789", "xoxb-1", api=f"{fake.url}/api")
    pager = PagerDutyService(fake.url, "key")
    alerts = AlertmanagerService(fake.url, "")
    mail = AppriseService(fake.url.replace("http", "json"))
    fake.usual = (200, {"ok": True, "channel": "C0123456789", "ts": "1.2"})
    posts = [post(daemon, one) for one in (slack, pager, alerts, mail)]

    def rounds() -> None:
        for one in posts:
            assert one.round() == 0

    rounds()
    assert not fake.got
    for why in ("the breaker is open: <b>x\x1b[31m", "the policy file cannot be read"):
        daemon._held(why)
        rounds()
    rounds()  # said once, whatever was not changed meanwhile
    sent = [json.dumps(body) for body in fake.bodies("chat.postMessage")]
    assert len(sent) == 1 and "No recovery step runs by itself: the breaker is open" in sent[0]
    assert "\\u001b" not in sent[0] and "rerail.site" in sent[0]
    assert "cannot be read" in json.dumps(fake.bodies("chat.update")[0])
    keys = {body["dedup_key"] for body in fake.bodies("enqueue")}
    assert len(keys) == 1 and fake.bodies("enqueue")[0]["payload"]["source"]
    daemon._held("")
    rounds()
    assert fake.bodies("enqueue")[-1]["event_action"] == "resolve"
    assert "Over: No recovery step" in json.dumps(fake.bodies("chat.update")[-1])
    ended = fake.bodies("api/v2/alerts")[-1][0]
    assert ended["endsAt"] <= site_words.now_iso()
    # The next time is a new message: nobody looks at one of last week.
    daemon._held("the breaker is open")
    rounds()
    assert len(fake.bodies("chat.postMessage")) == 2
    # A daemon that begins while nothing holds it ends what another one left open.
    daemon._said.clear()
    daemon.executor.held = lambda: ""
    daemon._announce()
    rounds()
    assert fake.bodies("enqueue")[-1]["event_action"] == "resolve"


def test_an_event_that_is_given_up_is_told_by_the_services_and_a_later_service_hears_nothing_of_it(
    daemon, fake, monkeypatch
):
    pager = post(daemon, PagerDutyService(fake.url, "key"))
    pager.round()
    monkeypatch.setattr("rerail.assistant.watch.daemon.queue.give_back", lambda *_, **__: True)
    event = JobEvent(job=JobRef(cluster="c", job="7"), source="t", state="FAILED", time="2026-01-01T00:00:00Z")  # fmt: skip
    daemon._give_back(SimpleNamespace(id=3, event=event), "a bug")
    fake.answers = [(500, {})]
    assert pager.round() == 1
    pager.clock.now += 10
    assert pager.round() == 0
    event = fake.bodies("enqueue")[-1]
    assert event["payload"]["component"] == "7" and "could not be worked off" in json.dumps(event)
    later = post(daemon, AlertmanagerService(fake.url, ""))
    assert later.round() == 0 and not fake.bodies("api/v2/alerts")


def test_text_of_logs_pings_nobody_and_loads_nothing():
    hostile = "@everyone <!channel> <@U1> ![x](http://evil/p.png)"
    made = harmless(hostile)
    assert "@everyone" not in made and "<!" not in made and "](" not in made
    assert harmless("rank 2 on n07 (a < b) mail@host") == "rank 2 on n07 (a < b) mail@host"


def test_secrets_come_from_files_or_the_environment_and_a_missing_one_is_named(tmp_path):
    (tmp_path / "key").write_text("R2\n")
    notify = Notify(
        slack=Slack(channel="C0123456"), pagerduty=PagerDuty(key_file=str(tmp_path / "key")),
        apprise=Apprise(urls_file=str(tmp_path / "nothing")),
    )  # fmt: skip
    found, wrong = services_of(notify, Settings(slack_token="xoxb-9"))
    assert [one.name for one in found] == ["slack", "pagerduty"]
    assert found[1].key == "R2" and "R2" not in repr(found) and "xoxb-9" not in repr(found)
    assert [one.subject for one in wrong] == ["notify.apprise"]
    policy = tmp_path / "policy.yaml"
    policy.write_text("notify: {slack: {channel: general}}\n")
    with pytest.raises(ConfigError, match="is no channel's id"):
        load_policy(policy)


def test_the_command_tries_each_service_and_says_which_fails(fake, tmp_path):
    (tmp_path / "policy.yaml").write_text(
        f"notify: {{pagerduty: {{api: '{fake.url}'}}, alertmanager: {{url: '{fake.url}'}}}}\n"
    )
    fake.answers = [(400, {"message": "no such key"})]

    def rerail(*arguments, **more):
        return subprocess.run(
            [str(RERAIL), "notify", *arguments], capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "RERAIL_DATA_DIR": str(tmp_path / "data"),
                 "RERAIL_POLICY_FILE": str(tmp_path / "policy.yaml"), "RERAIL_PAGERDUTY_KEY": "R3", **more},
        )  # fmt: skip

    done = rerail("--test")
    assert (
        done.returncode == 1 and "alertmanager: took the test message, and its end" in done.stdout
    )
    assert "pagerduty: HTTP 400" in done.stderr and "R3" not in done.stdout + done.stderr
    missing = rerail(RERAIL_PAGERDUTY_KEY="")
    assert missing.returncode == 1 and "alertmanager: set up" in missing.stdout
    assert "RERAIL_PAGERDUTY_KEY" in missing.stderr


def test_a_service_that_is_not_set_up_is_a_clear_error(daemon, monkeypatch):
    monkeypatch.setattr("rerail.assistant.cli.notify.load_site", lambda: daemon.site)
    with pytest.raises(UsageError, match="no service is called 'mail'"):
        notify_command(test=True, service="mail")


def test_a_run_over_the_waiting_events_tells_before_it_ends(fake, tmp_path):
    (tmp_path / "train.log").write_text(LOG)
    (tmp_path / "policy.yaml").write_text(f"notify: {{alertmanager: {{url: '{fake.url}'}}}}\n")
    event = {"job": {"job": "7"}, "state": "FAILED", "time": "2026-01-01T00:00:00Z",
             "source": "t", "logs": [str(tmp_path / "train.log")]}  # fmt: skip
    spool.leave(tmp_path / "data" / spool.FOLDER, json.dumps(event).encode())
    done = subprocess.run(
        [str(RERAIL), "watch", "--once"], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "RERAIL_DATA_DIR": str(tmp_path / "data"),
             "RERAIL_POLICY_FILE": str(tmp_path / "policy.yaml")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [[alert]] = fake.bodies()
    assert alert["labels"]["job"] == "7" and "gpu-7" in alert["annotations"]["summary"]


def test_either_store_remembers_what_is_due_what_was_told_and_what_failed(empty_store_url, tmp_path):  # fmt: skip
    engine = open_store(Settings(data_dir=tmp_path / "told", store_url=empty_store_url))
    year = simulate(Truth(nodes=4, jobs=8, users=1, per_gpu_hour=1e-3), 3)
    first, second, *_ = incidents_of(year)
    try:
        with writing(engine) as connection:
            told.start(connection, "slack")
            assert told.look(connection, "slack", 10.0) == 0
            record(connection, first)
            assert told.look(connection, "slack", 10.0) == 1
            due = told.claim(connection, "slack", 10.0, 60.0)
            assert due.incident == first.id and told.claim(connection, "slack", 10.0, 60.0) is None
            assert told.failed(connection, "slack", due, "away", now=10.0, soon=True) == 2.0
            assert [row.note for row in told.waiting(connection)] == ["away"]
            record(connection, second)
            assert told.look(connection, "slack", 11.0) == 2
            assert told.claim(connection, "slack", 11.0, 60.0).incident == second.id
            again = told.claim(connection, "slack", 12.1, 60.0)
            assert (again.incident, again.tries) == (first.id, 1)
            told.said(connection, "slack", again, digest="d", handle={"key": "k"}, is_open=True)
            assert told.waiting(connection) == []
            assert not told.is_alone(connection, "slack", "other", "k")
            assert told.is_alone(connection, "slack", first.id, "k")
            assert (
                told.claim(connection, "slack", 71.5, 60.0).incident == second.id
            )  # its holder died
    finally:
        engine.dispose()


def test_the_doctor_says_whether_each_service_has_its_secret(daemon):
    def finding(**more):
        policy = SitePolicy(notify=Notify(**more))
        return _messages(replace(daemon.site, policy=policy))

    assert finding() == ("off", "notify in the policy file is empty")
    state, said = finding(alertmanager=Alertmanager(url="http://127.0.0.1:9093/"))
    assert state == "ok" and "alertmanager is set up" in said
    state, said = finding(pagerduty=PagerDuty())
    assert state == "bad" and "notify.pagerduty has no secret" in said
