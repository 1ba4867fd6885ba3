"""What reaches the daemon: strange files, floods, wrong fields, wrong clocks, full disks, odd schedulers."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.assistant.watch import presence
from rerail.assistant.watch.daemon import Daemon
from rerail.assistant.watch.hook import as_json, from_slurm, from_strigger, hook_command
from rerail.assistant.watch.intake import CURSOR
from rerail.assistant.watch.listener import Listener
from rerail.assistant.watch.receiver import events_of
from rerail.assistant.watch.site import Site
from rerail.domain.job import JobEvent, JobRef
from rerail.errors import ClusterError, RecoveryError
from rerail.knowledge_base.store.engine import open_store, reading, writing
from rerail.recovery import spool, webhook
from rerail.recovery.live_policy import open_policy
from rerail.recovery.site_policy import JobLayout, SitePolicy
from rerail.recovery.store import audit, control, plans, queue
from rerail.settings import Settings
from rerail.tools.clusters.kubernetes_watch import Heard
from rerail.tools.clusters.slurm_outputs import Outputs
from rerail.tools.clusters.slurm_read import JobFiles, SlurmReader
from rerail.tools.clusters.slurm_records import AttemptRecord, NodeRecord


class Clock:
    def __init__(self, now=None):
        self.now = time.time() if now is None else now

    def __call__(self):
        return self.now


class Slurm:
    """Knows which attempts there are; counts what it is asked."""

    def __init__(self):
        self.known, self.asked, self.error, self.lost = {}, [], None, set()

    def _answer(self):
        if self.error:
            raise self.error

    def attempts(self, job):
        self._answer()
        self.asked.append(job)
        if job not in self.known:
            raise ClusterError(f"Slurm knows no job {job}")
        return self.known[job]

    def ended_badly(self, since):
        self._answer()
        return [one for found in self.known.values() for one in found if (one.end or 0) >= since]

    def running(self):
        return []

    def nodes(self, names=()):
        return [NodeRecord(n, "DOWN" if n in self.lost else "IDLE") for n in names or ("n1", "n2")]

    def outputs(self, attempt):
        return Outputs()

    def files(self, job):
        return JobFiles(None, None, None)

    def save_logs(self, attempt, folder):
        (folder / "job" / "train.log").write_text("srun: error: n1: task 1: Killed\n")
        return []

    def cannot_requeue(self, job):
        return ""


@pytest.fixture
def said():
    return []


@pytest.fixture
def daemon(tmp_path, said):
    site_settings = Settings(data_dir=tmp_path / "data", cluster="c")
    engine = open_store(site_settings)
    clock = Clock()
    site = Site(site_settings, SitePolicy(), tmp_path / "data", Slurm())
    made = Daemon(site, engine, said.append, clock=clock, steady=clock, poll_s=1e9)
    made._polled = clock()
    yield made
    engine.dispose()


def record(job="1", state="FAILED", attempt=0, nodes=("n1", "n2"), end=None):
    end = time.time() if end is None else end
    return AttemptRecord(job, attempt, state, nodes, 1, start=end - 60, end=end)


def tell(daemon, job="1", source="slurm-hook", **more):
    event = JobEvent(
        job=JobRef(cluster="c", job=str(job)),
        source=source,
        state="FAILED",
        time="2026-01-01T00:00:00Z",
    )
    body = {**event.model_dump(mode="json"), **more}
    return Path(spool.leave(daemon.site.data / spool.FOLDER, json.dumps(body).encode()))


def counts(daemon):
    with reading(daemon.engine) as connection:
        return queue.counts(connection)


def plans_of(daemon):
    with reading(daemon.engine) as connection:
        return [json.loads(json.dumps(row.body)) for row in plans.latest(connection, 99)]


# ---------------------------------------------------------------- strange files


def test_strange_entries_are_said_once_and_the_next_event_is_taken(daemon, said, tmp_path):
    place = daemon.site.data / spool.FOLDER
    daemon.site.reader.known["1"] = [record()]
    tell(daemon)
    os.mkfifo(place / "a.json")
    (place / "b.json").mkdir()
    (place / "c.json").symlink_to("/etc/passwd")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(place / "d.json"))
    server.close()
    for _ in range(3):
        daemon.round()
    assert counts(daemon) == {"done": 1}
    assert sum("it is no file" in line for line in said) == 4
    assert not list(place.glob("*.json"))


def test_what_cannot_be_set_aside_is_said_once_and_ends_nothing(daemon, said, monkeypatch):
    place = daemon.site.data / spool.FOLDER
    tell(daemon)
    os.mkfifo(place / "a.json")

    def fails(path):
        raise RecoveryError("no space left on device")

    monkeypatch.setattr(spool, "set_aside", fails)
    for _ in range(3):
        daemon.round()
    assert sum("no space left" in line for line in said) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"exit_code": "many"}, "exit_code: input should be a valid integer"),
        ({"job": {"cluster": "c", "job": 7}}, "job.job: input should be a valid string"),
        ({"colour": "red"}, "colour: there is no such field"),
        ({"time": "yesterday"}, "time: 'yesterday' is no ISO 8601 time"),
        ({"time": "2999-01-01T00:00:00Z"}, "in the future: is a clock wrong?"),
    ],
)
def test_a_refused_event_names_its_wrong_field(daemon, said, change, why):
    job = change.pop("job", {"cluster": "c", "job": "1"})
    path = tell(daemon)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change, "job": job}))
    daemon.round()
    assert any(why in line for line in said), said
    with reading(daemon.engine) as connection:
        assert any(why in entry.body.get("why", "") for entry in audit.entries(connection))


def test_a_webhook_is_told_which_field_of_which_event_is_wrong():
    good = {"job": {"job": "1"}, "state": "FAILED", "time": "2026-01-01T00:00:00Z"}
    with pytest.raises(RecoveryError, match=r"event 2 of 2: state: field required"):
        events_of([good, {"job": {"job": "2"}, "time": "2026-01-01T00:00:00Z"}], "c")
    [event] = events_of({**good, "source": "poll"}, "c")
    assert event.source == "webhook:poll"  # nobody outside speaks for the scheduler


@pytest.mark.parametrize(
    ("ahead", "why"), [(400, "in the future"), (-400, "older than five minutes")]
)
def test_a_stale_and_a_future_webhook_are_called_what_they_are(tmp_path, ahead, why):
    now, key = 1_800_000_000, b"k" * 32
    stamp = now + ahead
    headers = {
        "webhook-id": "1",
        "webhook-timestamp": str(stamp),
        "webhook-signature": webhook.sign(key, "1", stamp, b"{}"),
    }
    with pytest.raises(RecoveryError, match=why):
        webhook.check(headers, b"{}", key, tmp_path, now=now)


def test_ids_are_remembered_across_time_spans_and_forgotten_later(tmp_path):
    span = webhook.SPAN_S
    assert webhook._first_time(tmp_path, "a", 10 * span - 1)
    assert not webhook._first_time(tmp_path, "a", 10 * span + 1)
    assert webhook._first_time(tmp_path, "b", 13 * span)
    assert len(list(tmp_path.iterdir())) == 1


def test_an_oversized_webhook_is_answered_and_leaves_no_traceback(tmp_path, capfd):
    said = []
    (tmp_path / "secret").write_text("whsec_" + "QUFB" * 8)
    listener = Listener("127.0.0.1:0", tmp_path / "secret", tmp_path, "c", said.append)
    try:
        for size in (2 << 20, 1 << 40):
            with socket.create_connection(("127.0.0.1", listener.port), timeout=10) as line:
                line.sendall(f"POST /events HTTP/1.1\r\nContent-Length: {size}\r\n\r\n".encode())
                line.sendall(b"x" * (2 << 20))
                if size > 2 << 20:
                    line.shutdown(socket.SHUT_WR)
                assert b" 413 " in line.makefile("rb").readline()
        with socket.create_connection(("127.0.0.1", listener.port), timeout=10) as line:
            line.sendall(b"POST /events HTTP/1.1\r\nContent-Length: 100\r\n\r\nx")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    finally:
        listener.close()
    assert "Traceback" not in "".join(capfd.readouterr())
    assert any("too many" in one for one in said)


# ---------------------------------------------------------------- whose turn it is


def test_a_flood_of_made_up_events_never_stands_before_a_real_one(daemon):
    for number in range(319):
        tell(daemon, str(10_000 + number), source="webhook")
    daemon.take_spool()
    tell(daemon, "1")
    daemon.site.reader.known["1"] = [record()]
    daemon.take_spool()
    daemon.work_off()
    before = daemon.site.reader.asked
    assert counts(daemon)["done"] == 1 and len(before) <= 4


def test_one_of_the_same_source_waits_for_a_few_tries_and_not_for_all(daemon):
    """Those that were not confirmed come behind those that were never asked for."""
    for number in range(60):
        tell(daemon, str(10_000 + number), source="webhook")
    for _ in range(20):
        daemon.round()
    daemon.clock.now += 400  # all of them are due again
    tell(daemon, "1", source="webhook")
    daemon.site.reader.known["1"] = [record()]
    daemon.site.reader.asked.clear()
    daemon.take_spool()
    daemon.work_off()
    assert counts(daemon)["done"] == 1 and len(daemon.site.reader.asked) <= 4


SOURCES = ("webhook", "slurm-hook", "poll")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*SOURCES, "confirm", "wait", "look"]), max_size=14))
def test_in_whatever_order_the_sources_tell_a_failure_it_is_planned_for_once(order):
    """First, second, twice, late, never: at the end the scheduler confirms and the poll tells."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        engine = open_store(Settings(data_dir=data))
        clock = Clock()
        site = Site(Settings(data_dir=data, cluster="c"), SitePolicy(), data, Slurm())
        one = Daemon(site, engine, lambda text: None, clock=clock, steady=clock, poll_s=1e9)
        one._polled = clock()
        failed = record(end=clock())
        site.reader.known["1"] = [replace(failed, state="RUNNING", end=None)]
        for what in [*order, "confirm", "poll", "look"]:
            if what == "confirm":
                site.reader.known["1"] = [failed]
            elif what == "wait":
                clock.now += 30
            elif what == "look":
                one.round()
            elif what == "poll":
                if site.reader.known["1"][0].state == "FAILED":
                    one._poll_ended(clock())
            else:
                tell(one, source=what)
        one.round()
        with reading(engine) as connection:
            assert queue.counts(connection) == {"done": 1}
            assert len(plans.latest(connection, 9)) == 1
        engine.dispose()


@pytest.mark.parametrize("first", ["job", "node"])
def test_a_lost_node_is_drained_whether_it_or_its_job_was_told_first(daemon, first):
    """Slurm calls the job FAILED while it believes in the node, and NODE_FAIL behind that."""
    daemon.site = replace(daemon.site, policy=SitePolicy(default_mode="propose"))
    daemon._equip()
    slurm = daemon.site.reader

    def job():
        tell(daemon)

    def node():
        event = {**from_strigger("down", "n1"), "cluster": "c"}
        spool.leave(daemon.site.data / spool.FOLDER, as_json(event).encode())
        slurm.lost.add("n1")

    for tells in (job, node) if first == "job" else (node, job):
        tells()
        slurm.known["1"] = [record(state="NODE_FAIL" if slurm.lost else "FAILED")]
        for _ in range(3):
            daemon.round()
            daemon.clock.now += 6
    made = plans_of(daemon)
    drains = [one["target"] for plan in made for one in plan["actions"] if one["kind"] == "drain"]
    assert drains == ["n1"] and len(made) == (2 if first == "job" else 1)


def test_a_failure_alone_is_planned_at_once_and_one_of_several_waits_for_the_others(daemon):
    stale = "[rank0]: OSError: [Errno 116] Stale file handle: '/lustre/ckpt/step_20.pt'\n"

    def save(attempt, folder):
        (folder / "job" / "train.log").write_text(stale)
        return []

    daemon.site.reader.save_logs = save
    assert JobLayout().group_wait_s == 30.0

    def fail(*jobs):
        for job in jobs:
            daemon.site.reader.known[job] = [record(job)]
            tell(daemon, job)
        daemon.round()
        return len([one for one in plans_of(daemon) if one["rule"] != "shared-root"])

    assert fail("1") == 1  # nothing else is open: at once
    assert fail("2") == 1  # the second of one file system waits for a third
    assert fail("3") == 2 or fail() == 3
    daemon.round()
    made = plans_of(daemon)
    assert len([one for one in made if one["rule"] == "shared-root"]) == 1
    folded = [one for one in made if any("part of" in why for why in one["refusals"])]
    assert len(folded) == 2  # nothing is automatic for the second and the third


def test_one_that_waited_for_others_in_vain_is_planned_after_the_time(daemon):
    stale = "[rank0]: OSError: [Errno 116] Stale file handle: '/lustre/ckpt/step_20.pt'\n"
    daemon.site.reader.save_logs = lambda attempt, folder: (
        ((folder / "job" / "train.log").write_text(stale) and []) or []
    )
    for job in ("1", "2"):
        daemon.site.reader.known[job] = [record(job)]
        tell(daemon, job)
        daemon.round()
    assert len(plans_of(daemon)) == 1
    daemon.clock.now += 31
    daemon.round()
    assert len(plans_of(daemon)) == 2


# ---------------------------------------------------------------- the machine


def test_a_full_disk_is_called_a_full_disk(daemon, said, monkeypatch):
    from sqlalchemy.exc import OperationalError

    def full(*arguments, **named):
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    daemon.poll_s = 0
    daemon._polled = float("-inf")
    daemon.site.reader.known["1"] = [record(end=daemon.clock() + 100)]
    monkeypatch.setattr(queue, "put", full)
    for _ in range(3):
        daemon.clock.now += 1
        daemon.round()
    lines = [line for line in said if "full" in line]
    assert len(lines) == 1 and "scheduler" not in lines[0] and "store" in lines[0]
    monkeypatch.undo()
    daemon.clock.now += 1
    daemon.round()
    assert counts(daemon) == {"done": 1}  # nothing was lost


def test_a_read_only_store_is_called_that_and_ends_nothing(tmp_path, said):
    data = tmp_path / "data"
    engine = open_store(Settings(data_dir=data))
    site = Site(Settings(data_dir=data, cluster="c"), SitePolicy(), data, Slurm())
    daemon = Daemon(site, engine, said.append, poll_s=1e9)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA query_only = 1")
        connection.commit()
    tell(daemon)
    daemon.round()
    engine.dispose()
    assert any("readonly" in line or "read-only" in line for line in said), said
    assert not any("scheduler" in line for line in said)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ClusterError("Unable to contact slurm controller", recoverable=True), "does not answer"),
        (ClusterError("Access/permission denied"), "the scheduler refuses"),
        (ValueError("not enough values to unpack"), "a bug in rerail: ValueError"),
        (
            OSError(28, "No space left on device", "/var/lib/rerail/x"),
            "/var/lib/rerail/x: No space",
        ),
    ],
)
def test_whatever_a_scheduler_answers_the_daemon_goes_on_and_names_the_cause(
    daemon, said, error, words
):
    daemon.poll_s, daemon._polled = 0, float("-inf")
    daemon.site.reader.error = error
    tell(daemon)
    for _ in range(3):
        daemon.clock.now += 1
        daemon.round()
    assert sum(words in line for line in said if line.startswith(("poll", "the sch"))) == 1, said
    daemon.site.reader.error = None
    daemon.site.reader.known["1"] = [record()]
    daemon.clock.now += 10
    daemon.round()
    assert counts(daemon) == {"done": 1}


GARBAGE = ["", "|", "||||||", "1|FAILED", "x\ny|z", "1|FAILED|1:0|n[1-|x|y|z", "\x00|\xff|" * 9]


@pytest.mark.parametrize("text", GARBAGE)
def test_odd_output_of_slurms_commands_is_no_end_of_the_daemon(daemon, said, monkeypatch, text):
    monkeypatch.setattr("rerail.tools.clusters.slurm_read.run_command", lambda *a, **k: text)
    daemon.site = replace(daemon.site, reader=SlurmReader())
    daemon.poll_s, daemon._polled = 0, float("-inf")
    daemon.clock.now += 1
    daemon.round()
    assert daemon.round() in (True, False)


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
def test_a_clock_that_is_set_makes_nobody_deaf(daemon, said, jump):
    steady = Clock(0.0)
    daemon.steady, daemon._polled, daemon._offset = steady, 0.0, daemon.clock() - steady()
    tell(daemon, "1")
    daemon.round()  # not confirmed: waits for its next try
    with writing(daemon.engine) as connection:
        control.put(connection, CURSOR, daemon.clock())
    daemon.clock.now += jump
    steady.now += 5
    daemon.site.reader.known["1"] = [record(end=daemon.clock())]
    daemon.poll_s = 1.0
    for _ in range(2):
        daemon.round()
        steady.now += 5
        daemon.clock.now += 5
    assert any("clock was set" in line for line in said)
    assert counts(daemon) == {"done": 1}


# ---------------------------------------------------------------- the hook


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    )
)
def test_what_the_hook_writes_is_json(value):
    assert json.loads(as_json(value)) == value


HOOK = "import sys; sys.argv[1:] = sys.argv[1:]; from rerail.assistant.entry import main; main()"


@pytest.mark.parametrize("arguments", [["--slurm"], ["--strigger", "down", "n1"], ["-"]])
def test_the_hook_loads_nothing_heavy(tmp_path, arguments):
    """Time belongs to the benchmark; what costs it is what is imported."""
    code = (
        "import atexit, sys\n"
        "heavy = ('pydantic', 'typer', 'rich', 'sqlalchemy', 'yaml', 'numpy', 'dataclasses',\n"
        "         'subprocess', 'asyncio', 'pathlib', 'uuid', 'logging', 'datetime')\n"
        "seen = lambda: sys.stderr.write(','.join(m for m in heavy if m in sys.modules))\n"
        "before = {m for m in heavy if m in sys.modules}\n"
        "heavy = tuple(m for m in heavy if m not in before)\n"
        "atexit.register(seen)\n" + HOOK
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "hook", *arguments],
        input='{"job": {"job": "1"}, "state": "FAILED"}',
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
        env={
            **os.environ,
            "RERAIL_DATA_DIR": str(tmp_path),
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_EXIT_CODE2": "1:0",
        },
    )
    assert (done.returncode, done.stderr) == (0, "")
    [path] = spool.waiting(tmp_path / spool.FOLDER).files
    content = json.loads(path.read_bytes())
    assert content.get("what") == "down" or JobEvent.model_validate(content).state == "FAILED"


def test_help_and_unknown_words_still_reach_the_whole_command_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", HOOK, "hook", "--help"],
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0 and "--strigger" in done.stdout


def test_standard_input_that_never_ends_holds_no_scheduler(tmp_path):
    read, write = os.pipe()
    started = subprocess.Popen(
        [sys.executable, "-c", HOOK, "hook", "-"],
        stdin=read,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RERAIL_DATA_DIR": str(tmp_path)},
    )
    try:
        _, error = started.communicate(timeout=30)
    finally:
        os.close(read)
        os.close(write)
    assert started.returncode == 0 and "did not end in time" in error


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"state": "FAILED"}', "job: an object is required, and is missing"),
        ('{"job": {"job": 7}, "state": "F"}', "job.job: a text is required"),
        ('{"job": {"job": "7"}}', "state: a text is required"),
        ('{"job": {"job": "7"}, "state": "F", "logz": []}', "logz: there is no such field"),
    ],
)
def test_an_error_about_an_event_names_the_field(tmp_path, capsys, text, field):
    (tmp_path / "event.json").write_text(text)
    code = hook_command(tmp_path / "event.json", slurm=False, process=False, limit_s=1)
    assert code == 0 and field in capsys.readouterr().err


def test_a_user_name_of_any_kind_is_carried_whole():
    environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_EXIT_CODE2": "1:0", "SLURM_JOB_USER": 'a"\n\\b'}
    event = JobEvent.model_validate(json.loads(as_json(from_slurm(environment))))
    assert event.job.user == 'a"\n\\b'


# ---------------------------------------------------------------- what is said must be true


def test_an_edited_policy_is_told_and_doctor_and_plans_know_it(tmp_path, said):
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"dry_run: false\nnotify: {{file: {tmp_path}/messages}}\n")
    live = open_policy(policy)
    data = tmp_path / "data"
    engine = open_store(Settings(data_dir=data))
    site = Site(Settings(data_dir=data, policy_file=policy), live.began, data, None, live)
    daemon = Daemon(site, engine, said.append)
    daemon.round()
    with reading(engine) as connection:
        [there] = presence.running(connection, time.time())
    assert presence.changed_since(there) == "" and there.policy == str(policy)
    policy.write_text("dry_run: true\n")
    for _ in range(3):
        daemon.round()
    assert sum("no step runs by itself" in line for line in said) == 1
    with reading(engine) as connection:
        [there] = presence.running(connection, time.time())
    assert "was changed" in presence.changed_since(there)
    [message] = (tmp_path / "messages").read_text().splitlines()
    assert json.loads(message)["kind"] == "held"
    # Somebody approves from a shell without the policy file: the daemon would act, so it is refused.
    other = Site(Settings(data_dir=data), SitePolicy(), data, None, open_policy(None))
    with pytest.raises(RecoveryError, match="acts by"):
        presence.check_same_policy(engine, other)
    assert not any("nothing is executed" in line for line in presence.what_runs(engine, other))
    engine.dispose()


@pytest.mark.parametrize(
    ("listed", "ended", "new"),
    [
        (True, 0.0, 1),  # in the second of our start: a server writes whole seconds
        (True, -60.0, 0),  # long before
        (False, -60.0, 1),  # the stream tells it now: the server's clock is behind
        (False, 3600.0, 1),
        (True, None, 1),
    ],
)
def test_what_a_stream_tells_is_old_only_if_it_stood_in_its_first_list(daemon, listed, ended, new):
    daemon._began = 1_800_000_000.9
    at = None if ended is None else 1_800_000_000.0 + ended
    heard = Heard("ml/Job/a", 0, "FAILED", at, listed=listed)
    daemon.stream = SimpleNamespace(taken=lambda: [heard])
    assert daemon.take_stream() == new
