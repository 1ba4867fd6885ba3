"""Approvals and actions stand in the timeline and in the post-mortem, read from the audit log."""

import pytest

from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.postmortem.draft import draft
from rerail.assistant.postmortem.merge import render
from rerail.assistant.postmortem.rule_words import rule_words
from rerail.assistant.record import make_incident
from rerail.assistant.response import load_whole, what_was_done
from rerail.assistant.watch.note_plan import note_plan
from rerail.domain.job import JobRef
from rerail.knowledge_base.store.engine import open_store, reading, writing
from rerail.knowledge_base.store.incidents import record
from rerail.recovery.policy import decide
from rerail.recovery.site_policy import SitePolicy
from rerail.recovery.situation import Situation
from rerail.recovery.store import audit, plans
from rerail.settings import Settings


@pytest.fixture
def store(tmp_path):
    engine = open_store(Settings(data_dir=tmp_path / "data"))
    yield engine
    engine.dispose()


def plan_for(incident, state):
    situation = Situation(
        incident=incident.id, job=JobRef(job="7"), state=state, nodes=("n1",), cluster_nodes=9,
        diagnosis=incident.diagnosis, now=1_772_000_000.0,
    )  # fmt: skip
    return decide(situation, SitePolicy())


def test_who_approved_what_is_told_once(store, job):
    folder = job(
        "step 1 loss 2\n[rank1]: Connection timed out: NCCL WARN socketStartConnect failed\n"
    )
    incident = make_incident(diagnose_paths([folder]), [folder])
    plan = plan_for(incident, "NODE_FAIL")
    with writing(store) as connection:
        record(connection, incident)
        plans.save(connection, plan, b"k" * 32)
        note_plan(connection, plan)  # as the daemon does
        audit.note(connection, "ann", "step_approved", f"{plan.id}/1", digest=plan.digest)
        audit.note(connection, "rerail", "action_approved", f"{plan.id}/1")
        audit.note(connection, "rerail", "action_verified", f"{plan.id}/1", note="it runs")
        audit.note(connection, "rerail", "step_approved", "P-other/1")
    with reading(store) as connection:
        file = load_whole(connection, incident.id)
    told = [e.text for e in file.timeline if str(e.source) == "recovery"]
    assert len(told) == 3 and told[0].startswith(f"plan {plan.id} by rule default")
    assert "approved" in told[1] and "verified (it runs)" in told[2]
    assert what_was_done(file) == [f"requeue 7: verified (it runs)   [step 1 of {plan.id}]"]
    text = render(draft(file, rule_words(file)))
    response = text.split("## Response")[1].split("rerail:end")[0]
    assert "ann: step 1 of" in response and "Nothing was approved" not in response
    assert f"{plan.id} {plan.digest[:12]}; audit entries 1 to 4" in text.replace("\\", "")


def test_what_was_noted_beside_a_plan_stays_and_has_no_audit_entry(store, job):
    folder = job("[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n")
    incident = make_incident(diagnose_paths([folder]), [folder])
    plan = plan_for(incident, "FAILED")
    with writing(store) as connection:
        record(connection, incident)
        plans.save(connection, plan, b"k" * 32)
        note_plan(connection, plan, "; asked for")
    with reading(store) as connection:
        file = load_whole(connection, incident.id)
    assert sum(e.text.endswith("; asked for") for e in file.timeline) == 1
    assert f"{plan.id} {plan.digest[:12]}; audit entries" in render(
        draft(file, rule_words(file))
    ).replace("\\", "")


def test_an_incident_without_a_plan_is_as_it_was(store, job):
    folder = job("[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n")
    incident = make_incident(diagnose_paths([folder]), [folder])
    with writing(store) as connection:
        record(connection, incident)
    with reading(store) as connection:
        assert all(
            str(e.source) != "recovery" for e in load_whole(connection, incident.id).timeline
        )
