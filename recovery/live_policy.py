"""The policy file as it is now, beside the one that a process began with.

A daemon lives for months, and its policy file is edited under it. What it may do by itself follows
from the file that it read at its start, and only as long as that file still says the same: changed,
broken or vanished, nothing runs by itself until a person lets the daemon read it again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from rerail.errors import ConfigError
from rerail.recovery.site_policy import SitePolicy, load_policy


@dataclass
class LivePolicy:
    """`began` is what this process read at its start; `path` None means that there is no file."""

    path: Path | None
    began: SitePolicy
    digest: str
    _seen: bytes | None = field(default=None, repr=False)
    _read: SitePolicy | ConfigError | None = field(default=None, repr=False)

    def now(self) -> SitePolicy:
        """Return what the file says at this moment.

        Raises:
            ConfigError: It is broken, or cannot be read any more.
        """
        if self.path is None:
            return self.began
        raw = _content(self.path)
        if raw != self._seen or self._read is None:
            self._seen = raw
            try:
                self._read = load_policy(self.path)
            except ConfigError as error:
                self._read = error
        if isinstance(self._read, ConfigError):
            raise self._read
        return self._read

    def trouble(self) -> str:
        """Return why nothing may run by itself: changed, broken or vanished; empty while all is well."""
        try:
            self.now()
            same = self.path is None or digest_of(self.path) == self.digest
        except ConfigError as error:
            return error.message
        if same:
            return ""
        return (
            f"policy file {self.path} was changed after this process read it; "
            "`rerail watch` reads it again on SIGHUP or at its start"
        )


def open_policy(path: Path | None) -> LivePolicy:
    """Read the policy file and remember what it said.

    Raises:
        ConfigError: It is missing or not usable.
    """
    if path is None:
        return LivePolicy(None, SitePolicy(), "")
    path = path.expanduser()
    digest = digest_of(path)
    return LivePolicy(path, load_policy(path), digest)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a policy file's content.

    Raises:
        ConfigError: It cannot be read.
    """
    return hashlib.sha256(_content(path)).hexdigest()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"policy file {str(path)!r}: {error.strerror}",
            subject=str(path),
            hint="set RERAIL_POLICY_FILE",
        ) from None
