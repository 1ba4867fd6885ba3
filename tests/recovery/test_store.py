"""Queue and audit log: each event once, nothing lost, no entry changed unseen."""

import pytest
from sqlalchemy import inspect, text

from rerail.domain.job import JobEvent, JobRef
from rerail.errors import StoreError
from rerail.knowledge_base.store.engine import reading, writing
from rerail.recovery.store import audit, queue
from rerail.recovery.store.tables import METADATA


def event(job="7", attempt=0, state="FAILED"):
    return JobEvent(
        job=JobRef(job=job, attempt=attempt), source="t", state=state, time="2026-01-01T00:00:00Z"
    )


def test_the_migration_makes_the_tables_that_the_code_expects(engine):
    found = inspect(engine)
    for table in METADATA.sorted_tables:
        assert {c["name"] for c in found.get_columns(table.name)} == {c.name for c in table.columns}


def test_an_attempt_is_taken_once_and_a_stall_beside_its_failure(engine):
    with writing(engine) as connection:
        assert queue.put(connection, event(), now=1.0)
        assert not queue.put(connection, event(state="NODE_FAIL"), now=2.0)
        assert queue.put(connection, event(attempt=1), now=2.0)
        assert queue.put(connection, event(state="STALLED"), now=2.0)


def test_a_dead_workers_claim_runs_out_and_is_taken_by_another(engine):
    with writing(engine) as connection:
        queue.put(connection, event(), now=5.0)
        assert queue.claim(connection, "a", now=4.0) == []
        [first] = queue.claim(connection, "a", now=5.0, hold_s=60.0)
        assert queue.claim(connection, "b", now=64.0) == []
        [second] = queue.claim(connection, "b", now=66.0)
        assert (first.id, second.tries) == (second.id, 2)
        queue.finish(connection, second.id, now=67.0, incident="INC-1")
        assert queue.claim(connection, "c", now=1e9) == []


def test_a_worker_known_to_be_dead_does_not_keep_its_claims(engine):
    with writing(engine) as connection:
        queue.put(connection, event(), now=0.0)
        queue.claim(connection, "dead", now=1.0)
        assert queue.claim(connection, "b", now=2.0, is_gone=lambda holder: holder == "x") == []
        assert queue.claim(connection, "b", now=2.0, is_gone=lambda holder: holder == "dead")


def test_what_fails_comes_back_later_and_is_given_up_at_last(engine):
    now, tries = 0.0, 0
    with writing(engine) as connection:
        queue.put(connection, event(), now=now)
        while items := queue.claim(connection, "a", now=now):
            tries += 1
            queue.give_back(connection, items[0], "away", now=now)
            assert queue.claim(connection, "a", now=now) == []
            now += 301.0
        assert tries == queue.MOST_TRIES
        assert queue.counts(connection) == {"failed": 1}
        # Told of again later, as by a poll after an outage or at the true end of a job of which
        # a false event came first, it is worked off after all.
        assert not queue.put(connection, event(), now=now - 300.0)
        assert queue.put(connection, event(state="NODE_FAIL"), now=now)
        [item] = queue.claim(connection, "a", now=now)
        assert (item.event.state, item.tries) == ("NODE_FAIL", 1)
        queue.finish(connection, item.id, now=now, incident="INC-1")
        assert not queue.put(connection, event(), now=now + 1e6)


def write_three(engine):
    with writing(engine) as connection:
        for number in range(3):
            audit.note(connection, "ann", "did", f"P-{number}", detail={"n": number})


def without_triggers(engine, *statements):
    """Change the log as its database's administrator can."""
    triggers = (
        [f"DROP TRIGGER recovery_audit_no_{verb}" for verb in ("update", "delete")]
        if engine.dialect.name == "sqlite"
        else ["DROP TRIGGER recovery_audit_append_only ON recovery_audit"]
    )
    with writing(engine) as connection:
        for one in (*triggers, *statements):
            connection.execute(text(one))


@pytest.mark.parametrize(
    ("tampering", "broken_at"),
    [
        ("UPDATE recovery_audit SET actor = 'eve' WHERE number = 2", 2),
        ("UPDATE recovery_audit SET body = '{}' WHERE number = 1", 1),
        ("UPDATE recovery_audit SET time = '2026-01-01T00:00:00Z' WHERE number = 3", 3),
        ("DELETE FROM recovery_audit WHERE number = 2", 2),
        ("UPDATE recovery_audit SET previous = digest WHERE number = 3", 3),
    ],
)
def test_any_change_breaks_the_chain_where_it_was_made(engine, tampering, broken_at):
    write_three(engine)
    without_triggers(engine, tampering)
    with reading(engine) as connection:
        assert audit.verify(connection).broken_at == broken_at


def test_the_database_itself_refuses_changes_of_the_log(engine):
    write_three(engine)
    with pytest.raises(StoreError, match="append-only"), writing(engine) as connection:
        connection.execute(text("DELETE FROM recovery_audit"))
    with reading(engine) as connection:
        assert audit.verify(connection).entries == 3
