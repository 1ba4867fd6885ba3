"""Search: words, vectors and both; near incidents first; unseen is an answer; nothing is downloaded."""

import logging
import math
import socket
from dataclasses import replace

import pytest

from rerail.errors import ConfigError, ModelError
from rerail.evals.fake_model.server import FakeModelServer, Reply
from rerail.knowledge_base.retrieval import embedding
from rerail.knowledge_base.retrieval.bm25 import Bm25, words
from rerail.knowledge_base.retrieval.documents import INCIDENT, RUNBOOK, Document, wording
from rerail.knowledge_base.retrieval.embedding import (
    Embedder,
    chosen_model,
    embedder_from,
    hashed,
)
from rerail.knowledge_base.retrieval.search import Question, Retriever, decay, seen
from rerail.knowledge_base.retrieval.vectors import VectorIndex
from rerail.settings import Settings

NOW = "2026-03-01T00:00:00.000Z"


def incident(name, text, **more):
    return Document(name, INCIDENT, name, text, core=text, time=NOW, **more)


DOCUMENTS = [
    incident(
        "oom",
        "torch OutOfMemoryError CUDA out of memory tried to allocate",
        fingerprint="f1",
        cluster="a",
    ),
    incident(
        "disk",
        "OSError errno_28 No space left on device writing checkpoint",
        fingerprint="f2",
        cluster="b",
    ),
    incident("nccl", "Watchdog caught collective operation timeout ALLREDUCE"),
    Document("runbook:cuda_oom", RUNBOOK, "cuda_oom", "CUDA out of memory smaller micro-batch"),
]


def names(hits):
    return [hit.document.id for hit in hits]


def test_words_split_names_and_drop_the_common_ones():
    assert words("the torch.OutOfMemoryError of cuda_oom 512") == [
        "torch", "outofmemoryerror", "out", "memory", "error", "cuda_oom", "cuda", "oom", "512",
    ]  # fmt: skip


def test_wording_leaves_out_what_varies_and_keeps_codes():
    text = wording(
        [
            "Xid (PCI:0000:8d:00): 79, pid=4711 at /a/b/c.py",
            "Xid (PCI:0000:1b:00): 79, pid=1 at /x/y",
        ]
    )
    assert "xid_hj" in text and "4711" not in text and "/a/b" not in text
    assert len(text.splitlines()) == 1


def test_bm25_prefers_rare_words_and_short_texts():
    index = Bm25(
        [
            words(text)
            for text in ("error error error", "error banana", "banana split " + "padding " * 50)
        ]
    )
    scores = index.scores("banana error")
    assert scores[1] == max(scores.values())
    assert index.coverage("banana error")[1] == 1.0 and index.coverage("kiwi") == {}


def test_the_right_incident_is_first_and_kinds_can_be_chosen():
    found = Retriever(DOCUMENTS)
    question = Question("CUDA out of memory", core="CUDA out of memory")
    assert names(found.search(question))[0] in ("oom", "runbook:cuda_oom")
    assert names(found.search(question, kind=INCIDENT))[0] == "oom"
    assert names(found.search(Question("errno_28 space left", but="disk"), kind=INCIDENT))[:1] != [
        "disk"
    ]


def test_unseen_is_an_answer():
    found = Retriever(DOCUMENTS)
    near = Question("x", core="Watchdog collective operation timeout")
    far = Question("x", core="flux capacitor overheated at warp nine")
    assert seen(found.search(near)) and not seen(found.search(far))
    # A runbook page is guidance; it never makes a failure a known one.
    only_page = Question("x", core="smaller micro-batch")
    assert not seen(found.search(only_page))


def test_fingerprint_cluster_and_age_move_incidents():
    twins = [
        incident("old", "same words here", cluster="a"),
        incident("near", "same words here", cluster="a", fingerprint="f"),
        incident("far", "same words here", cluster="b"),
    ]
    found = Retriever(twins).search(
        Question("same words here", core="same words here", cluster="a", fingerprint="f", time=NOW)
    )
    assert names(found) == ["near", "old", "far"] and "same fingerprint" in found[0].why
    assert decay(NOW, "2027-03-01T00:00:00.000Z") == pytest.approx(0.9)
    assert decay("", NOW) == 1.0 and decay("2001-01-01T00:00:00.000Z", NOW) == pytest.approx(0.8)


def test_age_orders_equals_and_never_hides_the_better_one():
    old = "2016-03-01T00:00:00.000Z"
    past = [
        replace(incident("better", "ncclUniqueId mismatch on port"), time=old),
        incident("newer", "mismatch of something else entirely"),
        replace(incident("older twin", "mismatch of something else entirely"), time=old),
    ]
    hits = Retriever(past).search(
        Question("ncclUniqueId mismatch port", core="ncclUniqueId mismatch port", time=NOW)
    )
    assert names(hits) == ["better", "newer", "older twin"]


class Near:
    """Vectors that say what they are told."""

    def __init__(self, *found):
        self.found = list(found)

    def update(self, documents):
        return 0

    def cosines(self, text, documents):
        known = {d.id for d in documents}
        return {name: cosine for name, cosine in self.found if name in known}


def test_vectors_add_what_words_miss_and_do_not_outweigh_them():
    question = Question("errno_28 space left", core="errno_28 space left")
    near = Retriever(DOCUMENTS, Near(("nccl", 0.9), ("oom", 0.4), ("disk", 0.3)))
    assert names(near.search(question))[:2] == ["disk", "nccl"]
    silent = Question("zzz", core="zzz")
    assert names(near.search(silent))[0] == "nccl" and not seen(near.search(silent))
    assert names(near.search(question, how="lexical")) == ["disk"]


def test_hashed_vectors_find_other_spellings():
    a, b, c = (
        hashed(t)
        for t in ("OutOfMemoryError allocate", "out_of_memory_errors allocating", "link down")
    )

    def cosine(x, y):
        return sum(p * q for p, q in zip(x, y, strict=True)) / math.sqrt(
            sum(p * p for p in x) * sum(q * q for q in y)
        )

    assert cosine(a, b) > 2 * abs(cosine(a, c)) and hashed("x y") == hashed("x y")


@pytest.mark.filterwarnings("default")
def test_vectors_live_in_the_data_folder_and_follow_the_documents(tmp_path):
    pytest.importorskip("chromadb")
    settings = Settings(data_dir=tmp_path, embedding_model="hashed")
    index = VectorIndex(settings, embedder_from(settings))
    assert index.update(DOCUMENTS) == 4 and index.update(DOCUMENTS) == 0
    assert max((c, n) for n, c in index.cosines("CUDA out of memory", DOCUMENTS).items())[1] in (
        "oom",
        "runbook:cuda_oom",
    )
    assert index.update(DOCUMENTS[:2]) == 0 and len(index.cosines("x", DOCUMENTS[:2])) == 2
    hits = Retriever(DOCUMENTS, index).search(
        Question("no space", core="OSErrors no spaces left"), how="dense"
    )
    assert names(hits)[0] == "disk" and hits[0].cosine is not None
    assert (tmp_path / "vectors").is_dir()


def test_an_endpoint_gives_vectors_and_its_failures_are_told(tmp_path):
    with FakeModelServer(lambda _: Reply(), embed=lambda text: [float(len(text)), 1.0]) as server:
        settings = Settings(embedding_url=server.url, embedding_model="m", data_dir=tmp_path)
        vectors = embedder_from(settings).embed(["ab", "abcd"])
        assert vectors[0] == pytest.approx([2 / 5**0.5, 1 / 5**0.5])
        assert server.requests[0]["input"] == ["ab", "abcd"]
    with pytest.raises(ModelError):
        embedder_from(settings).embed(["x"])
    with pytest.raises(ModelError):
        Embedder("m", lambda texts: [[]]).embed(["x"])


def test_a_failing_embedding_leaves_the_words(tmp_path):
    pytest.importorskip("chromadb")

    class Broken:
        def update(self, documents):
            raise ModelError("down")

    found = Retriever(DOCUMENTS, Broken())
    assert "words alone" in found.banner
    assert names(found.search(Question("errno_28 space left")))[0] == "disk"


def test_a_model_name_never_becomes_a_download(tmp_path):
    with pytest.raises(ConfigError, match="no folder"):
        embedder_from(Settings(embedding_model="all-MiniLM-L6-v2"))


def test_the_local_package_needs_no_network_and_leaves_the_log_alone(monkeypatch):
    pytest.importorskip("wordllama", reason="wordllama (extra embeddings) is not installed")

    def refused(*_, **__):
        raise OSError("the network is refused")

    monkeypatch.setattr(socket, "create_connection", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.setattr(socket.socket, "connect", refused)
    before = (logging.getLogger().level, list(logging.getLogger().handlers))
    made = embedder_from(Settings(embedding_model="wordllama"))
    disk, full, link = made.embed(["no space on disk", "the drive is full", "link flaps"])
    assert len(disk) == 256 and math.isclose(sum(x * x for x in disk), 1.0, rel_tol=1e-5)
    near, far = (sum(a * b for a, b in zip(disk, other, strict=True)) for other in (full, link))
    assert near > far + 0.1
    assert before == (logging.getLogger().level, list(logging.getLogger().handlers))


def test_empty_means_words_alone(monkeypatch):
    monkeypatch.setattr(embedding, "find_spec", lambda name: None)
    assert chosen_model(Settings(embedding_model="")) == ""
    with pytest.raises(ConfigError, match="not installed"):
        embedder_from(Settings(embedding_model="wordllama"))
    monkeypatch.undo()
    # Installed or not, words serve alone until vectors are asked for: they were measured to find more.
    assert chosen_model(Settings(embedding_model="")) == ""
    assert chosen_model(Settings(embedding_model="none")) == ""
