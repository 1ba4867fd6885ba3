"""Only what a person signed off is retrieved; drafts and unsigned incidents never are."""

import pytest

from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.record import make_incident
from rerail.domain.incident import Confirmation, EntrySource, SignOff, TimelineEntry
from rerail.knowledge_base.retrieval import vectors
from rerail.knowledge_base.retrieval.documents import INCIDENT
from rerail.knowledge_base.retrieval.knowledge import open_knowledge, question_of
from rerail.knowledge_base.retrieval.search import seen
from rerail.knowledge_base.store.engine import open_store, writing
from rerail.knowledge_base.store.incidents import append, record
from rerail.knowledge_base.store.judgement import confirm, sign_off
from rerail.settings import Settings

NOON = "2026-03-02T12:00:00.000Z"
OOM = "[rank{r}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {n}.00 GiB. GPU {r} has a total capacity of 79 GiB\n"


@pytest.fixture
def kept(job, tmp_path):
    settings = Settings(data_dir=tmp_path / "data")
    engine = open_store(settings)

    def keep(text):
        folder = job(text)
        incident = make_incident(diagnose_paths([folder]), [folder])
        with writing(engine) as connection:
            record(connection, incident)
        return incident

    yield engine, settings, keep
    engine.dispose()


def test_a_recurrence_finds_the_signed_incident_only(kept):
    engine, settings, keep = kept
    first, unsigned = keep(OOM.format(r=1, n=2)), keep(OOM.format(r=2, n=3))
    with writing(engine) as connection:
        confirm(connection, first.id, Confirmation(verdict="right", by="a", time=NOON))
        sign_off(connection, first.id, SignOff(by="a", time=NOON, resolution="halved the batch"))
    later = keep(OOM.format(r=5, n=7))
    knowledge = open_knowledge(engine, settings)
    hits = knowledge.search(question_of(later), kind=INCIDENT)
    assert [h.document.id for h in hits] == [first.id] and seen(hits)
    assert unsigned.id != first.id and "halved the batch" in hits[0].document.text
    every = knowledge.search(question_of(later), most=10)
    assert "runbook:cuda_oom" in [h.document.id for h in every]


def test_a_correction_and_later_notes_are_not_retrieved_until_signed_again(kept):
    engine, settings, keep = kept
    one = keep(OOM.format(r=1, n=2))

    def found():
        hits = open_knowledge(engine, settings).search(question_of(later), kind=INCIDENT)
        return [(h.document.leaf, h.document.text) for h in hits]

    with writing(engine) as connection:
        confirm(connection, one.id, Confirmation(verdict="right", by="a", time=NOON))
        sign_off(connection, one.id, SignOff(by="a", time=NOON, resolution="halved it"))
        note = TimelineEntry(time=NOON, source=EntrySource.HUMAN, kind="note", text="drain gpu-1")
        append(connection, one.id, note)
    later = keep(OOM.format(r=5, n=7))
    ((leaf, text),) = found()
    assert leaf == "cuda_oom" and "halved it" in text and "drain gpu-1" not in text
    wrong = Confirmation(
        verdict="wrong", by="b", time=NOON, failure_type="gpu_occupied_by_other_process"
    )
    with writing(engine) as connection:
        confirm(connection, one.id, wrong)
    assert found() == []
    with writing(engine) as connection:
        sign_off(connection, one.id, SignOff(by="b", time=NOON))
    ((leaf, text),) = found()
    assert leaf == "gpu_occupied_by_other_process" and "drain gpu-1" in text


def test_a_failing_vector_store_is_a_banner(kept):
    engine, settings, _ = kept
    asked = settings.model_copy(update={"embedding_model": "/no/such/folder"})
    assert "words alone" in open_knowledge(engine, asked).banner


@pytest.mark.filterwarnings("default")
def test_the_local_vectors_serve_where_they_are_asked_for(kept):
    pytest.importorskip("wordllama", reason="wordllama (extra embeddings) is not installed")
    pytest.importorskip("chromadb")
    engine, settings, keep = kept
    first = keep(OOM.format(r=1, n=2))
    with writing(engine) as connection:
        confirm(connection, first.id, Confirmation(verdict="right", by="a", time=NOON))
        sign_off(connection, first.id, SignOff(by="a", time=NOON, resolution="x"))
    unset = settings.model_copy(update={"embedding_model": "wordllama"})
    knowledge = open_knowledge(engine, unset)
    (hit,) = knowledge.search(question_of(keep(OOM.format(r=5, n=7))), kind=INCIDENT)
    assert hit.cosine is not None and knowledge.banner == ""


def test_a_vector_store_that_breaks_later_leaves_the_words(kept, monkeypatch):
    pytest.importorskip("chromadb")
    engine, settings, keep = kept
    one = keep(OOM.format(r=1, n=2))
    with writing(engine) as connection:
        confirm(connection, one.id, Confirmation(verdict="right", by="a", time=NOON))
        sign_off(connection, one.id, SignOff(by="a", time=NOON, resolution="x"))

    class Locked:
        def get(self, **_):
            raise RuntimeError("database is locked")

    monkeypatch.setattr(vectors, "_open", lambda *_: Locked())
    found = open_knowledge(engine, settings.model_copy(update={"embedding_model": "hashed"}))
    (hit,) = found.search(question_of(keep(OOM.format(r=5, n=7))), kind=INCIDENT)
    assert hit.document.id == one.id
    assert "words alone" in found.banner and "database is locked" in found.banner
