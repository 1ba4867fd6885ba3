"""Where vectors come from: an endpoint, a model in a local folder, or hashed letters. No download.

`hashed` needs nothing and knows no meaning: it counts hashed letter sequences, and finds the same
error under other spellings.
"""

from __future__ import annotations

import json
import math
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path

from rerail.errors import ConfigError, ModelError
from rerail.settings import Settings

Vectors = list[list[float]]
HASHED = "hashed"
_DIMENSIONS = 512
_BATCH = 64
_TIMEOUT_S = 30.0


class Embedder:
    """A named way to turn texts into vectors of length one."""

    def __init__(self, name: str, run: Callable[[Sequence[str]], Vectors]) -> None:
        self.name = name
        self._run = run

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one vector a text.

        Raises:
            ModelError: when the endpoint fails or answers with something else.
        """
        found: Vectors = []
        for at in range(0, len(texts), _BATCH):
            found += [
                _unit(v) for v in self._run([t[:8_000] or " " for t in texts[at : at + _BATCH]])
            ]
        return found


def embedder_from(settings: Settings) -> Embedder:
    """Return the embedder that the settings name.

    Raises:
        ConfigError: when a local model was named that is not there.
    """
    if settings.embedding_url:
        return Embedder(f"{settings.embedding_model}@endpoint", _endpoint(settings))
    if settings.embedding_model and settings.embedding_model != HASHED:
        return Embedder(settings.embedding_model, _local(settings.embedding_model))
    return Embedder(HASHED, lambda texts: [hashed(text) for text in texts])


def hashed(text: str) -> list[float]:
    """Return counts of hashed words and of letter runs of length 3 to 5, damped by a logarithm."""
    counts: dict[int, float] = {}
    for word in re.findall(r"[a-z0-9_]{2,}", text.lower()):
        padded = f"^{word}$"
        grams = [padded[i : i + n] for n in (3, 4, 5) for i in range(len(padded) - n + 1)]
        for gram in [padded, *grams]:
            digest = blake2b(gram.encode(), digest_size=4).digest()
            slot = int.from_bytes(digest, "big")
            sign = 1.0 if slot & 1 else -1.0
            at = (slot >> 1) % _DIMENSIONS
            counts[at] = counts.get(at, 0.0) + sign
    vector = [0.0] * _DIMENSIONS
    for at, count in counts.items():
        vector[at] = math.copysign(math.log1p(abs(count)), count)
    return vector


def _unit(vector: list[float]) -> list[float]:
    length = math.sqrt(sum(x * x for x in vector))
    if not vector or not math.isfinite(length):
        raise ModelError(
            "the embedding endpoint returned no numbers", subject="embedding", hint="check its log"
        )
    return [x / length for x in vector] if length else vector


def _endpoint(settings: Settings) -> Callable[[Sequence[str]], Vectors]:
    url = settings.embedding_url.rstrip("/") + "/embeddings"
    if not url.startswith(("http://", "https://")):
        raise ConfigError(
            "embedding_url is no http URL", subject="embedding_url", hint="http://host:8000/v1"
        )

    def run(texts: Sequence[str]) -> Vectors:
        body = json.dumps({"model": settings.embedding_model, "input": list(texts)}).encode()
        request = urllib.request.Request(  # noqa: S310 - the user's own endpoint, http or https
            url,
            data=body,
            headers={
                "Content-Type": "application/json",
                "Authorization": f"Bearer {settings.model_key.get_secret_value() or 'none'}",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                rows = json.loads(answer.read())["data"]
            ordered = sorted(rows, key=lambda row: row["index"])
            found = [[float(x) for x in row["embedding"]] for row in ordered]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(
                f"the embedding endpoint failed: {error}",
                subject=settings.embedding_url,
                hint="check RERAIL_EMBEDDING_URL; without it words alone are searched",
                recoverable=True,
            ) from None
        if len(found) != len(texts):
            raise ModelError(
                "the embedding endpoint returned another number of vectors",
                subject=settings.embedding_url,
                hint="check RERAIL_EMBEDDING_MODEL",
            )
        return found

    return run


def _local(folder: str) -> Callable[[Sequence[str]], Vectors]:
    path = Path(folder).expanduser()
    if not path.is_dir():
        # A name would make the library fetch the model; only what is already here is used.
        raise ConfigError(
            f"embedding_model {folder!r} is no folder",
            subject="embedding_model",
            hint="name a folder with a sentence-transformers model, or set RERAIL_EMBEDDING_URL",
        )
    try:
        from sentence_transformers import SentenceTransformer
    except ModuleNotFoundError:
        raise ConfigError(
            "sentence-transformers is not installed",
            subject="embedding_model",
            hint="pip install sentence-transformers, or set RERAIL_EMBEDDING_URL",
        ) from None
    model = SentenceTransformer(str(path), local_files_only=True)

    def run(texts: Sequence[str]) -> Vectors:
        return [[float(x) for x in row] for row in model.encode(list(texts))]

    return run
