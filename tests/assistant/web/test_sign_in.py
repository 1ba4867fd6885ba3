"""Signing in by OpenID Connect; the provider here is a fake of ours that speaks the protocol on loopback."""

import base64
import hashlib
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey

from rerail.assistant.web import browser_files
from rerail.assistant.web.application import create_application
from rerail.assistant.web.guard import Access
from rerail.assistant.web.sign_in import Provider, SignIn, _own_path
from rerail.errors import ConfigError

CLIENT, SECRET = "rerail", "s3cret"
KEY, OTHER = RSAKey.generate_key(2048, {"kid": "1"}), RSAKey.generate_key(2048, {"kid": "1"})


class FakeProvider(ThreadingHTTPServer):
    """Says yes to everybody; `spoil` changes the claims, `key` signs them."""

    daemon_threads = True

    def __init__(self):
        self.codes, self.spoil, self.key, self.asked = {}, {}, KEY, []
        super().__init__(("127.0.0.1", 0), _Pages)
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self):
        fake, parts = self.server, urlsplit(self.path)
        if parts.path == "/.well-known/openid-configuration":
            return self._json({
                "issuer": fake.url, "authorization_endpoint": f"{fake.url}/auth", "token_endpoint": f"{fake.url}/token",
                "jwks_uri": f"{fake.url}/keys", "id_token_signing_alg_values_supported": ["RS256"],
            })  # fmt: skip
        if parts.path == "/keys":
            return self._json({"keys": [KEY.as_dict(private=False)]})
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        fake.asked.append(given)
        code = f"code{len(fake.codes)}"
        fake.codes[code] = given
        self.send_response(302)
        self.send_header("Location", f"{given['redirect_uri']}?{urlencode({'code': code, 'state': given['state']})}")  # fmt: skip
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        fake = self.server
        body = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        began = fake.codes.pop(body["code"][0], None)
        login = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        proof = base64.urlsafe_b64encode(hashlib.sha256(body["code_verifier"][0].encode()).digest())
        if (
            began is None
            or self.headers["Authorization"] != f"Basic {login}"
            or proof.rstrip(b"=").decode() != began["code_challenge"]
        ):
            return self._json({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {"iss": fake.url, "aud": CLIENT, "sub": "7", "iat": now, "exp": now + 60, "nonce": began["nonce"],
                  "email": "d.ito@example.org", "email_verified": True, **fake.spoil}  # fmt: skip
        token = jwt.encode({"alg": "RS256", "kid": "1"}, claims, fake.key)
        return self._json({"access_token": "a", "token_type": "Bearer", "id_token": token})

    def _json(self, body, code=200):
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The page behind the fake provider, and that provider."""
    try:
        browser_files.check()
    except ConfigError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    fake = FakeProvider()
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://localhost:{listening.getsockname()[1]}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RERAIL_DATA_DIR", str(tmp_path_factory.mktemp("oidc")))
        from rerail.settings import load_settings

        load_settings.cache_clear()
        provider = Provider(fake.url, CLIENT, SECRET, url)
        app = create_application(Access(api_token="t" * 30), "root", (), sign_in=SignIn(provider))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield url, fake
        server.should_exit = True
        thread.join(10)
        fake.shutdown(), fake.server_close()
        load_settings.cache_clear()


@pytest.fixture
def person(site):
    site[1].spoil, site[1].key = {}, KEY
    with httpx.Client(base_url=site[0], follow_redirects=True, timeout=20) as client:
        yield client


def test_whoever_asks_for_a_page_signs_in_and_comes_back_to_it(person, site):
    page = person.get("/fleet?since=7d")
    assert page.status_code == 200 and str(page.url).endswith("/fleet?since=7d")
    assert "d.ito@example.org" in page.text and "Sign out" in page.text
    asked = site[1].asked[-1]
    assert asked["code_challenge_method"] == "S256" and "openid" in asked["scope"]
    assert {"state", "nonce", "code_challenge"} <= asked.keys() and asked["client_id"] == CLIENT
    before = len(site[1].asked)
    person.get("/")
    assert len(site[1].asked) == before  # signed in is signed in


def test_the_session_after_signing_in_is_another_one_than_before(person):
    person.get("/login", follow_redirects=False)
    planted = person.cookies["rerail_session"]
    person.get("/")
    held = person.cookies["rerail_session"]
    assert held != planted
    with httpx.Client(base_url=person.base_url, cookies={"rerail_session": planted}) as thief:
        assert thief.get("/", follow_redirects=False).status_code == 303


def test_who_is_not_signed_in_changes_nothing_and_programs_still_need_their_token(person):
    bare = {"follow_redirects": False}
    assert person.get("/api/incidents", **bare).status_code == 403
    assert person.post("/diagnose", data={"path": "x"}, **bare).status_code == 403
    assert person.get("/v1/models", **bare).status_code == 401
    answer = person.get("/v1/models", headers={"authorization": f"Bearer {'t' * 30}"}, **bare)
    assert answer.status_code == 200
    assert person.get("/", headers={"host": "evil.invalid"}, **bare).status_code == 400


def test_signing_out_needs_the_page_and_ends_the_session(person, site):
    token = person.get("/").text.split('data-token="')[1].split('"')[0]
    bare = {"follow_redirects": False}
    person.post("/logout", data={"token": "wrong"}, **bare)
    assert person.get("/api/incidents", **bare).status_code == 200
    person.post("/logout", data={"token": token}, **bare)
    assert person.get("/api/incidents", **bare).status_code == 403


@pytest.mark.parametrize("spoil", [
    {"aud": "another"}, {"iss": "http://evil.invalid"}, {"nonce": "x"}, {"exp": 1_000_000_000},
    {"email_verified": False}, {"email": ""}, {"email": 7},
])  # fmt: skip
def test_a_token_that_is_not_for_us_signs_nobody_in(person, site, spoil):
    site[1].spoil = spoil
    answer = person.get("/")
    assert answer.status_code == 403 and answer.text.startswith("rerail: ")
    assert person.get("/api/incidents").status_code == 403


def test_a_token_of_another_key_and_a_state_of_another_browser_are_refused(person, site):
    site[1].key = OTHER
    assert person.get("/").status_code == 403
    site[1].key = KEY
    began = person.get("/login", follow_redirects=False)
    back = httpx.get(began.headers["location"], follow_redirects=False).headers["location"]
    with httpx.Client(base_url=site[0]) as victim:  # a link that signs others in as the attacker
        assert victim.get(back).status_code == 403
    assert person.get(back, follow_redirects=False).status_code == 303
    assert person.get(back, follow_redirects=False).status_code == 403  # used once


def test_a_provider_that_is_away_is_said(site):
    gone = socket.create_server(("127.0.0.1", 0))
    port = gone.getsockname()[1]
    gone.close()
    import asyncio

    from starlette.requests import Request

    sign_in = SignIn(Provider(f"http://127.0.0.1:{port}", CLIENT, SECRET, site[0]))
    scope = {"type": "http", "method": "GET", "path": "/login", "query_string": b"", "headers": []}
    answer = asyncio.run(sign_in.begin(Request(scope), "s"))
    assert answer.status_code == 502 and b"does not answer" in answer.body


@pytest.mark.parametrize(("given", "path"), [
    ("/fleet?since=7d", "/fleet?since=7d"), ("//evil.invalid", "/"), ("/\\evil.invalid", "/"),
    ("https://evil.invalid", "/"), ("/a\r\nset-cookie: x", "/"),
])  # fmt: skip
def test_nobody_is_sent_elsewhere_after_signing_in(given, path):
    assert _own_path(given) == path


def test_without_tls_only_loopback_may_sign_people_in():
    with pytest.raises(ConfigError, match="is no https"):
        Provider("http://login.example.org", CLIENT, SECRET, "https://rerail.site").check()
    with pytest.raises(ConfigError, match="is no https"):
        Provider("https://login.example.org", CLIENT, SECRET, "http://rerail.site").check()
    Provider("https://login.example.org", CLIENT, SECRET, "https://rerail.site").check()
    Access(host="0.0.0.0", signs_in=True).check()
    with pytest.raises(ConfigError, match="not by both"):
        Access(host="0.0.0.0", signs_in=True, user_header="x", proxies=("10.0.0.1",)).check()
