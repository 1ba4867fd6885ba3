"""A bound on the time that looking for evidence takes, kept even where a file server or an API hangs.

A call into a hung file system cannot be ended from outside: it is made in a thread of its own, which
is left behind when its time is up and does not keep the process from ending.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rerail.errors import ClusterError, RerailError

T = TypeVar("T")
SHARE = 0.25
"""How much of the whole time a single question may take, as long as others wait behind it."""
LEAST_S = 0.05
_MORE = "give it more time: --locate-budget SECONDS"


class TimeIsUp(ClusterError):
    """A question was not answered in time: to the person who waits the same as a connection that is refused."""


class Budget:
    """The seconds that are left for all questions together; mounts that hung are not asked again.

    They run from the first question on: what is loaded before it takes seconds on a busy machine and asks nobody.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._ends: float | None = None
        self._hung: set[str] = set()

    @property
    def left_s(self) -> float:
        """Seconds that are left, not below 0."""
        return self.seconds if self._ends is None else max(0.0, self._ends - self._clock())

    @property
    def share_s(self) -> float:
        """Seconds that the next question may take."""
        return min(self.left_s, max(LEAST_S, SHARE * self.seconds))

    def call(self, action: Callable[[], T], what: str) -> T:
        """Return what `action` returns, if it does so in time.

        Raises:
            TimeIsUp: It did not; it may go on, and nobody listens.
        """
        self._begin()
        return self._call(action, what, self.share_s)

    def in_time(self, action: Callable[[], T], what: str) -> T:
        """Return what `action` returns, which may ask several questions, if it does so in all the time that is left.

        Raises:
            TimeIsUp: It did not; it may go on, and nobody listens.
        """
        self._begin()
        return self._call(action, what, self.left_s)

    def _begin(self) -> None:
        if self._ends is None:
            self._ends = self._clock() + self.seconds

    def _call(self, action: Callable[[], T], what: str, limit_s: float) -> T:
        if limit_s <= 0:
            raise TimeIsUp(
                f"{what}: not asked, the {self.seconds:g} s for the search are over",
                hint=_MORE,
                recoverable=True,
            )
        answer: list[T] = []
        errors: list[BaseException] = []
        done = threading.Event()

        def run() -> None:
            try:
                answer.append(action())
            except BaseException as error:  # handed to the caller below
                errors.append(error)
            done.set()

        threading.Thread(target=run, daemon=True, name=f"locate {what}"[:60]).start()
        if not done.wait(limit_s):
            raise TimeIsUp(
                f"{what}: no answer within {limit_s:.3g} s", hint=_MORE, recoverable=True
            )
        if errors:
            raise errors[0]
        return answer[0]

    def on_files(self, action: Callable[[], T], path: Path) -> T:
        """Return what `action` finds out about a path; a file system that did not answer is not asked again.

        Raises:
            TimeIsUp: The file system does not answer, or did not before.
        """
        mount = mount_of(path)
        if mount in self._hung:
            raise TimeIsUp(f"{path}: not looked at, the file system at {mount} does not answer")
        try:
            return self.call(action, str(path))
        except TimeIsUp:
            self._hung.add(mount)
            raise


def mount_of(path: Path) -> str:
    """Return the mount point that a path lies under, without asking the file system itself."""
    wanted = os.path.normpath(path)
    best = "/"
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return best
    for line in lines:
        # proc(5): field 5, blanks written as \040.
        point = line.split()[4].replace("\\040", " ")
        if len(point) > len(best) and (wanted == point or wanted.startswith(point + "/")):
            best = point
    return best


def in_words(error: Exception) -> tuple[str, str]:
    """Return an error as a sentence and what to try; for errors that are expected while looking."""
    if isinstance(error, RerailError):
        return error.message, error.hint
    if isinstance(error, OSError):
        return f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "), ""
    return f"{type(error).__name__}: {error}", ""
