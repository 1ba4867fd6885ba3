"""Speaks to slurmrestd over its Unix socket, in the newest version of its interface known here.

The socket decides who asks: with `rest_auth/local` every request acts as slurmrestd's own account.
No network is used. 22.05 serves 0.0.36 to 0.0.38, 24.11 serves 0.0.40 to 0.0.42.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import stat
from functools import cached_property
from pathlib import Path
from typing import Any

from rerail.errors import ClusterError

# Newest first. A server that serves only others is told apart from one that is away.
KNOWN = tuple(f"v0.0.{number}" for number in range(42, 35, -1))
MOST_BYTES = 256 << 20
# slurm_errno.h: the controller or the database is away, not the question wrong.
AWAY = frozenset({1001, 1007, 1800, 5004, 7000, 7003, 7008, 9001})
AWAY_WORDS = ("contact slurm controller", "Connection refused", "timed out", "slurmdbd")
NOT_FOUND = frozenset({2017, 9003})


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, limit_s: float) -> None:
        super().__init__("localhost", timeout=limit_s)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class SlurmRest:
    """One slurmrestd. Every method raises ClusterError; `recoverable` where a retry may help."""

    def __init__(self, path: Path | str, *, limit_s: float = 20.0) -> None:
        self.path = str(path)
        self.limit_s = limit_s

    def call(self, method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send one request and return the JSON object of the answer.

        Raises:
            ClusterError: Slurm refused it, or nobody answers at the socket.
        """
        status, raw = self._send(method, url, body)
        try:
            answer = json.loads(raw)
            errors = [one for one in answer.get("errors") or [] if isinstance(one, dict)]
        except (ValueError, AttributeError):
            text = raw[:200].decode(errors="replace").strip()
            raise self._error(
                f"{method} {url}: {text or f'HTTP {status}'}", status >= 502
            ) from None
        # 9003, nothing found, is an answer; 2017 says the same of the controller's memory.
        serious = [one for one in errors if one.get("error_number") not in NOT_FOUND]
        if serious or (status >= 400 and not errors):
            first = serious[0] if serious else {}
            said = [str(first[name]) for name in ("error", "description") if first.get(name)]
            text = ": ".join(dict.fromkeys(said)) or f"HTTP {status}"
            away = first.get("error_number") in AWAY or any(word in text for word in AWAY_WORDS)
            raise self._error(f"{method} {url}: {text[:300]}", away or status in (502, 503, 504))
        return dict(answer)

    def _send(self, method: str, url: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        connection = _UnixConnection(self.path, self.limit_s)
        try:
            connection.request(
                method,
                url,
                body=None if body is None else json.dumps(body),
                headers={} if body is None else {"Content-Type": "application/json"},
            )
            answer = connection.getresponse()
            raw = answer.read(MOST_BYTES + 1)
        except TimeoutError:
            raise self._error(f"no answer within {self.limit_s:g} s: {url}", True) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            # A wrong path or missing rights stay as they are; a daemon that restarts does not.
            lasting = isinstance(error, PermissionError) or not _is_socket(self.path)
            raise self._error(f"slurmrestd at {self.path}: {why}", not lasting) from None
        finally:
            connection.close()
        if len(raw) > MOST_BYTES:
            raise self._error(f"an answer of more than {MOST_BYTES >> 20} MiB: {url}", False)
        return answer.status, raw

    def _error(self, message: str, recoverable: bool) -> ClusterError:
        return ClusterError(
            message, subject="slurmrestd", hint="rerail doctor", recoverable=recoverable
        )

    @cached_property
    def paths(self) -> dict[str, frozenset[str]]:
        """The server's own list of its paths, without a trailing slash, and the methods of each."""
        described = self.call("GET", "/openapi/v3").get("paths") or {}
        return {
            str(path).rstrip("/"): frozenset(str(method).upper() for method in methods)
            for path, methods in described.items()
            if isinstance(methods, dict)
        }

    @cached_property
    def version(self) -> str:
        """The newest version of the interface that both sides know.

        Raises:
            ClusterError: There is none; the message names those of the server.
        """
        found = (re.match(r"/slurm/(v[\d.]+)/jobs$", path) for path in self.paths)
        served = {match[1] for match in found if match}
        for version in KNOWN:
            if version in served:
                return version
        listed = ", ".join(sorted(served)) or "none"
        raise ClusterError(
            f"slurmrestd serves {listed}; known here are {KNOWN[-1]} to {KNOWN[0]}",
            subject="slurmrestd",
            hint="Slurm's commands (sacct, squeue) work with every version",
        )

    def controller(self, path: str) -> str:
        """Return the URL of a path of the controller, `jobs` for example."""
        return f"/slurm/{self.version}/{path}"

    def accounting(self, path: str) -> str:
        """Return the URL of a path of accounting."""
        return f"/slurmdb/{self.version}/{path}"

    def offers(self, method: str, path: str) -> bool:
        """Return whether the server lists a method for a path of the controller."""
        return method in self.paths.get(self.controller(path), frozenset())


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:
        return False
