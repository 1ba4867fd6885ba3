"""Checks webhooks: Standard Webhooks signatures, time window, replay, size. Pure but for seen ids.

https://www.standardwebhooks.com (version 1): the signature is HMAC-SHA256 over `id.timestamp.body`,
base64, with the prefix `v1,`; several may be given, separated by spaces, while a secret is changed.
Alertmanager cannot sign, so its webhooks carry the secret as a bearer token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from rerail.errors import RecoveryError

WINDOW_S = 300.0
MOST_BYTES = 1 << 20
SPAN_S = 2 * WINDOW_S
SEEN_FOLDER = "webhook-seen"


def secret_key(text: str) -> bytes:
    """Return the key of a secret `whsec_<base64>`.

    Raises:
        RecoveryError: It is not of this form, or shorter than 24 bytes.
    """
    try:
        key = base64.b64decode(text.strip().removeprefix("whsec_"), validate=True)
    except ValueError:  # also binascii.Error, and what is not ASCII
        key = b""
    if len(key) < 24:
        raise RecoveryError(
            "the webhook secret is not whsec_ and base64 of at least 24 bytes",
            subject="webhook_secret_file",
            hint="echo whsec_$(head -c 32 /dev/urandom | base64 -w0)",
        )
    return key


def sign(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature header of a message, for senders and tests."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def check(
    headers: Mapping[str, str], body: bytes, key: bytes, seen: Path, *, now: float | None = None
) -> str:
    """Return the id of a genuine, fresh message that was not seen before.

    Raises:
        RecoveryError: The message is too large, unsigned, forged, stale or a replay.
    """
    moment = time.time() if now is None else now
    given = {name.lower(): value for name, value in headers.items()}
    if len(body) > MOST_BYTES:
        raise RecoveryError("the message is too large", subject="webhook")
    message_id, stamp = given.get("webhook-id", ""), given.get("webhook-timestamp", "")
    if not message_id or len(message_id) > 256 or not stamp.isascii() or not stamp.isdigit():
        raise RecoveryError("webhook-id or webhook-timestamp is missing", subject="webhook")
    wanted = sign(key, message_id, int(stamp), body)
    signatures = given.get("webhook-signature", "").split()
    # Every signature is compared, so that the time does not tell which one fits.
    matches = [hmac.compare_digest(wanted.encode(), one.encode()) for one in signatures[:8]]
    if not any(matches):
        raise RecoveryError("the signature does not fit", subject="webhook")
    age = moment - int(stamp)
    if age > WINDOW_S:
        raise RecoveryError(
            f"the message is {age:.0f} s old: older than five minutes", subject="webhook"
        )
    if age < -WINDOW_S:
        raise RecoveryError(
            f"webhook-timestamp lies {-age:.0f} s in the future: is a clock wrong?",
            subject="webhook-timestamp",
        )
    if not _first_time(seen, message_id, moment):
        raise RecoveryError("the message was received before", subject="webhook")
    return message_id


def check_token(headers: Mapping[str, str], body: bytes, key: bytes) -> None:
    """Check the bearer token of a sender that cannot sign.

    Raises:
        RecoveryError: The token does not fit, or the message is too large.
    """
    given = {name.lower(): value for name, value in headers.items()}
    wanted = "Bearer whsec_" + base64.b64encode(key).decode()
    if len(body) > MOST_BYTES:
        raise RecoveryError("the message is too large", subject="webhook")
    if not hmac.compare_digest(wanted.encode(), given.get("authorization", "").encode()):
        raise RecoveryError("the token does not fit", subject="webhook")


def forget(message_id: str, seen: Path, *, now: float | None = None) -> None:
    """Let a message come again that was genuine but could not be kept."""
    for folder in _folders(seen, time.time() if now is None else now):
        (folder / _name(message_id)).unlink(missing_ok=True)


def _name(message_id: str) -> str:
    return hashlib.sha256(message_id.encode()).hexdigest()


def _folders(seen: Path, now: float) -> tuple[Path, Path]:
    """Return the folders of the present and the last time span; a replay is refused for longer ago."""
    present = int(now // SPAN_S)
    return seen / str(present), seen / str(present - 1)


def _first_time(seen: Path, message_id: str, now: float) -> bool:
    """Note an id; the file system makes sure that only one of several receivers is first.

    Ids lie in one folder a time span, so that nobody has to look through all of them to forget some.

    Raises:
        OSError: It cannot be noted.
    """
    present, before = _folders(seen, now)
    if not present.is_dir():
        present.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in seen.iterdir():
            if old not in (present, before):
                shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink()
    name = _name(message_id)
    if (before / name).exists():
        return False
    try:
        (present / name).open("x").close()
    except FileExistsError:
        return False
    return True
