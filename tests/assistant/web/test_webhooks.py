"""Webhooks at the page's address: signed, bounded, without a person, and nothing else gets past the guard by them."""

import json
import socket
import time
from pathlib import Path

from rerail.recovery import spool, webhook

KEY = webhook.secret_key("whsec_" + "QUFB" * 8)


def signed(body, name):
    now = int(time.time())
    return {
        "webhook-id": name,
        "webhook-timestamp": str(now),
        "webhook-signature": webhook.sign(KEY, name, now, body),
    }


def test_a_signed_event_reaches_the_spool_from_anywhere_and_others_do_not(served):
    folder = Path(served.environment["RERAIL_DATA_DIR"]) / spool.FOLDER
    body = json.dumps({"job": {"job": "77"}, "state": "FAILED", "time": "2026-01-01T00:00:00Z"}).encode()  # fmt: skip
    foreign = {"origin": "http://elsewhere.invalid", "sec-fetch-site": "cross-site"}
    with served.client() as client:
        before = len(spool.waiting(folder).files)
        for headers, code in ((signed(body, "w1") | foreign, 202), (signed(body, "w1"), 400), ({}, 400)):  # fmt: skip
            assert client.post("/events", content=body, headers=headers).status_code == code
        answer = client.post("/events", content=body, headers={**signed(body, "w2"), "webhook-signature": "v1,x"})  # fmt: skip
        assert answer.status_code == 401 and "signature" in answer.json()["result"]
        assert client.post("/alertmanager", content=b"{}").status_code == 401
        assert client.post("/events", content=iter([body]), headers=signed(body, "w3")).status_code == 411  # fmt: skip
        # No other address, and no other method, is reached without a person and a token.
        assert client.post("/events/", content=body, headers=signed(body, "w4")).status_code == 403
        assert client.get("/events").status_code == 405
        assert client.post("/events", content=body, headers={"host": "evil.invalid"}).status_code == 400  # fmt: skip
    found = spool.waiting(folder).files
    assert len(found) == before + 1 and json.loads(found[-1].read_text())["job"]["job"] == "77"


def test_an_oversized_message_is_answered_also_to_a_sender_that_has_ended(served):
    for size in (2 << 20, 1 << 40):
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as line:
            line.sendall(
                f"POST /events HTTP/1.1\r\nHost: localhost:{served.port}\r\nContent-Length: {size}\r\n\r\n".encode()
            )
            line.sendall(b"x" * (2 << 20))
            if size > 2 << 20:
                line.shutdown(socket.SHUT_WR)
            assert b" 413 " in line.makefile("rb").readline()


def test_a_message_that_stops_halfway_leaves_the_server_well(served):
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as line:
        line.sendall(f"POST /events HTTP/1.1\r\nHost: localhost:{served.port}\r\nContent-Length: 100\r\n\r\nx".encode())  # fmt: skip
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    with served.client() as client:
        assert client.get("/api/incidents").status_code == 200
