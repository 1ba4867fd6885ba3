"""kill -9 at any moment loses nothing that was acknowledged; two writers do not corrupt."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from rerail.domain.incident import EntrySource, TimelineEntry
from rerail.knowledge_base.fingerprint import incident_id
from rerail.knowledge_base.store.engine import open_store, reading, writing
from rerail.knowledge_base.store.inbox import inbox_folder, ingest, pending, submit
from rerail.knowledge_base.store.incidents import append, list_incidents, load, record

# Submits and takes in incidents for ever, and says so only after each is kept.
WRITER = """
import sys
from rerail.domain.incident import Incident
from rerail.knowledge_base.store.engine import open_store
from rerail.knowledge_base.store.inbox import ingest, submit
from rerail.knowledge_base.fingerprint import incident_id
base = Incident.model_validate_json(sys.stdin.read())
engine = open_store()
for number in range(100_000):
    name = f"{sys.argv[1]}-{number}"
    submit(base.model_copy(update={"id": incident_id(name), "identity": name}))
    print(incident_id(name), flush=True)
    if number % 3 == 0:
        ingest(engine)
"""


def writer(settings, incident, label):
    environment = {
        **os.environ,
        "RERAIL_DATA_DIR": str(settings.data_dir),
        "RERAIL_STORE_URL": settings.store_url,
    }
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, label], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env=environment,
    )  # fmt: skip
    process.stdin.write(incident.model_dump_json())
    process.stdin.close()
    return process


def test_kill_9_loses_nothing_acknowledged_even_with_two_writers(settings, incident):
    chance = random.Random(11)
    open_store(settings).dispose()
    said = []
    for turn in range(3):
        both = [writer(settings, incident(), f"{turn}{side}") for side in "ab"]
        first = [process.stdout.readline() for process in both]
        time.sleep(chance.uniform(0.0, 0.25))
        for process, line in zip(both, first, strict=True):
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().splitlines()
            process.wait()
            # The last line may be torn by the signal: it was then not acknowledged.
            said += [text for text in [line.strip(), *rest] if len(text) == len(incident_id("x"))]
            process.stdout.close()
    engine = open_store(settings)
    ingest(engine, settings)
    with reading(engine) as connection:
        kept = {row.id for row in list_incidents(connection, limit=100_000)}
        for name in said[:5]:
            assert [e.kind for e in load(connection, name).timeline] == ["initiating", "diagnosed"]
        if engine.dialect.name == "sqlite":
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    engine.dispose()
    assert len(said) >= 6 and set(said) <= kept
    assert not pending(settings)


def test_taking_in_twice_and_a_spoilt_file_change_nothing(settings, incident):
    path = submit(incident(), settings)
    body = path.read_bytes()
    engine = open_store(settings)
    assert ingest(engine, settings) == [incident().id]
    path.write_bytes(body)
    (inbox_folder(settings) / "INC-x.json").write_text("{")
    ingest(engine, settings)
    with reading(engine) as connection:
        assert len(list_incidents(connection)) == 1
        assert len(load(connection, "last").timeline) == 2
    assert [p.name for p in (inbox_folder(settings) / "rejected").iterdir()] == ["INC-x.json"]
    engine.dispose()


def test_a_failing_transaction_leaves_nothing(engine, incident):
    def fail():
        with writing(engine) as connection:
            record(connection, incident())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with reading(engine) as connection:
        assert list_incidents(connection) == []


def test_threads_number_one_timeline_without_gaps(engine, incident):
    from concurrent.futures import ThreadPoolExecutor

    one = incident()
    with writing(engine) as connection:
        record(connection, one)

    def note(number):
        entry = TimelineEntry(
            time="2026-03-02T00:00:00.000Z", source=EntrySource.HUMAN, kind="note", text=str(number)
        )
        with writing(engine) as connection:
            return append(connection, one.id, entry)

    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(note, range(40)))
    assert sorted(numbers) == list(range(3, 43))
