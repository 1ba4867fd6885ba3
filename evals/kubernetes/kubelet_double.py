"""A stand-in for the kubelet: it answers what the real API server asks a node for when somebody reads a pod's log.

The path, `previous` and the refusals are those of kubelet 1.20 (pkg/kubelet/server, `/containerLogs`); nothing
runs on it.
"""

from __future__ import annotations

import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs, urlsplit


class KubeletDouble:
    """Serves logs by (pod, container, previous); use it as a context manager.

    An answer is a text, or an event that is waited for before an empty one. What has no answer is refused as the
    kubelet refuses it.
    """

    def __init__(self, folder: Path) -> None:
        self.logs: dict[tuple[str, str, bool], str | threading.Event] = {}
        self.asked: list[tuple[str, str, bool]] = []
        key, certificate = folder / "kubelet.key", folder / "kubelet.crt"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=kubelet",
             "-keyout", str(key), "-out", str(certificate)],
            check=True, capture_output=True,
        )  # fmt: skip
        double = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                double.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_port

    def __enter__(self) -> KubeletDouble:
        """Begin to answer."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def status(self) -> dict[str, object]:
        """Return what a node's status says of this kubelet."""
        return {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
        }

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer `/containerLogs/NAMESPACE/POD/CONTAINER?previous=true`."""
        parts = urlsplit(handler.path)
        before = parse_qs(parts.query).get("previous", [""])[0] == "true"
        _, _, _, pod, container = (parts.path.split("/") + [""] * 5)[:5]
        self.asked.append((pod, container, before))
        found = self.logs.get((pod, container, before))
        if isinstance(found, threading.Event):
            found.wait(300)
            found = ""
        body = found
        if body is None:
            which = "previous terminated " if before else ""
            body = f'{which}container "{container}" in pod "{pod}" not found'
        handler.send_response(200 if found is not None else 400)
        handler.send_header("Content-Type", "text/plain")
        handler.end_headers()
        handler.wfile.write(body.encode())
