"""What finds and opens the evidence of a job, and who does it for which kind of name.

Built in are Slurm (`4711`, `slurm://4711`) and Kubernetes (`k8s://namespace/job`). A site adds its own
as an entry point of the group `rerail.locators`: its name is the scheme of the address (`lsf` for
`lsf://4711`), or `slurm` or `k8s` to add to what is found there; it names a class without arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from rerail.assistant.locate.budget import Budget
from rerail.domain.evidence import Stream
from rerail.errors import EvidenceError
from rerail.log_parsers.sources import Problem

GROUP = "rerail.locators"


class UnknownJobError(EvidenceError):
    """Who was asked knows no such job, or does not know it any more."""


class NothingYetError(EvidenceError):
    """The job is known and nothing of it can be read: it waits, or has not written anything."""


@dataclass(frozen=True, slots=True)
class Item:
    """One piece of evidence: its path or address as reports show it, and what is known of its lines.

    `key` is the locator's own: what it needs to open the item. `file` says that it is a file here,
    which is read where it lies; everything else is copied for as long as the diagnosis takes. `by_site` says
    that the site's policy names its place, and not the job. `attempt` counts the tries of a job within what was
    found: the verdict is that of the last one.
    """

    name: str
    key: object = None
    node: str | None = None
    stream: Stream | None = None
    file: bool = False
    by_site: bool = False
    attempt: int | None = None


@dataclass(slots=True)
class Found:
    """What was found of one job: its id as the scheduler keeps it, which start, and what was in vain.

    `missing` are pieces of evidence that were looked for, with the command or path that was tried.
    `told` are sentences for the person who asked. `state` is the scheduler's word on the job, `ended` that
    nothing more will come of it.
    """

    job: str
    attempt: int | None = None
    items: list[Item] = field(default_factory=list)
    missing: list[Problem] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    state: str = ""
    ended: bool = False


class Locator(Protocol):
    """Knows where the evidence of a job lies."""

    def locate(self, job: str, attempt: int | None, budget: Budget) -> Found:
        """Return what there is of a job; of its last start where `attempt` is None.

        Raises:
            RerailError: There is no such job, or nobody who could say so.
        """
        ...

    def open(self, item: Item, first: int = 0, length: int | None = None) -> BinaryIO:
        """Return an item from byte `first` on, `length` bytes or all.

        Raises:
            RerailError: It may not be read.
            OSError: It cannot be read.
        """
        ...


def _slurm() -> Locator:
    from rerail.assistant.locate.slurm import SlurmLocator

    return SlurmLocator()


def _kubernetes() -> Locator:
    from rerail.assistant.locate.kubernetes import KubernetesLocator

    return KubernetesLocator()


BUILT_IN: tuple[tuple[str, Callable[[], Locator]], ...] = (("slurm", _slurm), ("k8s", _kubernetes))


def locators_for(scheme: str) -> tuple[list[Locator], list[Problem]]:
    """Return who knows jobs of a scheme, built-in ones first, and which of the site's cannot be used.

    Raises:
        EvidenceError: Nobody does.
    """
    from importlib.metadata import entry_points

    found = [make() for name, make in BUILT_IN if name == scheme]
    broken = []
    further = entry_points(group=GROUP)
    for one in further:
        if one.name != scheme:
            continue
        try:
            found.append(one.load()())
        except (
            Exception
        ) as error:  # a site's own code: it must not keep the others from being asked
            why = f"locator {one.value} of this site is left out: {type(error).__name__}: {error}"
            broken.append(Problem(f"{scheme}://", why, f"entry point group {GROUP}"))
    if not found:
        known = sorted({name for name, _ in BUILT_IN} | {one.name for one in further})
        raise EvidenceError(
            f"nobody here knows jobs of {scheme}://"
            + (f"; {broken[0].why}" if broken else f" (known: {', '.join(known)})"),
            subject=f"{scheme}://",
            hint="rerail diagnose PATH_TO_LOGS",
        )
    return found, broken
