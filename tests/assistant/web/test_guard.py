"""Who may ask, from where, and what every answer carries."""

import asyncio
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from rerail.assistant.web.guard import MOST_BODY, WRITES_PER_MINUTE, Access, Guard
from rerail.errors import ConfigError

RERAIL = str(Path(sys.executable).with_name("rerail"))


def test_every_answer_forbids_foreign_content(served):
    with served.client() as client:
        for path in ("/", "/nothing", "/api/incidents", f"/incidents/{served.hang}"):
            answer = client.get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'self'" in policy and "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
        nonce = policy.split("'nonce-")[1].split("'")[0]
        assert client.get("/").text.count(nonce) == 0  # a new one for each answer


def test_a_host_name_that_is_not_ours_is_refused(served):
    with served.client() as client:  # what a rebinding attack sends
        assert client.get("/", headers={"host": "evil.invalid"}).status_code == 400
        assert client.get("/", headers={"host": f"localhost:{served.port}"}).status_code == 200


@pytest.mark.parametrize("headers", [
    {}, {"origin": "http://evil.invalid"}, {"sec-fetch-site": "cross-site"},
])  # fmt: skip
def test_a_change_from_elsewhere_is_refused(served, headers):
    with served.client() as client:
        token = served.token(client)
        path, right = f"/incidents/{served.hostile}/feedback", {"verdict": "right"}
        assert client.post(path, data=right, headers=headers).status_code == 403
        if headers:
            answer = client.post(path, data={**right, "token": token}, headers=headers)
            assert answer.status_code == 403
        # The token of one session is none of another's.
        with served.client() as other:
            assert other.post(path, data={**right, "token": token}).status_code == 403


def test_another_account_of_the_machine_is_refused(served):
    if shutil.which("setpriv") is None or shutil.which("curl") is None:
        pytest.skip("needs setpriv and curl, and to be root")
    asked = ("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", served.url)
    as_nobody = subprocess.run(
        ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *asked),
        capture_output=True, text=True,
    )  # fmt: skip
    if as_nobody.returncode:
        pytest.skip(f"cannot act as another account: {as_nobody.stderr}")
    assert as_nobody.stdout == "403"
    assert subprocess.run(asked, capture_output=True, text=True).stdout == "200"


def test_too_much_is_refused(served):
    with served.client() as client:
        path, form = f"/incidents/{served.hang}/postmortem", {"token": served.token(client)}
        long = {**form, "text": "x" * MOST_BODY}
        told = client.post(path, data=long, headers={"accept": "text/html"})
        assert told.status_code == 413 and "more than 1 MiB" in told.text
        assert "<h1>That did not work</h1>" in told.text  # whoever reads pages gets one
        assert client.post(path, data=long).text.startswith("rerail: ")


async def _nothing(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_too_often_is_refused():
    guard = Guard(_nothing, Access(), "ann")

    async def ask() -> list[int]:
        transport = httpx.ASGITransport(guard, client=("testclient", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            form = {"token": "checked by the route"}
            many = range(WRITES_PER_MINUTE + 1)
            return [(await client.post("/x", data=form)).status_code for _ in many]

    with ThreadPoolExecutor(1) as thread:  # the browser's driver has a loop of its own in this one
        codes = thread.submit(asyncio.run, ask()).result()
    assert set(codes[:-1]) == {200} and codes[-1] == 429


def test_an_address_that_others_reach_needs_to_know_who_asks():
    with pytest.raises(ConfigError, match="can be reached by others"):
        Access("0.0.0.0").check()
    with pytest.raises(ConfigError, match="known proxy"):
        Access("0.0.0.0", user_header="x-user").check()
    Access("0.0.0.0", user_header="x-user", proxies=("10.0.0.1",)).check()
    for host in ("127.0.0.1", "::1", "localhost"):
        Access(host).check()


def test_only_the_named_proxy_is_believed(served):
    process = subprocess.Popen(
        [RERAIL, "serve", "--host", "0.0.0.0", "--port", "0",
         "--user-header", "X-User", "--proxy", "127.0.0.1", "--name", "rerail.site"],
        env=served.environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        port = process.stdout.readline().rsplit(":", 1)[1].split("/")[0]
        url = f"http://127.0.0.1:{port}/"
        assert httpx.get(url).status_code == 403
        named = {"x-user": "ann", "host": "rerail.site"}
        assert ">ann<" in httpx.get(url, headers=named).text
        for forged in ([("x-user", "eve"), ("x-user", "ann")], [("x-user", "a" * 121)]):
            assert httpx.get(url, headers=[*forged, ("host", "rerail.site")]).status_code == 403
        own = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(transport=own) as elsewhere:
            assert elsewhere.get(url, headers={"x-user": "ann"}).status_code == 403
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_serve_says_what_is_wrong_in_one_line(served):
    def said(*arguments):
        done = subprocess.run(
            [RERAIL, "serve", *arguments],
            env=served.environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 2 and "Traceback" not in done.stderr
        return done.stderr

    assert "can be reached by others" in said("--host", "0.0.0.0")
    assert "--port NUMBER" in said("--port", str(served.port))
    assert "is no folder" in said("--logs", "/nothing/here")
