"""How long a connection may take to ask something, and how many may be about to: a slow client costs nobody else.

Uvicorn waits for ever for the headers of a request, and holds any number of connections. Here the headers have
seconds, and of the connections that have asked nothing yet the oldest makes room for a new one: whoever opens
thousands closes their own. What is asked then is bounded by the guard, by who asks.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEADERS_S = 10.0
"""Seconds from the first byte, or the connection, to the end of a request's headers."""
HEADERS_BYTES = 64 << 10
MOST_WAITING = 200
"""Connections that have asked nothing, or wait for the next request."""


class BoundedConnection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection of uvicorn's own protocol, with these limits."""

    headers_s = HEADERS_S
    most_waiting = MOST_WAITING
    waiting: OrderedDict[int, BoundedConnection] = OrderedDict()
    """Those of this process that are about to ask, the oldest first."""
    _due: asyncio.TimerHandle | None = None
    _bytes = 0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the headers of the first request."""
        super().connection_made(transport)
        self._wait()
        self._begin_headers()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; too long headers end the connection."""
        if self._asks_nothing():
            if self._due is None:
                self._begin_headers()
            self._bytes += len(data)
            # Of a body that came along nothing is known yet: it may fill one read beside the headers.
            if self._bytes > HEADERS_BYTES + (256 << 10):
                self._end()
                return
        super().data_received(data)
        if not self._asks_nothing():
            self._leave()

    def on_response_complete(self) -> None:
        """Wait for the next request of the same connection; uvicorn ends it when none begins."""
        super().on_response_complete()
        if self._asks_nothing() and not self.transport.is_closing():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._leave()
        super().connection_lost(exc)

    def _asks_nothing(self) -> bool:
        return self.cycle is None or bool(self.cycle.response_complete)

    def _begin_headers(self) -> None:
        self._due = self.loop.call_later(self.headers_s, self._end)

    def _wait(self) -> None:
        self.waiting[id(self)] = self
        while len(self.waiting) > self.most_waiting:
            next(iter(self.waiting.values()))._end()

    def _leave(self) -> None:
        self._bytes = 0
        self.waiting.pop(id(self), None)
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _end(self) -> None:
        self._leave()
        if not self.transport.is_closing():
            self.transport.abort()
