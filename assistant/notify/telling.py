"""Tells people beside the daemon: a thread for each service, so that none waits for another.

Nothing here is asked by recovery, and nothing of it is waited for: what a service does not take
stays in the store and is told later, by this process or the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy import Connection, Engine

from rerail.assistant.notify import told
from rerail.assistant.notify.notice import Notice, is_told, notice_of
from rerail.assistant.notify.service import Service
from rerail.assistant.notify.site_words import OWN, notice_of_word
from rerail.errors import ClusterError, RerailError
from rerail.knowledge_base.store.engine import reading, writing
from rerail.knowledge_base.store.incidents import load

HOLD_S = 60.0
"""How long a row is held by who tells it; a service has answered long before, or the process is dead."""


@dataclass
class Post:
    """Tells by one service. `clock` gives seconds since the epoch."""

    engine: Engine
    service: Service
    page: str
    say: Callable[[str], None]
    clock: Callable[[], float] = time.time
    _silent_until: float = 0.0
    _trouble: str = ""

    def begin(self) -> None:
        """Remember from where on this service tells; what was before is not told."""
        with writing(self.engine) as connection:
            told.start(connection, self.service.name)

    def round(self) -> int:
        """Tell what is due now; return how many incidents still wait to be told."""
        with writing(self.engine) as connection:
            left = told.look(connection, self.service.name, self.clock())
        while left and self.clock() >= self._silent_until and self._next():
            left -= 1
        with writing(self.engine) as connection:
            return told.look(connection, self.service.name, self.clock())

    def _next(self) -> bool:
        """Tell one incident; return whether it is worth going on."""
        name = self.service.name
        with writing(self.engine) as connection:
            due = told.claim(connection, name, self.clock(), HOLD_S)
        if due is None:
            return False
        try:
            self._tell(due)
        except RerailError as error:
            soon = not isinstance(error, ClusterError) or error.recoverable
            self._failed(due, error.message, error.hint, soon=soon)
            return False
        except Exception as error:  # a service's client may raise anything; the others go on
            self._failed(due, f"{name}: {type(error).__name__}: {error}", "", soon=True)
            return False
        if self._trouble:
            self.say(f"{name}: people are told again")
            self._trouble = ""
        return True

    def _tell(self, due: told.Due) -> None:
        name = self.service.name
        with reading(self.engine) as connection:
            notice, decided = self._notice(connection, due)
            key = str(due.handle.get("key") or notice.fingerprint)
            alone = told.is_alone(connection, name, due.incident, key)
        marks, handle = self.service.marks(notice), due.handle
        # Nobody hears of an incident that is no failure, or was over before it could be told.
        heard = bool(handle) or decided
        digest = told.digest_of(marks) if heard else ""
        if heard and digest != due.digest:
            handle = self.service.tell(notice, due.handle, alone=alone)
        with writing(self.engine) as connection:
            told.said(
                *(connection, name, due),
                digest=digest,
                handle=handle,
                is_open=notice.open and bool(handle),
            )

    def _notice(self, connection: Connection, due: told.Due) -> tuple[Notice, bool]:
        """Return what is to be told, and whether people hear of it at all."""
        if due.incident.startswith(OWN):
            return notice_of_word(connection, due.incident, cluster="", page=self.page), True
        file = load(connection, due.incident)
        return notice_of(connection, file, page=self.page), is_told(file)

    def _failed(self, due: told.Due, why: str, hint: str, *, soon: bool) -> None:
        now = self.clock()
        with writing(self.engine) as connection:
            wait_s = told.failed(connection, self.service.name, due, why, now=now, soon=soon)
        self._silent_until = now + wait_s
        if why != self._trouble:
            self._trouble = why
            self.say(f"{due.incident} not told: {why}" + (f" (try: {hint})" if hint else ""))


@dataclass
class Telling:
    """The threads of all services; they end with the process, whatever a service does."""

    engine: Engine
    say: Callable[[str], None]
    interval_s: float = 1.0
    _posts: list[threading.Thread] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self, services: Sequence[Service], page: str) -> None:
        """Begin to tell by these services, in place of those before."""
        self.finish(0)
        self._stop = threading.Event()
        for service in services:
            post = Post(self.engine, service, page, self.say)
            post.begin()
            thread = threading.Thread(
                target=self._run, args=(post, self._stop), name=service.name, daemon=True
            )
            thread.start()
            self._posts.append(thread)

    def _run(self, post: Post, stop: threading.Event) -> None:
        while True:
            ending = stop.is_set()
            try:
                post.round()
            except RerailError as error:  # the store: the daemon says that too, and goes on
                self.say(f"{post.service.name}: {error.message}")
            except Exception as error:  # a thread that ends would be silent for ever
                self.say(f"{post.service.name}: a bug in rerail: {type(error).__name__}: {error}")
            if ending:
                return
            stop.wait(self.interval_s)

    def finish(self, limit_s: float) -> None:
        """Let each service tell once more what is due, and wait for that so many seconds at most."""
        self._stop.set()
        deadline = time.monotonic() + limit_s
        for thread in self._posts:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._posts = []


@contextmanager
def telling(
    engine: Engine,
    services: Sequence[Service],
    page: str,
    say: Callable[[str], None],
    *,
    limit_s: float,
) -> Iterator[Telling]:
    """Tell people while the block runs, and at its end for `limit_s` seconds at most."""
    posts = Telling(engine, say)
    posts.start(services, page)
    try:
        yield posts
    finally:
        posts.finish(limit_s)
