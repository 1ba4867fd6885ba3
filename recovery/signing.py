"""The site's key: what rerail and its operators wrote into the store, and nobody else could have.

It lies in the data folder, readable by the operators' account only. Whoever can only write to the
database, post to a page or talk in a chat cannot sign. Hosts that share a store need one key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path

from rerail.errors import RecoveryError

KEY_FILE = "approval.key"


def signing_key(folder: Path) -> bytes:
    """Return the key, made on first use with access for its owner alone.

    Raises:
        RecoveryError: It cannot be read or made, or others can read it.
    """
    path = folder / KEY_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            with os.fdopen(handle, "wb") as out:
                out.write(secrets.token_bytes(32))
        if path.stat().st_mode & 0o077:
            raise RecoveryError(
                f"{path} is readable by others, so an approval could be forged",
                subject=str(path),
                hint=f"chmod 600 {path}, and have the plans approved anew",
            )
        key = path.read_bytes()
    except OSError as error:
        raise RecoveryError(
            f"{path}: {error.strerror}", subject=str(path), hint="approve as the operators' account"
        ) from None
    if len(key) < 32:
        raise RecoveryError(f"{path} is damaged", subject=str(path), hint=f"remove {path}")
    return key


def sign(key: bytes, *parts: object) -> str:
    """Return the signature of some values, in their order."""
    text = json.dumps(parts, separators=(",", ":"))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def fits(signature: str, key: bytes, *parts: object) -> bool:
    """Tell whether a signature is that of these values; how long it takes tells nothing."""
    return hmac.compare_digest(sign(key, *parts).encode(), signature.encode())
