"""The fake endpoint: speaks `/v1/chat/completions` (plain and streamed) and `/v1/embeddings`.

It plays what a behaviour returns for each request, including what broken servers do. Nothing in
the product imports it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, cast

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server does with one request.

    `tools` are (name, arguments) pairs. With another `status`, `text` is the error's message. `raw`
    replaces the whole body. `drip_s` sends one byte of the body each so many seconds, which no read
    time-out notices. A streamed answer is held after the words `hold_after` until `go` is set.
    """

    text: str = ""
    tools: Sequence[tuple[str, dict[str, Any]]] = ()
    status: int = 200
    raw: bytes | None = None
    delay_s: float = 0.0
    drip_s: float = 0.0
    usage: bool = True
    hold_after: str = ""
    go: threading.Event = field(default_factory=threading.Event)


Behaviour = Callable[[Body], Reply]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def owner(self) -> FakeModelServer:
        return cast("_Server", self.server).owner

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(size) or b"{}")
        self.owner.requests.append(body)
        try:
            if self.path.endswith("/embeddings"):
                self._send(200, self.owner.embeddings(body))
            else:
                self._play(self.owner.behaviour(body), body)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client gave up; that is what some scripts are for

    def _play(self, reply: Reply, body: Body) -> None:
        if self.owner.stopped.wait(reply.delay_s):
            return
        if reply.status != 200:
            self._send(
                reply.status, {"error": {"message": reply.text or "scripted", "code": "fake"}}
            )
        elif reply.raw is not None:
            self._send_bytes(reply.raw, reply.drip_s)
        elif body.get("stream"):
            self._stream(reply, body)
        else:
            self._send_bytes(json.dumps(_completion(reply, body)).encode(), reply.drip_s)

    def _send(self, status: int, content: Body) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send_bytes(self, data: bytes, drip_s: float) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if not drip_s:
            self.wfile.write(data)
            return
        for at in range(len(data)):
            if self.owner.stopped.wait(drip_s):
                return
            self.wfile.write(data[at : at + 1])
            self.wfile.flush()

    def _stream(self, reply: Reply, body: Body) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        sent, held = "", False
        for chunk in _chunks(reply, body):
            if reply.hold_after and reply.hold_after in sent and not held:
                held = True
                while not (reply.go.wait(0.05) or self.owner.stopped.is_set()):
                    pass
            sent += "".join(c["delta"].get("content", "") for c in chunk["choices"])
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.flush()
            if reply.drip_s and self.owner.stopped.wait(reply.drip_s):
                return
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        return


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, owner: FakeModelServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.owner = owner


class FakeModelServer:
    """A server on a free port; `requests` holds every body it was sent, in order."""

    def __init__(
        self, behaviour: Behaviour, *, embed: Callable[[str], list[float]] | None = None
    ) -> None:
        self.behaviour = behaviour
        self.embed = embed
        self.requests: list[Body] = []
        self.stopped = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """The base URL, as RERAIL_MODEL_URL takes it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def embeddings(self, body: Body) -> Body:
        """Return the answer to a request for embeddings."""
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        embed = self.embed or (lambda _: [0.0])
        return {
            "object": "list",
            "model": body.get("model", "fake"),
            "data": [
                {"object": "embedding", "index": i, "embedding": embed(str(text))}
                for i, text in enumerate(texts)
            ],
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }

    def __enter__(self) -> FakeModelServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()


def _message(reply: Reply) -> Body:
    message: Body = {"role": "assistant", "content": reply.text}
    if reply.tools:
        message["tool_calls"] = [
            {
                "id": f"call_{time.monotonic_ns()}_{i}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for i, (name, arguments) in enumerate(reply.tools)
        ]
    return message


def _completion(reply: Reply, body: Body) -> Body:
    content: Body = {
        "id": "fake",
        "object": "chat.completion",
        "created": 0,
        "model": body.get("model", "fake"),
        "choices": [
            {
                "index": 0,
                "message": _message(reply),
                "finish_reason": "tool_calls" if reply.tools else "stop",
            }
        ],
    }
    if reply.usage:
        content["usage"] = _usage(reply, body)
    return content


def _usage(reply: Reply, body: Body) -> Body:
    # Four bytes a token: the fake has no tokenizer, and says so by its name.
    read = len(json.dumps(body.get("messages", []))) // 4
    written = max(1, len(reply.text) // 4)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _chunks(reply: Reply, body: Body) -> list[Body]:
    def chunk(delta: Body, finish: str | None = None) -> Body:
        return {
            "id": "fake",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": body.get("model", "fake"),
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }

    found = []
    message = _message(reply)
    for at in range(0, len(reply.text), 24):
        found.append(chunk({"role": "assistant", "content": reply.text[at : at + 24]}))
    if reply.tools:
        calls = [{**call, "index": i} for i, call in enumerate(message["tool_calls"])]
        found.append(chunk({"role": "assistant", "tool_calls": calls}))
    found.append(chunk({}, "tool_calls" if reply.tools else "stop"))
    if reply.usage:
        found.append({**chunk({}), "choices": [], "usage": _usage(reply, body)})
    return found
