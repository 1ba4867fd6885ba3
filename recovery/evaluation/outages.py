"""Nodes on which tasks die: set aside until a try-out succeeds, so that an outage costs no data set.

A task that dies without a word, or before its first piece, may have met a broken node or a piece that
kills it. The try-out does on that node what a trial does before its first piece: where it succeeds, the
failure is held against the piece; else the node is set aside and the piece goes to another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

AGAIN_S = 5.0
_LONGEST_S = 300.0
_MOST_SILENT = 6  # try-outs that die on nodes where nothing ever ran: five minutes

Charge = Callable[[], None]
"""Holds a failure against what ran on a node; called once the node is known to be whole."""


@dataclass
class Suspect:
    """A node that is tried out: why, what is held against nobody yet, and the try-out that runs."""

    reason: str
    charges: list[Charge] = field(default_factory=list)
    handle: str | None = None
    failed: int = 0
    again_at: float = 0.0
    told: bool = False


class Outages:
    """The nodes of a run by name: which are tried out, and which have failed their last try-out."""

    def __init__(self, again_s: float = AGAIN_S) -> None:
        self.again_s = again_s
        self.known: list[str] = []
        self.suspects: dict[str, Suspect] = {}
        self.proven = False  # something has been inferred or scored in this run
        self._failed_on: dict[tuple[str, int, int], set[str]] = {}

    def usable(self) -> bool:
        """Return whether a node is left that is not tried out."""
        return any(node not in self.suspects for node in self.known) or not self.known

    def set_aside(self) -> list[str]:
        """Return the names of the nodes that have failed their last try-out."""
        return [node for node, one in self.suspects.items() if one.failed]

    def suspect(self, node: str, reason: str, charge: Charge) -> bool:
        """Note that something died on a node; return whether the node was not tried out before."""
        new = node not in self.suspects
        self.suspects.setdefault(node, Suspect(reason)).charges.append(charge)
        if node not in self.known:
            self.known.append(node)
        return new

    def due(self) -> list[str]:
        """Return the nodes whose next try-out is to be started."""
        now = time.monotonic()
        return [
            node
            for node, one in self.suspects.items()
            if one.handle is None and one.again_at <= now
        ]

    def tried_out(self, node: str, ok: bool, reason: str = "") -> None:
        """Take the end of a try-out, with what it told.

        A whole node is used again, and its failures are held against what ran.
        """
        one = self.suspects[node]
        one.handle = None
        if ok:
            self.proven = True
            del self.suspects[node]
            # What ran when the node was out is not to blame.
            for charge in one.charges if one.failed == 0 else ():
                charge()
            return
        one.failed += 1
        one.reason, one.told = reason or one.reason, bool(reason)
        one.again_at = time.monotonic() + min(self.again_s * 2 ** (one.failed - 1), _LONGEST_S)

    def hopeless(self, retries: int) -> str:
        """Return why the run cannot go on: nothing ever succeeded on any node; else nothing.

        A try-out that tells an error is taken at its word sooner than one that dies.
        """
        if self.proven or self.usable():
            return ""
        for one in self.suspects.values():
            if one.failed <= (retries if one.told else max(retries, _MOST_SILENT)):
                return ""
        return next(iter(self.suspects.values())).reason

    def failed_on(self, node: str, piece: tuple[str, int, int]) -> None:
        """Note that a piece failed on a node, so that it is tried on another one."""
        self._failed_on.setdefault(piece, set()).add(node)

    def avoid(self, pieces: Iterable[tuple[str, int, int]]) -> tuple[str, ...]:
        """Return the nodes that a task with these pieces does not go to, as long as others are left."""
        out = set(self.suspects)
        whole = set(self.known) - out
        bad = {
            node
            for name, first, last in pieces
            for (other, a, b), nodes in self._failed_on.items()
            if other == name and a < last and first < b
            for node in nodes
        }
        return tuple(sorted(out | (bad if whole - bad else set())))
