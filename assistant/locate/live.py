"""A job that runs: its evidence is looked for again from time to time, for ranks and restarts add files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rerail.assistant.followed import Followed
from rerail.assistant.locate.gather import Gathered, gather
from rerail.assistant.locate.job_name import JobName
from rerail.assistant.locate.locator import NothingYetError, UnknownJobError
from rerail.errors import RerailError
from rerail.log_parsers.sources import Problem, Source

LOOKS_BETWEEN = 15
"""Looks at the files between two questions to the scheduler: half a minute."""


@dataclass(slots=True)
class LiveJob:
    """One job while it runs; use it as a context manager.

    `ended` tells that the scheduler said so twice: what the job wrote last has been looked for since.
    """

    name: JobName
    seconds: float
    attempt: int | None = None
    find: Callable[[JobName, float, int | None], Gathered] = gather
    state: str = ""
    ended: bool = False
    problems: list[Problem] = field(default_factory=list)
    _found: Gathered | None = None
    _said_ended: bool = False
    _looks: int = 0
    _told: set[str] = field(default_factory=set)

    def __enter__(self) -> LiveJob:
        """Nothing is to be done."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the files."""
        if self._found is not None:
            self._found.__exit__(None, None, None)

    @property
    def number(self) -> int | None:
        """Which start of the job is followed."""
        return self._found.attempt if self._found else None

    def look(self, files: Followed) -> list[str]:
        """Read what is new, and from time to time look for new files; return what changed, a sentence each.

        Raises:
            RerailError: There is no such job, or nobody to ask, when it is looked for the first time.
        """
        changed: list[str] = []
        lasting = True
        if self._looks % LOOKS_BETWEEN == 0 or self._said_ended:
            changed, lasting = self._find(files)
        self._looks += 1
        unknown = {one.subject for one in self.problems}
        return changed + files.look(self._sources(), unknown.__contains__ if lasting else None)

    def _sources(self) -> Sequence[Source]:
        return self._found.evidence.sources if self._found else ()

    def _find(self, files: Followed) -> tuple[list[str], bool]:
        """Look for the evidence anew; return what changed, and whether it is still the same start of the job."""
        try:
            found = self.find(self.name, self.seconds, self.attempt)
        except NothingYetError as waits:
            self._tell(f"{waits.message}; it is looked for again and again")
            return [], True
        except RerailError as error:
            if self._found is None:
                raise
            if isinstance(error, UnknownJobError):
                self._said_ended = self.ended = True
                return [f"job {self.name.text} is not known any more: it has ended"], True
            self._tell(f"{error.message}; what was found is followed on")
            return [], True
        before, self._found = self._found, found
        files.move(found.evidence.sources)
        if before is not None:
            before.__exit__(None, None, None)
        for told in found.told:
            self._tell(told)
        self.problems = found.evidence.problems
        lasting = before is None or before.attempt == found.attempt
        return self._changed(found, lasting=lasting), lasting

    def _changed(self, found: Gathered, *, lasting: bool) -> list[str]:
        changed = []
        if not lasting:
            changed.append(f"attempt {found.attempt} of job {self.name.text} began: a new chapter")
        if found.state and found.state != self.state:
            if self.state:
                changed.append(f"job {self.name.text} is {found.state}, was {self.state}")
            self.state = found.state
        if found.ended and (self._said_ended or not self._looks):
            self.ended = True
            changed.append(f"job {self.name.text} has ended: {found.state}")
        self._said_ended = found.ended
        return changed

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            print(f"rerail: {text}", file=sys.stderr)
