"""Where an event was: rank, node and GPU, each by the first source that knows, with its reason.

Nobody is named on a guess. Each source answers with a value, a clause that says why, and the line
that tells it; the answers make the chain that is shown to people.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Generic, TypeVar

from rerail.domain.evidence import LogLine, Observation
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.exits import ExitFact
from rerail.knowledge_base.causality.select import Selection
from rerail.knowledge_base.phrases import says
from rerail.knowledge_base.placement.allocation import listed
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.names import named, short
from rerail.knowledge_base.placement.processes import Identity
from rerail.knowledge_base.taxonomy import has
from rerail.late_dataclass import dataclass
from rerail.log_parsers.host_names import is_local

T = TypeVar("T", int, str)
_HEADED = 2  # lines from the one that announces a list of ranks to the list


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What one source says. A `value` of None ends the search: nobody can be named."""

    value: T | None
    because: str
    line: LogLine | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """One link of the chain: what was concluded, why, and the line that tells it."""

    what: str
    because: str
    line: LogLine | None = None


def runs_there(identities: Identities, ranks: Sequence[int], node: str) -> Reason:
    """Return why a node is named beside ranks."""
    there = [rank for rank in ranks if identities.node_of_rank.get(rank) == node]
    if not there:
        return Reason(f"node {node}", "the job runs on this node alone")
    runs = "runs" if len(there) == 1 else "run"
    line = identities.told_by.get(("rank", there[0]))
    return Reason(f"node {node}", f"{named(there)} {runs} there", line)


@dataclass(slots=True)
class Place:
    """Rank, node, local GPU index and PCI address of an event; None where unknown.

    `ranks` and `nodes` hold several where the evidence names several and does not tell which.
    """

    rank: int | None = None
    node: str | None = None
    gpu: int | None = None
    pci: str | None = None
    ranks: list[int] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    together: list[int] = field(default_factory=list)
    """All ranks of the one host that had the very same."""
    everywhere: list[int] = field(default_factory=list)
    """The ranks that failed alike, so that none of them is to blame."""
    nobody: bool = False
    """It is known that the rank that prints the line is not to blame."""
    reasons: list[Reason] = field(default_factory=list)
    why: str | None = None
    """What the summary says of the place, where its line alone would not tell it."""


@dataclass(slots=True)
class Asked:
    """The event whose place is wanted, and all that can tell it."""

    case: Case
    selection: Selection
    identities: Identities
    exits: list[ExitFact]
    event: Observation
    awaited: tuple[int, ...] = ()
    """Ranks that all others wait for."""
    missed_by: LogLine | None = None
    """The line that names them as missing, where one does."""
    place: Place = field(default_factory=Place)
    process: Identity | None = None

    @property
    def line(self) -> LogLine:
        """The line of the event."""
        return self.event.line


Source = Callable[[Asked], Answer[T] | None]


def place(
    case: Case,
    selection: Selection,
    identities: Identities,
    exits: list[ExitFact],
    event: Observation,
    awaited: tuple[int, ...] = (),
    missed_by: LogLine | None = None,
) -> Place:
    """Return where an event was."""
    from rerail.knowledge_base.placement import gpu_sources, node_sources, rank_sources
    from rerail.knowledge_base.placement.everywhere import everywhere as of_nobody

    asked = Asked(case, selection, identities, exits, event, awaited, missed_by)
    found = asked.place
    if _is_missing(asked):
        return found
    gpu_sources.device(asked)
    accused = _first(asked, node_sources.ACCUSED, "node")
    if accused is not None:
        found.node = accused.value
        found.nodes = [accused.value] if accused.value is not None else []
        found.nobody = accused.value is None
        found.why = accused.because if accused.line is None and accused.value else None
        rank_sources.accused_device(asked)
        return found
    gpu_sources.process(asked)
    rank = _first(asked, rank_sources.SOURCES, "rank")
    found.rank = rank.value if rank is not None else None
    node = _first(asked, node_sources.SOURCES, "node")
    found.node = node.value if node is not None else None
    if is_local(found.node):
        found.node = None
    # A server may have faults of its own, but no GPU.
    elsewhere = found.node != asked.line.node or has(event.leaf, "of_a_gpu")
    if elsewhere and says("no-compute-host", found.node or ""):
        found.node = None
    _host_of_pod(asked)
    if says("pod-of-the-cluster", found.node or ""):
        found.node = None
    _as_the_scheduler_calls_it(asked)
    _within_the_host(asked)
    gpu_sources.index(asked)
    rank_sources.on_the_node(asked)
    everywhere = of_nobody(asked)
    if found.rank is not None:
        found.ranks = found.together or [found.rank]
    if found.node is not None:
        found.nodes = [found.node]
    either = has(event.leaf, "noticed_by_either")  # who tells is one of two
    found.nobody = everywhere or (rank is not None and rank.value is None and not either)
    return found


def _is_missing(asked: Asked) -> bool:
    """Take the one rank that others name as missing, for an event in which who prints it only waited."""
    from rerail.knowledge_base.placement import node_sources

    found, line = asked.place, asked.missed_by
    if line is None or len(asked.awaited) != 1:
        return False
    if not has(asked.event.leaf, "waits_for_others") and not any(
        o.leaf == asked.event.leaf
        and o.line.file == line.file
        and (o.line.number == line.number or _announces(o.line, line))
        for o in asked.case.observations
    ):
        return False
    found.rank = asked.awaited[0]
    found.ranks = [found.rank]
    found.reasons.append(Reason(f"rank {found.rank}", "the others name it as missing", line))
    node = _first(asked, (node_sources.of_rank,), "node")
    found.node = node.value if node is not None else None
    found.nodes = [found.node] if found.node is not None else []
    _host_of_pod(asked)
    return True


def _announces(line: LogLine, listed: LogLine) -> bool:
    """Tell whether a line ends in the words behind which those that are missing are listed, on the next line or two."""
    return 0 < listed.number - line.number <= _HEADED and says("list-of-missing-below", line.text)


def _host_of_pod(asked: Asked) -> None:
    """A pod's or container's name stands for its host, where a line tells which that is."""
    found, known = asked.place, asked.identities
    if found.node is not None and found.node.isdigit():
        number, found.node = found.node, known.host_numbered.get(found.node)
        if found.node is not None:
            line = known.told_by.get(("node rank", found.node))
            found.reasons.append(Reason(f"node {found.node}", f"its number is {number}", line))
        return
    host = known.node_of_place.get(found.node or "") or known.node_of_address.get(found.node or "")
    if host is not None and host != found.node:
        line = known.told_by.get(("place", found.node)) or known.told_by.get(
            ("address", found.node)
        )
        found.reasons.append(Reason(f"node {host}", f"{found.node} runs there", line))
        found.node = host


def _as_the_scheduler_calls_it(asked: Asked) -> None:
    """A host is drained by the name that the scheduler has for it, with its domain (Kubernetes) or without (Slurm)."""
    found, known = asked.place, asked.identities
    if found.node is None:
        return
    if short(found.node) == found.node:
        whole = {name for name in known.node_of_place.values() if short(name) == found.node}
        found.node = whole.pop() if len(whole) == 1 else found.node
        return
    called = {*known.node_of_task.values(), *known.lost_nodes, *listed(asked.case).values()}
    if short(found.node) in called and found.node not in called:
        found.node = short(found.node)


def _within_the_host(asked: Asked) -> None:
    """Where a host is known to hold other ranks than the one named, the number counts its processes."""
    found = asked.place
    held = asked.identities.ranks_at.get(found.node or "", ())
    rank = found.rank
    if rank is None or not held or rank in held:
        return
    line = asked.identities.told_by.get(("rank", held[0]))
    found.rank = held[rank] if rank < len(held) else None
    if found.rank is not None:
        because = f"process {rank} of {found.node}, which holds {named(held)}"
        found.reasons.append(Reason(f"rank {found.rank}", because, line))


def _first(asked: Asked, sources: tuple[Source[T], ...], what: str) -> Answer[T] | None:
    for source in sources:
        answer = source(asked)
        if answer is not None:
            if answer.value is not None:
                named = f"{what} {answer.value}"
                asked.place.reasons.append(Reason(named, answer.because, answer.line))
            return answer
    return None
