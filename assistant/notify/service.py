"""What a service that tells people has to do, and how one is asked over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol

from rerail.assistant.notify.notice import Notice
from rerail.errors import ClusterError, ConfigError

LIMIT_S = 10.0
_REFUSED = (408, 425, 429)
"""Of the answers 4xx those that another try may cure."""
Handle = dict[str, Any]


class Service(Protocol):
    """One way to tell people.

    `name` is stable: by it the store knows what was told. `marks` returns what has to change before
    people are told again. `tell` says it for the first time, or edits what `handle` names, and
    returns the new handle; `alone` is false while another open incident has the same `key` in its handle.
    It raises ClusterError where the message was not taken, recoverable where a retry may help.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    def marks(self, notice: Notice) -> str: ...  # noqa: D102

    def tell(self, notice: Notice, handle: Handle, *, alone: bool) -> Handle: ...  # noqa: D102


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Whoever answers must not send us, and our token, elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect())


def post_json(url: str, body: object, *, name: str, token: str = "") -> None:
    """Post JSON and read no more than the beginning of the answer.

    Raises:
        ClusterError: Nobody took it within ten seconds.
    """
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=headers, method="POST")  # noqa: S310
    try:
        with _OPENER.open(request, timeout=LIMIT_S) as answer:
            answer.read1(1 << 16)
    except urllib.error.HTTPError as error:
        said = error.read1(300).decode("utf-8", "replace")
        raise refusal(name, f"HTTP {error.code}: {said}", error.code) from None
    except (OSError, HTTPException, ValueError) as error:
        cause = getattr(error, "reason", error)
        why = getattr(cause, "strerror", None) or cause
        raise ClusterError(f"{name}: {why}", subject=name, recoverable=True) from None


def refusal(name: str, why: str, code: int) -> ClusterError:
    """Return the error of an answer that is no success; only some are worth another try soon."""
    again = code >= 500 or code in _REFUSED
    return ClusterError(
        f"{name}: {' '.join(why.split())}",
        subject=name,
        hint=f"rerail notify --test --service {name}",
        recoverable=again,
    )


def secret(name: str, file: str, given: str, variable: str) -> str:
    """Return a secret from its file, else from the environment.

    Raises:
        ConfigError: It is nowhere, or the file cannot be read.
    """
    if not file:
        if given:
            return given
        raise ConfigError(
            f"notify.{name} has no secret",
            subject=f"notify.{name}",
            hint=f"name a file with it in the policy file, or set {variable}",
        )
    try:
        found = Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"notify.{name}: {file}: {why}",
            subject=f"notify.{name}",
            hint=f"create it, or {variable}",
        ) from None
    if not found:
        raise ConfigError(f"notify.{name}: {file} is empty", subject=f"notify.{name}")
    return found
