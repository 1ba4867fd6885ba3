"""The one way to a model's endpoint: its own host, no redirect, one proxy, bounded answers.

What is sent is text of logs, so it goes to the address that was configured and to no other. What
comes back is from a stranger: it is counted and, where the server compresses it unasked, inflated
piece by piece, so that a few kilobytes cannot become gigabytes (RFC 9110, 8.4 and 15.4).
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator

import httpx

from rerail.errors import ConfigError, ModelError
from rerail.settings import Settings

MOST_BYTES = 4 << 20
"""Longest answer that is read, in bytes after inflating; 4,000 tokens are some 20 kB."""
_PIECE = 1 << 16
_INFLATE = {"gzip": 31, "x-gzip": 31, "deflate": 47}


def open_client(settings: Settings) -> httpx.Client:
    """Return a client that speaks to the settings' endpoint alone.

    Raises:
        ConfigError: when the proxy is no URL that can be used.
    """
    address = httpx.URL(settings.model_url)
    try:
        # Neither HTTP_PROXY nor ~/.netrc: who reads the prompts is said in one place.
        inner = httpx.HTTPTransport(
            proxy=settings.model_proxy or None,
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )
    except (ValueError, ImportError) as error:
        raise ConfigError(
            f"model_proxy: {error}",
            subject="model_proxy",
            hint="RERAIL_MODEL_PROXY=http://proxy:3128",
        ) from None
    return httpx.Client(
        transport=_Guarded(inner, address, settings.model_max_seconds),
        follow_redirects=False,
        trust_env=False,
        timeout=settings.model_max_seconds,
    )


class _Guarded(httpx.BaseTransport):
    """Checks where a request goes and how much comes back."""

    def __init__(self, inner: httpx.BaseTransport, address: httpx.URL, seconds: float) -> None:
        self._inner = inner
        self._own = (address.scheme, address.host, address.port)
        self._seconds = seconds

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request to the endpoint's own host and return its bounded answer.

        Raises:
            ModelError: for another host, a redirect, or an encoding that was not asked for.
        """
        url = request.url
        if (url.scheme, url.host, url.port) != self._own:
            raise ModelError(
                f"a request to {url.host} was stopped: it is not the configured endpoint",
                subject=url.host,
                hint="check RERAIL_MODEL_URL",
            )
        request.headers["Accept-Encoding"] = "identity"
        ends = time.monotonic() + self._seconds
        response = self._inner.handle_request(request)
        if 300 <= response.status_code < 400:
            target = response.headers.get("location", "")
            response.close()
            shown = httpx.URL(target).host if target.startswith("http") else target[:60]
            raise ModelError(
                f"the endpoint redirects to {shown or 'nowhere'}; prompts go to the configured address alone",
                subject="redirect",
                hint="set RERAIL_MODEL_URL to the address that answers",
            )
        coding = response.headers.pop("content-encoding", "identity").strip().lower()
        response.headers.pop("content-length", None)
        stream = response.stream
        assert isinstance(stream, httpx.SyncByteStream)
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=_Bounded(stream, coding, ends, self._seconds),
            extensions=response.extensions,
        )

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


class _Bounded(httpx.SyncByteStream):
    """The body of an answer, counted while it arrives."""

    def __init__(
        self, inner: httpx.SyncByteStream, coding: str, ends: float, seconds: float
    ) -> None:
        self._inner = inner
        self._coding = coding
        self._ends = ends
        self._seconds = seconds

    def __iter__(self) -> Iterator[bytes]:
        held = 0
        for piece in self._plain():
            held += len(piece)
            if held > MOST_BYTES:
                raise ModelError(
                    f"the endpoint's answer is longer than {MOST_BYTES >> 20} MiB; reading was stopped",
                    subject="answer",
                    hint="check what answers at RERAIL_MODEL_URL",
                )
            if time.monotonic() > self._ends:
                raise ModelError(
                    f"the model did not finish within {self._seconds:g} s",
                    subject="seconds",
                    hint="raise RERAIL_MODEL_MAX_SECONDS",
                )
            yield piece

    def _plain(self) -> Iterator[bytes]:
        if self._coding in ("", "identity"):
            yield from self._inner
            return
        if self._coding not in _INFLATE:
            raise ModelError(
                f"the endpoint compressed its answer ({self._coding[:20]}), which it was not asked to",
                subject="content-encoding",
                hint="turn compression off at the server or the proxy before it",
            )
        inflate = zlib.decompressobj(_INFLATE[self._coding])
        for raw in self._inner:
            waiting = raw
            while waiting:
                piece = inflate.decompress(waiting, _PIECE)
                waiting = inflate.unconsumed_tail
                if piece:
                    yield piece

    def close(self) -> None:
        """Let go of the connection."""
        self._inner.close()
