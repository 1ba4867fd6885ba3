"""A slow or greedy client costs nobody else: headers, bodies, connections and answers under way are bounded."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import uvicorn

from rerail.assistant.web.connections import BoundedConnection
from rerail.assistant.web.guard import MOST_OPEN, MOST_TALKS, Access, Guard, _bounded

WAIT_S = 60  # for an event, on a busy machine
ASKED = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def _fine(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"fine"})


@pytest.fixture
def listening():
    """Start a server with small limits; give what connects to it."""
    servers, sockets = [], []

    def start(**limits):
        kind = type("Small", (BoundedConnection,), {**limits, "waiting": type(BoundedConnection.waiting)()})  # fmt: skip
        own = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(_fine, http=kind, log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [own]}, daemon=True)
        thread.start()
        servers.append((server, thread))

        def connect():
            sockets.append(socket.create_connection(own.getsockname(), WAIT_S))
            return sockets[-1]

        return connect

    yield start
    for one in sockets:
        one.close()
    for server, thread in servers:
        server.should_exit = True
        thread.join(WAIT_S)


def _is_closed(connection):
    try:
        return connection.recv(1000) == b""
    except ConnectionResetError:
        return True


def test_headers_that_do_not_come_end_the_connection_also_behind_a_first_request(listening):
    connect = listening(headers_s=0.3)
    slow = connect()
    slow.sendall(ASKED[:20])
    assert _is_closed(slow)
    second = connect()
    second.sendall(ASKED)
    assert second.recv(1000).startswith(b"HTTP/1.1 200")
    second.sendall(ASKED[:20])
    while not _is_closed(second):  # the rest of the first answer may still come
        pass


def test_endless_headers_end_the_connection(listening):
    connection = listening()()
    connection.sendall(ASKED[:-2])
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        connection.sendall((b"X-More: " + b"x" * 4000 + b"\r\n") * 5_000)


def test_who_opens_many_connections_closes_their_own_oldest_and_others_are_answered(listening):
    connect = listening(most_waiting=5)
    held = [connect() for _ in range(20)]
    for one in held[:14]:
        assert _is_closed(one)
    asks = connect()
    asks.sendall(ASKED)
    assert b"200" in asks.recv(1000)


def test_a_body_that_does_not_come_is_as_if_the_client_had_gone():
    async def never():
        await asyncio.Event().wait()

    async def ask():
        return await _bounded(never, 100, 0.05)()

    with ThreadPoolExecutor(1) as thread:  # the browser's driver has a loop of its own in this one
        assert thread.submit(asyncio.run, ask()).result() == {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("method", "path", "most"),
    [("GET", "/live", MOST_OPEN), ("POST", "/incidents/x/chat/stream", MOST_TALKS)],
)
def test_no_more_answers_are_under_way_than_the_limit_and_each_end_makes_room(method, path, most):
    async def ask() -> tuple[list[int], int]:
        go_on, begun = asyncio.Event(), []

        async def waits(scope, receive, send):
            begun.append(1)
            if len(begun) <= most:
                await go_on.wait()
            await _fine(scope, receive, send)

        guard = Guard(waits, Access(), "ann")
        transport = httpx.ASGITransport(guard, client=("testclient", 1))
        form = {"headers": {"content-type": "application/x-www-form-urlencoded"}}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            open_ = [asyncio.create_task(client.request(method, path, **form)) for _ in range(most)]
            while len(begun) < most:
                await asyncio.sleep(0)
            refused = (await client.request(method, path, **form)).status_code
            go_on.set()
            codes = [(await one).status_code for one in open_]
            codes.append((await client.request(method, path, **form)).status_code)
            return codes, refused

    with ThreadPoolExecutor(1) as thread:
        codes, refused = thread.submit(asyncio.run, ask()).result()
    assert refused == 503 and set(codes) == {200}
