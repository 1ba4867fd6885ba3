"""What launchers know of nodes before training: which did not join, and which failed the node check."""

from __future__ import annotations

import re

from rerail.domain.evidence import LogLine, Observation, Stream
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.placement.allocation import listed
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.names import short
from rerail.knowledge_base.taxonomy import has

_JOINED = re.compile(r"\b(?P<joined>\d{1,6})/(?P<all>\d{1,6}) clients joined")
_FAULTY = re.compile(r"\bFault nodes are: \[(?P<list>[\d, ]*)\]")
_CHECKED = re.compile(
    r"The node (?P<node>[\w.-]{1,120}) has joined round \d{1,6} of the network-check rendezvous "
    r"as rank (?P<node_rank>\d{1,6}) "
)
_AROUND = 200  # lines on either side of the store's


def node_not_joined(case: Case, identities: Identities, winner: Observation) -> str | None:
    """Return the only node of the allocation that wrote nothing, where the store waited for one agent more, or None."""
    told = _JOINED.search(winner.line.text) if winner.leaf == "rendezvous_timeout" else None
    if told is None or int(told["all"]) - int(told["joined"]) != 1:
        return None
    nodes = listed(case)
    silent = nodes - {short(node) for node in identities.nodes_at_work}
    # One client a node: the store counts agents, and not their processes.
    if len(nodes) != int(told["all"]) or len(silent) != 1:
        return None
    writer = _node_of(winner.line, identities)
    if (
        writer is None
        or short(writer) in silent
        or not _all_labelled(case, identities, winner.line)
    ):
        return None
    return silent.pop()


def _node_of(line: LogLine, identities: Identities) -> str | None:
    return line.node or (identities.node_of_rank.get(line.rank) if line.rank is not None else None)


def _all_labelled(case: Case, identities: Identities, around: LogLine) -> bool:
    """Tell whether the lines around one are all of known nodes, but for a batch script's head and the scheduler's."""
    view = case.view(around)
    labelled = False
    for number in view.between(around.number - _AROUND, around.number + _AROUND):
        line = view.line(number)
        if line is None or not line.text.strip() or line.stream is Stream.SCHEDULER:
            continue
        if _node_of(line, identities) is not None:
            labelled = True
        elif labelled or line.stream is Stream.AGENT:
            return False  # it may be of the node that seems silent
    return labelled


def node_found_faulty(case: Case, winner: Observation) -> str | None:
    """Return the only node that DLRover's check before training found faulty, for a fault that a node has, or None."""
    if not has(winner.leaf, "found_by_node_check"):
        return None
    told, verdict, joined = "", 0, 0
    names: dict[str, set[str]] = {}
    view = case.view(winner.line)
    fault = winner.line.number
    for number in view.numbers:
        raw = view.survey.kept[number]
        if b"Fault nodes are" in raw and (match := _FAULTY.search(view.text(number) or "")):
            if number > fault and not verdict < joined < fault:
                break  # the check of another fault
            # Every check judges all nodes anew: an empty list clears the one before.
            told, verdict = match["list"], number
            if number > fault:
                break
        elif b"network-check" in raw and (match := _CHECKED.search(view.text(number) or "")):
            names.setdefault(match["node_rank"], set()).add(match["node"])
            joined = number if number < fault else joined
    faulty = told.replace(",", " ").split()
    first, last = (verdict, fault) if verdict < fault else (joined, verdict)
    if len(faulty) != 1 or any(first < row.line < last for row in view.survey.steps):
        return None  # who trained behind the check was not among the nodes that failed it
    found = names.get(faulty[0], set())
    # Ranks are given anew in every round.
    return next(iter(found)) if len(found) == 1 else None
