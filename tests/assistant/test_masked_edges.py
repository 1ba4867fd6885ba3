"""No planted secret leaves by a notification, the inbox, or the log of the daemon, whoever wrote it there."""

import json
import sys
from dataclasses import replace

import pytest

from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.record import make_incident
from rerail.assistant.watch.daemon import Daemon
from rerail.assistant.watch.log import say
from rerail.assistant.watch.site import Site
from rerail.domain.job import Allocation, JobEvent, JobRef, NodeShare
from rerail.errors import ClusterError
from rerail.evals.attacks.planted import LABELS, leaked, planted
from rerail.knowledge_base.store.engine import open_store, reading
from rerail.knowledge_base.store.inbox import submit
from rerail.recovery import spool
from rerail.recovery.notify import send
from rerail.recovery.site_policy import JobLayout, Notify, SitePolicy
from rerail.recovery.store import outbox
from rerail.settings import Settings

KILLED = "srun: error: gpu-7: task 1: Killed\n"
EVERYTHING = KILLED + "".join(one.printed("[rank1]: ") for one in planted())


@pytest.mark.parametrize("label", LABELS)
def test_a_notification_holds_no_secret(tmp_path, label):
    words = {f"field {at}": one.printed(label) for at, one in enumerate(planted())}
    target = Notify(
        file=str(tmp_path / "messages"),
        command=(sys.executable, "-c", f"import sys; open({str(tmp_path / 'told')!r}, 'w').write(sys.stdin.read())"),
    )  # fmt: skip
    send({**words, "steps": [*words.values()], "to": "operators"}, target)
    for name in ("messages", "told"):
        text = (tmp_path / name).read_text()
        assert json.loads(text)["to"] == "operators" and leaked(text) == []


@pytest.mark.parametrize("one", planted(), ids=lambda one: one.kind)
def test_a_line_of_the_daemon_s_log_holds_no_secret(capsys, one):
    for label in LABELS:
        say(f"job 7: the scheduler refuses: {one.printed(label)}")
        out = capsys.readouterr().out
        assert leaked(out, [one]) == [] and out.count("\n") == 1 and "job 7" in out


def test_a_command_that_fails_is_told_without_its_password():
    target = Notify(command=("sh", "-c", "echo no --api-key $0 >&2; exit 3", "Zx9kLm3pQr7tVw2y"))
    with pytest.raises(ClusterError) as caught:
        send({"text": "x"}, target)
    assert (
        "Zx9kLm3pQr7tVw2y" not in caught.value.message
        and "sh ended with 3: no --api-key" in caught.value.message
    )


class Talkative:
    """A scheduler whose answers are full of secrets."""

    def ended_badly(self, since):
        raise RuntimeError(EVERYTHING)

    def __getattr__(self, name):
        def answer(*_, **__):
            raise ClusterError(EVERYTHING, subject="scheduler", recoverable=True)

        return answer


@pytest.fixture
def daemon(tmp_path):
    settings = Settings(data_dir=tmp_path / "data")
    policy = SitePolicy(
        jobs=JobLayout(group_wait_s=0), notify=Notify(file=str(tmp_path / "messages"))
    )
    engine = open_store(settings)
    yield Daemon(Site(settings, policy, tmp_path / "data", None), engine, say=say)
    engine.dispose()


def test_what_a_job_printed_leaves_the_daemon_by_no_way(daemon, tmp_path, capsys):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "train.log").write_text(EVERYTHING)
    event = JobEvent(
        job=JobRef(cluster="c", job="1"), source="t", state="FAILED", time="2026-01-01T00:00:00Z",
        logs=(str(logs),), allocation=Allocation(nodes=(NodeShare(node="gpu-7"),)),
        extra={f"comment {at}": one.printed() for at, one in enumerate(planted())},
    )  # fmt: skip
    folder = daemon.site.data / spool.FOLDER
    spool.leave(folder, event.model_dump_json().encode())
    spool.leave(folder, json.dumps({"job": EVERYTHING, "state": EVERYTHING}).encode())
    daemon.drain(30)
    daemon.site = replace(daemon.site, reader=Talkative())
    daemon._polled = float("-inf")
    daemon.round()
    daemon._say_once("stream", EVERYTHING)
    with daemon.engine.begin() as connection:
        outbox.put(connection, "x", {"text": EVERYTHING})
    log = capsys.readouterr().out
    assert "plan" in log and "a bug in rerail" in log and leaked(log) == []
    messages = (tmp_path / "messages").read_text()
    assert messages.count("\n") >= 1 and leaked(messages) == []
    from rerail.recovery.store.tables import CONTROL

    with reading(daemon.engine) as connection:
        kept = str(connection.execute(CONTROL.select()).all())
        names = [t.name for t in CONTROL.metadata.sorted_tables]
        rows = {
            name: str(connection.exec_driver_sql(f"SELECT * FROM {name}").all()) for name in names
        }
    assert "tell/x" in kept
    assert {name: found for name, text in rows.items() if (found := leaked(text))} == {}


def test_the_file_in_the_inbox_holds_no_secret(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "train.log").write_text(EVERYTHING)
    outcome = diagnose_paths([folder])
    path = submit(make_incident(outcome, [str(folder)]), Settings(data_dir=tmp_path / "data"))
    body = path.read_text()
    assert "gpu-7" in body and leaked(body) == []
