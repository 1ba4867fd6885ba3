"""A thin HTTP server for webhooks beside the daemon; what a message says is the receiver's matter."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rerail.assistant.watch.receiver import Receiver, Reply, open_receiver
from rerail.errors import UsageError

MOST_DRAINED = 4 << 20


class _Server(ThreadingHTTPServer):
    """A server that tells of a broken connection in one line, and of nothing with a traceback."""

    daemon_threads = True
    request_queue_size = 128
    receiver: Receiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what broke, unless the other side just went away."""
        error = sys.exc_info()[1]
        if not isinstance(error, (ConnectionError, TimeoutError)):
            self.receiver.say(f"webhook from {client_address[0]}: {type(error).__name__}: {error}")


class Listener:
    """Listens in threads of its own; `close` ends it."""

    def __init__(
        self, address: str, secret_file: Path, data: Path, cluster: str, say: Callable[[str], None]
    ) -> None:
        host, _, port = address.rpartition(":")
        if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535 or not host:
            raise UsageError(
                f"--listen {address!r} is no HOST:PORT", subject=address, hint="127.0.0.1:9095"
            )
        receiver = open_receiver(secret_file, data, cluster, say)
        try:
            self.server = _Server((host, int(port)), _Handler)
        except OSError as error:
            raise UsageError(
                f"--listen {address}: {error.strerror}",
                subject=address,
                hint="an address of this host and a free port, 127.0.0.1:9095",
            ) from None
        self.server.receiver = receiver
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self.server.shutdown()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection; nothing is ever read back."""

    server: _Server
    timeout = 10
    server_version = "rerail"
    sys_version = ""

    def do_POST(self) -> None:
        """Check a message, keep its events, answer."""
        receiver, sender = self.server.receiver, str(self.client_address[0])
        length = self.headers.get("Content-Length")
        refusal = receiver.refuse_length(length, sender)
        if refusal is not None:
            if refusal.code == 413:
                self._drain(int(length or 0))
            self.close_connection = True
            self._answer(refusal)
            return
        body = self.rfile.read(int(length or 0))
        self._answer(receiver.receive(self.path, dict(self.headers.items()), body, sender))

    def _drain(self, length: int) -> None:
        """Read a little of what is too large: a sender that still writes would miss the answer."""
        left = min(length, MOST_DRAINED)
        while left > 0 and (piece := self.rfile.read(min(left, 1 << 16))):
            left -= len(piece)

    def _answer(self, reply: Reply) -> None:
        content = reply.content()
        self.send_response(reply.code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: who asks decides what would be logged."""
