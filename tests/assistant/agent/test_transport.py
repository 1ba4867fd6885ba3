"""The endpoint is asked at its own address, and what it answers is counted while it comes."""

import gzip
import json
import threading
import tracemalloc
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rerail.assistant.agent.explain import explain
from rerail.evals.fake_model import behaviours as play
from rerail.evals.fake_model.server import FakeModelServer, Reply


@pytest.fixture
def server():
    """A bare HTTP server: what it answers is set by the test; the paths it was asked are kept."""
    opened = []

    def start(answer):
        asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                asked.append((self.path, dict(self.headers)))
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, headers, body = answer()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    for piece in body:
                        self.wfile.write(piece)
                except OSError:
                    return  # the reader has seen enough

            def log_message(self, *_):
                return

        running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        running.daemon_threads = True
        threading.Thread(target=running.serve_forever, daemon=True).start()
        opened.append(running)
        return f"http://127.0.0.1:{running.server_address[1]}/v1", asked

    yield start
    for running in opened:
        running.shutdown()
        running.server_close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(server, facts, settings_for, status):
    elsewhere, stolen = server(lambda: (200, {}, [b"{}"]))
    url, asked = server(lambda: (status, {"Location": f"{elsewhere}/chat/completions"}, []))
    said = explain(facts, settings_for(url))
    assert said.stand == "unavailable" and "redirects" in said.banner
    assert len(asked) == 1 and stolen == []


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
def test_a_compressed_flood_is_stopped_early(server, facts, settings_for, coding):
    bomb = gzip.compress(b"\0" * (300 << 20), 6) if coding == "gzip" else b"x" * 1000
    url, asked = server(lambda: (200, {"Content-Encoding": coding}, [bomb]))
    tracemalloc.start()
    said = explain(facts, settings_for(url, model_max_seconds=30.0))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert said.stand == "unavailable" and said.banner
    assert most < 64 << 20 and asked[0][1]["Accept-Encoding"] == "identity"
    if coding != "deflate":
        assert "longer than" in said.banner or "compressed" in said.banner


def test_an_endless_answer_is_stopped_early(server, facts, settings_for):
    def flood():
        while True:
            yield b" " * (1 << 16)

    url, _ = server(lambda: (200, {"Content-Type": "application/json"}, flood()))
    said = explain(facts, settings_for(url, model_max_seconds=30.0))
    assert said.stand == "unavailable" and "longer than 4 MiB" in said.banner


def test_an_honest_compressed_answer_is_read(server, facts, settings_for):
    reply = json.dumps(
        {
            "id": "x", "object": "chat.completion", "created": 0, "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop",
                         "message": {"role": "assistant", "content": '{"failure_type": null}'}}],
        }
    ).encode()  # fmt: skip
    url, _ = server(lambda: (200, {"Content-Encoding": "gzip"}, [gzip.compress(reply)]))
    assert explain(facts, settings_for(url)).stand == "abstains"


def test_proxies_of_the_environment_are_not_asked(server, facts, settings_for, monkeypatch):
    proxy, seen = server(lambda: (200, {}, [b"{}"]))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with FakeModelServer(play.echo) as model:
        assert explain(facts, settings_for(model.url)).stand == "agrees" and seen == []
        through = explain(facts, settings_for(model.url, model_proxy=proxy.removesuffix("/v1")))
    assert through.stand == "unavailable" and seen


@pytest.mark.parametrize("arguments", [["memory"], "memory", 7, None, {"text": ["x"]}, "[1", [{}]])
def test_odd_arguments_of_a_tool_do_not_end_the_explanation(facts, settings_for, arguments):
    def behaviour(body):
        if not play.called(body):
            return Reply(tools=[("grep", arguments)])
        return play.echo(body)

    with FakeModelServer(behaviour) as model:
        assert explain(facts, settings_for(model.url)).stand == "agrees"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "it is empty"),
        ("[1, 2]", "a list, not an object"),
        ("7", "a number, not an object"),
        ('{"claims": [', "breaks off"),
        ("{'a': 1}", "single quotes"),
        ('{"a": 1,}', "comma before a closing bracket"),
        ('{"a":' * 5000, "nested too deeply"),
        ("I think so.", "it is prose"),
    ],
)
def test_odd_json_is_named_for_what_it_is(facts, settings_for, text, named):
    with FakeModelServer(lambda _: Reply(text)) as model:
        said = explain(facts, settings_for(model.url))
    assert said.stand == "unavailable" and named in said.banner
