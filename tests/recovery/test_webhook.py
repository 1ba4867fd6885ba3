"""Only what is signed, fresh, new and small gets in."""

import json
import urllib.error
import urllib.request

import pytest

from rerail.assistant.watch.listener import Listener
from rerail.errors import RecoveryError, UsageError
from rerail.recovery import spool, webhook

# The example of the specification.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEY = webhook.secret_key(SECRET)
BODY = b'{"test": 2432232314}'
AT = 1614265330
HEADERS = {
    "Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": str(AT),
    "WEBHOOK-SIGNATURE": "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


def test_the_example_of_the_specification_is_genuine_once(tmp_path):
    assert webhook.check(HEADERS, BODY, KEY, tmp_path, now=AT + 9) == HEADERS["Webhook-Id"]
    with pytest.raises(RecoveryError, match="before"):
        webhook.check(HEADERS, BODY, KEY, tmp_path, now=AT + 9)


@pytest.mark.parametrize(
    ("change", "body", "now", "why"),
    [
        ({}, BODY + b" ", AT, "signature"),
        ({"webhook-timestamp": str(AT + 1)}, BODY, AT, "signature"),
        ({"Webhook-Id": "other"}, BODY, AT, "signature"),
        ({"WEBHOOK-SIGNATURE": ""}, BODY, AT, "signature"),
        ({}, BODY, AT + 301, "older"),
        ({}, BODY, AT - 301, "future"),
        ({"webhook-timestamp": "now"}, BODY, AT, "missing"),
        ({}, b"x" * (webhook.MOST_BYTES + 1), AT, "large"),
    ],
)
def test_what_is_forged_stale_or_too_large_is_refused(tmp_path, change, body, now, why):
    with pytest.raises(RecoveryError, match=why):
        webhook.check({**HEADERS, **change}, body, KEY, tmp_path, now=now)


@pytest.fixture
def listener(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    made = Listener("127.0.0.1:0", secret, tmp_path / "data", "lab", lambda text: None)
    yield made
    made.close()


def post(listener, path, body, headers):
    request = urllib.request.Request(
        f"http://127.0.0.1:{listener.port}{path}", data=body, headers=headers, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def signed(body, name="m1"):
    import time

    now = int(time.time())
    return {
        "webhook-id": name,
        "webhook-timestamp": str(now),
        "webhook-signature": webhook.sign(KEY, name, now, body),
    }


def test_events_and_alerts_reach_the_spool_and_nothing_else_does(listener, tmp_path):
    body = json.dumps(
        {"job": {"job": "7"}, "state": "FAILED", "time": "2026-01-01T00:00:00Z"}
    ).encode()
    assert post(listener, "/events", body, signed(body)) == 202
    assert post(listener, "/events", body, signed(body)) == 400  # the same message again
    assert post(listener, "/events", body, {}) == 400
    assert post(listener, "/events", b"{}", signed(b"{}", "m2")) == 400
    assert post(listener, "/other", body, signed(body, "m3")) == 400
    deep = b"[" * 100_000
    assert post(listener, "/events", deep, signed(deep, "m4")) == 400
    alerts = {
        "alerts": [
            {"status": "firing", "labels": {"slurm_job_id": "8", "alertname": "JobFailed"}},
            {"status": "resolved", "labels": {"slurm_job_id": "9"}},
            {"status": "firing", "labels": {"instance": "no job"}},
        ]
    }
    text = json.dumps(alerts).encode()
    assert post(listener, "/alertmanager", text, {"Authorization": "Bearer x"}) == 401
    assert post(listener, "/alertmanager", text, {"Authorization": f"Bearer {SECRET}"}) == 202
    jobs = [json.loads(p.read_text())["job"] for p in spool.waiting(tmp_path / "data/spool").files]
    assert sorted((one["cluster"], one["job"]) for one in jobs) == [("lab", "7"), ("lab", "8")]


def test_what_could_not_be_kept_may_come_again(listener, tmp_path):
    body = b'{"job": {"job": "7"}, "state": "FAILED", "time": "2026-01-01T00:00:00Z"}'
    folder = tmp_path / "data" / spool.FOLDER
    folder.parent.mkdir()
    folder.write_text("a file where the folder should be")
    assert post(listener, "/events", body, signed(body)) == 503
    folder.unlink()
    assert post(listener, "/events", body, signed(body)) == 202


@pytest.mark.parametrize("address", ["nohost", ":9095", "127.0.0.1:99999", "127.0.0.1:x"])
def test_an_address_that_is_none_is_refused(tmp_path, address):
    with pytest.raises(UsageError, match="HOST:PORT"):
        Listener(address, tmp_path / "secret", tmp_path, "c", print)


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_AAAA", "whsec_\ufffd", "no base64!"])
def test_a_secret_that_is_none_is_refused(text):
    with pytest.raises(RecoveryError, match="24 bytes"):
        webhook.secret_key(text)
