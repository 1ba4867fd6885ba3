"""Hears of failed training jobs at once: one watch stream a kind, resumed where it broke off.

A stream goes on from the last resourceVersion that was seen. Where the server has forgotten that
version (410 Gone) everything is listed anew, so that nothing in between is missed. The stream is
read in the background; `taken` hands over what was heard. Polling stays as a safety net.
Protocol: Kubernetes API concepts, "Efficient detection of changes".
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rerail.tools.clusters.kubernetes_read import (
    KINDS,
    KubernetesReader,
    attempt_of,
    job_of,
    state_of,
)
from rerail.tools.clusters.slurm_records import ENDED_BADLY

GONE = 410
LONGEST_WAIT_S = 60.0
PAUSE_S = 0.2
"""Between two streams: a server that ends each at once must not be asked in a tight loop."""


class _Gone(Exception):
    """The server no longer knows the version from which the stream should go on."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One attempt of a job that ended badly; `ended` is seconds since the epoch, or None.

    `listed` says that it stood in the first list of a stream: it may have ended at any time before.
    """

    job: str
    attempt: int
    state: str
    ended: float | None
    listed: bool = False


@dataclass
class KindWatch:
    """The stream of one kind. `run` blocks; `stop` ends it at the next line or time-out.

    The server ends each stream after `stream_s`; the next one goes on where it ended.
    """

    reader: KubernetesReader
    kind: str
    put: Callable[[Heard], None]
    say: Callable[[str], None] = lambda text: None
    stream_s: int = 240
    version: str = ""
    lists: int = 0
    streams: int = 0
    stop: bool = False
    _wait_s: float = 0.5
    _silenced: str = ""
    _stood: set[tuple[str, int]] = field(default_factory=set)

    @property
    def plural(self) -> str:
        """The name of the resource."""
        return KINDS[self.kind].plural

    def run(self) -> None:
        """Follow the kind until told to stop; no error ends it."""
        while not self.stop:
            try:
                self.once()
                self._wait_s, self._silenced = 0.5, ""
                time.sleep(PAUSE_S)
            except Exception as error:  # the stream is an extra: polling still hears of everything
                if self.stop:
                    return
                self._pause(error)

    def once(self) -> None:
        """List if the version is not known, then follow one stream to its end."""
        if not self.version:
            self._list()
        try:
            for one in self._stream():
                self._take(one)
        except _Gone:
            # What happened in between is in the list.
            self.version = ""

    def _call(self, **options: Any) -> Any:
        from kubernetes.client import CustomObjectsApi

        one = KINDS[self.kind]
        calls: Any = CustomObjectsApi(self.reader.api)
        options |= {"_preload_content": False}
        if self.reader.namespace:
            return calls.list_namespaced_custom_object(
                *(one.group, one.version, self.reader.namespace, one.plural), **options
            )
        return calls.list_cluster_custom_object(one.group, one.version, one.plural, **options)

    def _list(self) -> None:
        answer = json.loads(self._call(_request_timeout=30).data)
        self.lists += 1
        for one in answer.get("items") or []:
            self._judge(one)
        self.version = str((answer.get("metadata") or {}).get("resourceVersion") or "")

    def _stream(self) -> Iterator[dict[str, Any]]:
        from kubernetes.client.exceptions import ApiException

        self.streams += 1
        try:
            response = self._call(
                watch=True,
                resource_version=self.version,
                timeout_seconds=self.stream_s,
                allow_watch_bookmarks=True,
                _request_timeout=(10, self.stream_s + 30),
            )
        except ApiException as error:
            raise (_Gone() if error.status == GONE else error) from None
        rest = b""
        try:
            for piece in response.stream(1 << 16, decode_content=True):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if self.stop:
                        return
                    if line.strip():
                        yield json.loads(line)
        finally:
            response.close()

    def _take(self, event: dict[str, Any]) -> None:
        one = event.get("object") or {}
        if event.get("type") == "ERROR":
            if one.get("code") == GONE:
                raise _Gone
            raise ConnectionError(f"watch: {one.get('message') or one.get('reason')}")
        version = (one.get("metadata") or {}).get("resourceVersion")
        if event.get("type") in ("ADDED", "MODIFIED"):
            self._judge(one)
        # Only behind the object: after a break it comes once more rather than never.
        self.version = str(version or self.version)

    def _judge(self, one: dict[str, Any]) -> None:
        state, ended = state_of(one)
        if state in ENDED_BADLY:
            job, attempt = job_of(self.kind, one), attempt_of(one)
            first = self.lists == 1 and not self.version
            if first:
                self._stood.add((job, attempt))
            elif not self.version and (job, attempt) in self._stood:
                return  # listed anew after 410: it was told at the beginning
            self.put(Heard(job, attempt, state, ended, listed=first))

    def _pause(self, error: Exception) -> None:
        status = getattr(error, "status", None)
        if status == 404:  # the kind is not installed, yet
            self._wait_s = LONGEST_WAIT_S
        elif status in (401, 403):
            self._tell(f"may not watch {self.plural} ({status}): polling alone")
            self._wait_s = LONGEST_WAIT_S
        else:
            reason = getattr(error, "reason", None) or type(error).__name__
            self._tell(f"watch of {self.plural} broke off: {reason}")
            self._wait_s = min(LONGEST_WAIT_S, 2 * self._wait_s)
        deadline = time.monotonic() + self._wait_s
        while not self.stop and time.monotonic() < deadline:
            time.sleep(0.1)

    def _tell(self, text: str) -> None:
        """Say a thing once, not at every try."""
        if text != self._silenced:
            self._silenced = text
            self.say(text)

    def end(self) -> None:
        """Ask the stream to stop."""
        self.stop = True


@dataclass
class NodeWatch(KindWatch):
    """The stream of nodes: tells which one the server does not reach (any more)."""

    lost: Callable[[str], None] = lambda node: None
    _down: set[str] = field(default_factory=set)

    @property
    def plural(self) -> str:
        """The name of the resource."""
        return "nodes"

    def _call(self, **options: Any) -> Any:
        from kubernetes.client import CoreV1Api

        calls: Any = CoreV1Api(self.reader.api)
        return calls.list_node(**options, _preload_content=False)

    def _judge(self, one: dict[str, Any]) -> None:
        name = str(one["metadata"]["name"])
        conditions = (one.get("status") or {}).get("conditions") or []
        ready = next((c.get("status") for c in conditions if c.get("type") == "Ready"), "True")
        if ready == "True":
            self._down.discard(name)
        elif name not in self._down:
            self._down.add(name)
            self.lost(name)


@dataclass
class KubernetesWatch:
    """The streams of all kinds, each in a thread that ends with the process."""

    reader: KubernetesReader
    say: Callable[[str], None] = lambda text: None
    kinds: list[KindWatch] = field(default_factory=list)
    _heard: queue.SimpleQueue[Heard] = field(default_factory=queue.SimpleQueue)

    def start(self) -> None:
        """Start a stream for each kind of the reader, and those that were added."""
        for kind in self.reader.kinds:
            self.kinds.append(KindWatch(self.reader, kind, self._heard.put, self.say))
        for watch in self.kinds:
            name = f"watch-{watch.plural}"
            threading.Thread(target=watch.run, name=name, daemon=True).start()

    def taken(self) -> list[Heard]:
        """Return what was heard since the last call."""
        found = []
        while not self._heard.empty():
            found.append(self._heard.get())
        return found

    def end(self) -> None:
        """Ask every stream to stop; none is waited for."""
        for watch in self.kinds:
            watch.end()
