"""Where vectors come from: an endpoint, a local package or folder, or hashed letters. No download.

`wordllama` is a package that brings its 16 MB of word vectors along. `hashed` needs nothing and
knows no meaning: it counts hashed letter sequences, and finds the same error under other spellings.
"""

from __future__ import annotations

import json
import logging
import math
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rerail.errors import ConfigError, ModelError
from rerail.settings import Settings

Vectors = list[list[float]]
HASHED, WORDLLAMA, NONE = "hashed", "wordllama", "none"
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


def chosen_model(settings: Settings) -> str:
    """Return the embedding that the settings mean: its name, or empty for words alone.

    Where nothing is set, words serve alone: on cases that chose nothing they found more than words and
    vectors together (`rerail eval retrieval --held-out`, docs/model.md).
    """
    if settings.embedding_url:
        return f"{settings.embedding_model}@endpoint"
    if settings.embedding_model == NONE:
        return ""
    return settings.embedding_model


def embedder_from(settings: Settings) -> Embedder:
    """Return the embedder that the settings mean, hashed letters where they mean none.

    Raises:
        ConfigError: when a local model was named that is not there.
    """
    name = chosen_model(settings)
    if settings.embedding_url:
        return Embedder(name, _endpoint(settings))
    if name == WORDLLAMA:
        return Embedder(name, _wordllama())
    if name and name != HASHED:
        return Embedder(name, _local(name))
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
            with _opener(settings).open(request, timeout=_TIMEOUT_S) as answer:
                rows = json.loads(_bounded(answer, len(texts)))["data"]
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


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Texts go to the configured address alone."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


def _opener(settings: Settings) -> urllib.request.OpenerDirector:
    proxy = settings.model_proxy
    chosen = {"http": proxy, "https": proxy} if proxy else {}
    return urllib.request.build_opener(urllib.request.ProxyHandler(chosen), _NoRedirect())


def _bounded(answer: Any, texts: int) -> bytes:
    """Read an answer of at most a megabyte a text, within the time."""
    ends, most = time.monotonic() + _TIMEOUT_S, (texts + 1) << 20
    parts, held = [], 0
    while piece := answer.read1(1 << 16):
        parts.append(piece)
        held += len(piece)
        if held > most or time.monotonic() > ends:
            raise ValueError("its answer is too long, or comes too slowly")
    return b"".join(parts)


def _package_folder() -> Path | None:
    """Return the folder of the package with its word vectors in it; None when either is missing."""
    spec = find_spec(WORDLLAMA)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    return folder if any((folder / "weights").glob("*.safetensors")) else None


def _wordllama() -> Callable[[Sequence[str]], Vectors]:
    folder = _package_folder()
    if folder is None:
        raise ConfigError(
            "the package wordllama is not installed, or lacks its vectors",
            subject="embedding_model",
            hint="pip install 'rerail[embeddings]', or RERAIL_EMBEDDING_MODEL=none for words alone",
        )
    root = logging.getLogger()
    before = (root.level, list(root.handlers))
    try:
        from wordllama import WordLlama

        # Its own search misses the tokenizer that lies beside the vectors and would fetch one;
        # with its folder as the cache both are found, and a fetch is forbidden.
        model = WordLlama.load(cache_dir=folder, disable_download=True)
    except (ImportError, OSError, ValueError) as error:
        raise ConfigError(
            f"the package wordllama cannot be used: {error}",
            subject="embedding_model",
            hint="pip install --force-reinstall 'rerail[embeddings]', or RERAIL_EMBEDDING_MODEL=none",
        ) from None
    finally:
        # The package sets up the root logger when it is imported; its lines are none of ours.
        root.setLevel(before[0])
        root.handlers[:] = before[1]

    def run(texts: Sequence[str]) -> Vectors:
        return [[float(x) for x in row] for row in model.embed(list(texts))]

    return run


def _local(folder: str) -> Callable[[Sequence[str]], Vectors]:
    path = Path(folder).expanduser()
    if not path.is_dir():
        # A name would make the library fetch the model; only what is already here is used.
        raise ConfigError(
            f"embedding_model {folder!r} is no folder",
            subject="embedding_model",
            hint="name wordllama, hashed, none or a folder with a sentence-transformers model, "
            "or set RERAIL_EMBEDDING_URL",
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
