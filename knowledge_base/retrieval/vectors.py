"""Vectors in ChromaDB: embedded in the data folder, or on a server. Chroma never makes one itself."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any
from urllib.parse import urlparse

from rerail.errors import ConfigError, RerailError, StoreError
from rerail.knowledge_base.retrieval.documents import Document
from rerail.knowledge_base.retrieval.embedding import Embedder
from rerail.knowledge_base.store.engine import data_folder
from rerail.settings import Settings

FOLDER = "vectors"


def available() -> bool:
    """Tell whether the extra is installed."""
    from importlib.util import find_spec

    return find_spec("chromadb") is not None


class VectorIndex:
    """The vectors of one embedder; each model has a collection of its own."""

    def __init__(self, settings: Settings, embedder: Embedder) -> None:
        self._embedder = embedder
        self._held: dict[str, Any] = {}  # vectors by key, as far as they were asked for
        self._place = settings.chroma_url or str(data_folder(settings) / FOLDER)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._collection = _open(settings, _name(settings, embedder.name))
        except ModuleNotFoundError:
            raise ConfigError(
                "ChromaDB is not installed",
                subject="retrieval",
                hint="pip install 'rerail[retrieval]'",
            ) from None
        except Exception as error:  # Chroma raises its own kinds, and plain ones of its parts
            raise StoreError(
                f"the vector store cannot be opened: {error}",
                subject=self._place,
                hint="check RERAIL_CHROMA_URL; words alone are searched without it",
                recoverable=True,
            ) from error

    def update(self, documents: Sequence[Document]) -> int:
        """Embed the documents that have no vector yet; return how many. A changed text is another vector.

        Raises:
            StoreError: when the vector store fails; the documents are safe elsewhere.
            ModelError: when the embedding fails.
        """
        try:
            return self._update(documents)
        except RerailError:
            raise
        except Exception as error:  # Chroma raises its own kinds, and plain ones of its parts
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> StoreError:
        return StoreError(
            f"the vector store failed: {error}",
            subject=self._place,
            hint="another process may hold it; delete its folder to build it anew",
            recoverable=True,
        )

    def _update(self, documents: Sequence[Document]) -> int:
        wanted = {_key(d): d for d in documents}
        known = set(self._collection.get(ids=list(wanted), include=[])["ids"]) if wanted else set()
        fresh = [key for key in wanted if key not in known]
        for at in range(0, len(fresh), 500):
            part = fresh[at : at + 500]
            self._collection.add(
                ids=part,
                embeddings=self._embedder.embed([_embedded(wanted[key]) for key in part]),
                metadatas=[{"document": wanted[key].id} for key in part],
            )
        return len(fresh)

    def cosines(self, text: str, documents: Sequence[Document]) -> dict[str, float]:
        """Return the cosine similarity of each document that has a vector, by its id.

        Raises:
            StoreError: when the vector store fails.
            ModelError: when the embedding fails.
        """
        try:
            return self._cosines(text, documents)
        except RerailError:
            raise
        except Exception as error:
            raise self._failed(error) from error

    def _cosines(self, text: str, documents: Sequence[Document]) -> dict[str, float]:
        import numpy as np

        names = {_key(d): d.id for d in documents}
        new = [key for key in names if key not in self._held]
        if new:
            found = self._collection.get(ids=new, include=["embeddings"])
            self._held.update(zip(found["ids"], found["embeddings"], strict=True))
        keys = [key for key in names if key in self._held]
        if not keys:
            return {}
        (asked,) = self._embedder.embed([text])
        cosines = np.asarray([self._held[key] for key in keys]) @ np.asarray(asked)
        return {names[key]: float(cosine) for key, cosine in zip(keys, cosines, strict=True)}


def _open(settings: Settings, name: str) -> Any:
    import chromadb
    from chromadb.config import Settings as ChromaSettings

    # Chroma's client cannot close the connections that it keeps for later, so it keeps none.
    quiet = ChromaSettings(anonymized_telemetry=False, chroma_http_max_keepalive_connections=0)
    if settings.chroma_url:
        parts = urlparse(settings.chroma_url)
        client = chromadb.HttpClient(
            host=parts.hostname or "localhost",
            port=parts.port or 8000,
            ssl=parts.scheme == "https",
            settings=quiet,
        )
    else:
        folder = data_folder(settings) / FOLDER
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        client = chromadb.PersistentClient(path=str(folder), settings=quiet)
    # Without an embedding function of its own, Chroma has nothing to download.
    return client.get_or_create_collection(
        name, embedding_function=None, metadata={"hnsw:space": "cosine"}
    )


def _name(settings: Settings, embedder: str) -> str:
    # Several stores may share a server, and each clears what it does not know.
    store = settings.store_url or str(data_folder(settings))
    return "rerail-" + sha256(f"{embedder}\n{store}".encode()).hexdigest()[:16]


def _embedded(document: Document) -> str:
    """Return what stands for a document: what a person called it, and its own wording."""
    return f"{document.title}\n{document.core or document.text}"


@lru_cache(maxsize=8192)
def _key(document: Document) -> str:
    """A document whose text changed is another vector."""
    return sha256(f"{document.id}\n{_embedded(document)}".encode()).hexdigest()[:32]
