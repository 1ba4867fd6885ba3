"""What the store promises, on SQLite and on a real PostgreSQL."""

import pytest
from sqlalchemy import inspect, text

from rerail.domain.incident import Confirmation, EntrySource, SignOff, TimelineEntry
from rerail.errors import ConfigError, StoreError, UsageError
from rerail.knowledge_base.store import tables
from rerail.knowledge_base.store.alike import alike
from rerail.knowledge_base.store.engine import open_store, reading, writing
from rerail.knowledge_base.store.incidents import (
    append,
    count_healthy,
    find_id,
    list_incidents,
    load,
    node_history,
    record,
)
from rerail.knowledge_base.store.judgement import confirm, sign_off
from rerail.settings import Settings

NOON = "2026-03-02T12:00:00.000Z"


def keep(engine, *incidents):
    with writing(engine) as connection:
        return [record(connection, one) for one in incidents]


def test_tables_and_migrations_agree(engine):
    found = inspect(engine)
    for table in tables.METADATA.tables.values():
        assert {c.name for c in table.columns} == {c["name"] for c in found.get_columns(table.name)}


def test_the_same_diagnosis_twice_is_one_incident(engine, incident):
    assert keep(engine, incident(), incident()) == [True, False]
    with reading(engine) as connection:
        assert len(list_incidents(connection)) == 1
        assert [e.kind for e in load(connection, "last").timeline] == ["initiating", "diagnosed"]


def test_another_verdict_on_the_same_evidence_is_added_not_overwritten(engine, incident):
    keep(engine, incident(), incident(leaf="cuda_oom", node=None))
    with reading(engine) as connection:
        file = load(connection, "last")
        assert file.diagnosis.failure_type == file.row.failure_type == "cuda_oom"
        assert file.timeline[-1].kind == "diagnosed_again"
        assert connection.execute(text("SELECT count(*) FROM diagnoses")).scalar() == 2


@pytest.mark.parametrize(
    "verb", ["UPDATE timeline SET text = 'x'", "DELETE FROM timeline", "DELETE FROM diagnoses"]
)
def test_what_was_said_cannot_be_changed(engine, incident, verb):
    keep(engine, incident())
    with pytest.raises(StoreError, match="append-only"), writing(engine) as connection:
        connection.execute(text(verb))
    with reading(engine) as connection:
        assert len(load(connection, "last").timeline) == 2


def test_a_key_makes_an_entry_idempotent(engine, incident):
    one = incident()
    keep(engine, one)
    entry = TimelineEntry(time=NOON, source=EntrySource.HUMAN, kind="note", text="n", key="k")
    with writing(engine) as connection:
        assert append(connection, one.id, entry) == 3
        assert append(connection, one.id, entry) is None


def test_a_correction_changes_the_true_type_and_sign_off_needs_one(engine, incident):
    one = incident()
    keep(engine, one)
    word = SignOff(by="ann", time=NOON)
    with pytest.raises(UsageError, match="not said"), writing(engine) as connection:
        sign_off(connection, one.id, word)
    with writing(engine) as connection:
        confirm(
            connection,
            one.id,
            Confirmation(verdict="wrong", by="ann", time=NOON, failure_type="cuda_oom"),
        )
        sign_off(connection, one.id, word)
    with reading(engine) as connection:
        file = load(connection, one.id)
        assert file.row.true_type == "cuda_oom" and file.row.failure_type == "gpu_fallen_off_bus"
        assert file.sign_off().by == "ann" and file.confirmation().verdict == "wrong"
        assert [r.id for r in list_incidents(connection, failure_type="cuda_oom")] == [one.id]
    with pytest.raises(UsageError, match="no failure type"), writing(engine) as connection:
        confirm(
            connection, one.id,
            Confirmation(verdict="wrong", by="ann", time=NOON, failure_type="gremlins"),
        )  # fmt: skip


def test_node_history_counts_its_week_its_cluster_and_no_corrected_user_error(engine, incident):
    keep(
        engine,
        incident("old", time="2026-02-01T00:00:00.000Z"),
        incident("one"),
        incident("two", leaf="gpu_row_remap", time="2026-03-02T03:00:00.000Z"),
        incident("elsewhere", node="gpu-8"),
        incident("later", time="2026-03-05T03:00:00.000Z"),
        incident("user", time="2026-03-02T04:00:00.000Z"),
    )
    with writing(engine) as connection:
        confirm(
            connection, find_id(connection, incident("user").id),
            Confirmation(verdict="wrong", by="a", time=NOON, failure_type="cuda_oom"),
        )  # fmt: skip
    with reading(engine) as connection:
        found = node_history(connection, ["gpu-7"], cluster="local", until=NOON, but="INC-x")
        assert [e.failure_type for e in found] == ["gpu_row_remap", "gpu_fallen_off_bus"]
        assert not node_history(connection, ["gpu-7"], cluster="other", until=NOON)


def test_alike_puts_the_same_machine_first(engine, incident):
    keep(
        engine,
        incident("one"),
        incident("same node", time="2026-01-01T00:00:00.000Z"),
        incident("other node", node="gpu-9"),
        incident("other cause", leaf="cuda_oom"),
    )
    with reading(engine) as connection:
        one = load(connection, incident("one").id).row
        found = [r.id for r in alike(connection, one)]
    assert found == [incident("same node").id, incident("other node").id]


def test_ids_may_be_shortened_and_unknown_ones_have_a_hint(engine, incident):
    one = incident()
    keep(engine, one)
    with reading(engine) as connection:
        assert find_id(connection, one.id[4:9].upper()) == one.id
        for bad in ("zzzz", "INC-%"):
            with pytest.raises(UsageError) as error:
                find_id(connection, bad)
            assert error.value.hint == "rerail incidents"


def test_a_store_from_the_future_is_refused(settings):
    engine = open_store(settings)
    with writing(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(StoreError, match="revision 9999"):
        open_store(settings)


def test_bad_places_are_explained(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError) as error:
        open_store(Settings(data_dir=tmp_path / "file" / "data"))
    assert "RERAIL_DATA_DIR" in error.value.hint
    with pytest.raises(ConfigError):
        open_store(Settings(store_url="mysql://x"))
    with pytest.raises(StoreError):
        open_store(Settings(store_url=f"postgresql://x@/y?host={tmp_path}"))


def test_two_unknowns_are_not_alike(engine, incident):
    def unknown(name):
        one = incident(name)
        diagnosis = one.diagnosis.model_copy(update={"failure_type": None, "first_fault": None})
        return one.model_copy(update={"diagnosis": diagnosis})

    keep(engine, unknown("a"), unknown("b"))
    with reading(engine) as connection:
        assert alike(connection, load(connection, unknown("a").id).row) == []


def word(verdict="right", time=NOON, **more):
    return Confirmation(verdict=verdict, by="ann", time=time, **more)


def test_a_sign_off_ends_with_another_cause_or_fault_and_not_with_the_same_word(engine, incident):
    one = incident()
    keep(engine, one)
    signed = SignOff(by="ann", time=NOON)
    with writing(engine) as connection:
        confirm(connection, one.id, word())
        sign_off(connection, one.id, signed)
        assert not confirm(connection, one.id, word(note="as I said"))
        assert load(connection, one.id).sign_off() == signed
        assert confirm(connection, one.id, word("partly", first_fault="a.log:3"))
        file = load(connection, one.id)
        assert file.sign_off() is None and file.row.signed_off_at is None and file.lapsed()
        assert [e.kind for e in file.timeline if e.source in ("human", "system")] == [
            "confirmed", "signed_off", "confirmed", "confirmed", "sign_off_lapsed",
        ]  # fmt: skip
    with writing(engine) as connection:
        confirm(connection, one.id, word("wrong", failure_type="cuda_oom"))
        sign_off(connection, one.id, signed)
        assert confirm(connection, one.id, word())
        assert not list_incidents(connection, signed_off=True)


def test_a_sign_off_ends_when_the_rules_find_another_cause(engine, incident):
    one = incident()
    keep(engine, one)
    with writing(engine) as connection:
        confirm(connection, one.id, word())
        sign_off(connection, one.id, SignOff(by="ann", time=NOON))
    keep(engine, incident(leaf="cuda_oom", node=None))
    with reading(engine) as connection:
        file = load(connection, one.id)
    assert file.sign_off() is None and "the rules say cuda_oom now" in file.lapsed().text


def test_what_did_not_fail_counts_nowhere_until_a_person_says_that_it_did(engine, incident):
    fine = incident("fine", leaf="no_failure", outcome="no_failure")
    keep(engine, incident("one"), fine, incident("other", leaf="no_failure", outcome="no_failure"))
    with reading(engine) as connection:
        assert [r.id for r in list_incidents(connection)] == [incident("one").id]
        assert len(list_incidents(connection, healthy=True)) == 3
        assert count_healthy(connection) == 2
        assert not alike(connection, load(connection, fine.id).row)
        held = node_history(connection, ["gpu-7"], cluster="local", until=NOON)
        assert [e.incident for e in held] == [incident("one").id]
    with writing(engine) as connection:
        confirm(connection, fine.id, word("wrong", failure_type="gpu_row_remap"))
        confirm(connection, incident("one").id, word("wrong", failure_type="no_failure"))
        assert [r.id for r in list_incidents(connection)] == [fine.id]
        assert [r.failed for r in list_incidents(connection)] == [True]


def test_a_snapshot_that_was_read_is_kept_and_another_one_of_the_incident_is_read_anew(
    engine, incident
):
    keep(engine, incident())
    with reading(engine) as connection:
        first = load(connection, "last").incident
        assert load(connection, "last").incident.snapshot is first.snapshot
    later = first.snapshot.model_copy(update={"versions": {"torch": "2.13"}})
    keep(engine, first.model_copy(update={"snapshot": later}))
    with reading(engine) as connection:
        assert load(connection, "last").incident.snapshot.versions == {"torch": "2.13"}
