"""What a span of time counts: each failure once, by its latest verdict, on either database."""

import pytest

from rerail.domain.diagnosis import Cost
from rerail.domain.incident import Confirmation, EntrySource, TimelineEntry
from rerail.knowledge_base.store.engine import reading, writing
from rerail.knowledge_base.store.incidents import append, record
from rerail.knowledge_base.store.judgement import confirm
from rerail.knowledge_base.store.span import count_after, failures_between

SINCE, UNTIL = "2026-03-01T00:00:00.000Z", "2026-03-08T00:00:00.000Z"


def keep(engine, *incidents):
    with writing(engine) as connection:
        for one in incidents:
            record(connection, one)


def costing(one, hours, *nodes):
    said = one.diagnosis
    said = said.model_copy(
        update={
            "cost": Cost(idle_gpu_hours=hours),
            "suspects": said.suspects.model_copy(update={"nodes": list(nodes)}),
        }
    )
    return one.model_copy(update={"diagnosis": said})


def between(engine):
    with reading(engine) as connection:
        return failures_between(connection, SINCE, UNTIL)


def test_a_failure_counts_once_with_its_latest_verdict_and_the_time_of_its_first(engine, incident):
    first = costing(incident(), None, "gpu-7", "gpu-8")
    again = costing(incident(), 12.5, "gpu-7")
    again = again.model_copy(update={"recorded_at": "2026-03-02T00:00:00.000Z"})
    keep(engine, first, again)
    (one,) = between(engine)
    assert (one.idle_gpu_hours, one.nodes) == (12.5, ("gpu-7",))
    assert one.diagnosed_at == first.recorded_at and one.reported_at is None


def test_what_is_outside_healthy_or_corrected_to_healthy_does_not_count(engine, incident):
    keep(
        engine,
        incident("inside", time="2026-03-07T23:59:59.999Z"),
        incident("before", time="2026-02-28T23:59:59.999Z"),
        incident("behind", time=UNTIL),
        incident("well", outcome="no_failure", leaf="no_failure"),
        incident("called well"),
    )
    with writing(engine) as connection:
        word = Confirmation(verdict="wrong", by="a", time=UNTIL, failure_type="no_failure")
        confirm(connection, incident("called well").id, word)
    assert [one.row.id for one in between(engine)] == [incident("inside").id]
    with reading(engine) as connection:
        assert count_after(connection, UNTIL) == 1


@pytest.mark.parametrize(("true_type", "nodes"), [("cuda_oom", ()), ("gpu_row_remap", ("gpu-7",))])
def test_a_node_is_cleared_by_a_correction_to_a_cause_outside_the_machine(
    engine, incident, true_type, nodes
):
    keep(engine, incident())
    with writing(engine) as connection:
        word = Confirmation(verdict="wrong", by="a", time=UNTIL, failure_type=true_type)
        confirm(connection, incident().id, word)
    (one,) = between(engine)
    assert one.nodes == nodes and one.row.true_type == true_type


def test_the_end_of_the_job_is_the_first_that_the_scheduler_told(engine, incident):
    keep(engine, incident())
    times = ("no time", "2026-03-01T05:00:00+02:00", "2026-03-01T02:59:30Z")
    with writing(engine) as connection:
        for number, time in enumerate(times):
            entry = TimelineEntry(
                time=time, source=EntrySource.SCHEDULER, kind="job_event", text="x", key=str(number)
            )
            append(connection, incident().id, entry)
    assert between(engine)[0].reported_at == "2026-03-01T02:59:30Z"
