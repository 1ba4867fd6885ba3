"""Vectors on a Chroma server by URL: found there, apart for each store, and words alone without it."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rerail.errors import StoreError
from rerail.evals.faultlab.machine import free_port
from rerail.knowledge_base.retrieval.documents import INCIDENT, Document
from rerail.knowledge_base.retrieval.embedding import embedder_from
from rerail.knowledge_base.retrieval.search import Question, Retriever
from rerail.knowledge_base.retrieval.vectors import VectorIndex
from rerail.settings import Settings

NOW = "2026-03-01T00:00:00.000Z"


def incident(name, text):
    return Document(name, INCIDENT, name, text, core=text, time=NOW)


@pytest.fixture
def server(tmp_path):
    pytest.importorskip("chromadb")
    chroma = Path(sys.executable).parent / "chroma"
    if not chroma.exists():
        pytest.skip("the server of ChromaDB is not installed")
    port = free_port()
    with subprocess.Popen(
        [chroma, "run", "--host", "127.0.0.1", "--port", str(port), "--path", tmp_path / "server"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as running:  # fmt: skip
        try:
            for _ in range(300):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}", running
        finally:
            running.kill()


def test_a_server_keeps_the_vectors_of_each_store_apart(server, tmp_path):
    url, running = server
    one, two = (
        Settings(data_dir=tmp_path / name, chroma_url=url, embedding_model="hashed")
        for name in ("one", "two")
    )
    disk, link = incident("disk", "No space left on device"), incident("link", "NVLink went down")
    first = VectorIndex(one, embedder_from(one))
    assert first.update([disk]) == 1
    # Another store that shares the server neither sees nor clears what the first one put there.
    second = VectorIndex(two, embedder_from(two))
    assert second.update([link]) == 1 and set(second.cosines("space", [disk, link])) == {"link"}
    found = Retriever([disk], VectorIndex(one, embedder_from(one)))
    (hit,) = found.search(Question("no spaces left on devices"))
    assert hit.document.id == "disk" and hit.cosine is not None and not (tmp_path / "one").exists()
    running.kill()
    running.wait()
    # What was asked for is held; without the server nothing new can be opened.
    assert found.search(Question("No space left"))[0].document.id == "disk"
    with pytest.raises(StoreError, match="cannot be opened"):
        VectorIndex(one, embedder_from(one))
