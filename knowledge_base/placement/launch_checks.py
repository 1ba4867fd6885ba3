"""What launchers know of nodes before training: which did not join, and which failed the node check."""

from __future__ import annotations

import re

from rerail.domain.evidence import LogLine, Observation, Role, Stream
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase, phrase_in_bytes, says
from rerail.knowledge_base.placement.allocation import listed
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.names import short
from rerail.knowledge_base.taxonomy import has

_AROUND = 200  # lines on either side of the store's


def waits_for_others(winner: Observation) -> re.Match[str] | None:
    """Return what a store or an agent says that waited for others: how many have joined, of all."""
    if winner.leaf != "rendezvous_timeout":
        return None
    text = winner.line.text
    told = phrase("clients-joined").search(text) or phrase("workers-joined").search(text)
    return told if told is not None and int(told["joined"]) < int(told["all"]) else None


def node_not_joined(case: Case, identities: Identities, winner: Observation) -> str | None:
    """Return the only node of the allocation that wrote nothing, where the store waited for one agent more, or None."""
    told = waits_for_others(winner)
    if told is None:
        return None
    at_work = {short(node) for node in identities.nodes_at_work}
    nodes = {*listed(case)}
    silent = nodes - at_work
    if not nodes:
        nodes, silent = at_work, at_work - _hosts_that_gave_up(case, identities)
    # The store counts the agents, one a node, or all processes: what is missing is one node's share.
    world, missing = int(told["all"]), int(told["all"]) - int(told["joined"])
    if missing < 1 or missing * len(nodes) != world or len(silent) != 1:
        return None
    writer = identities.node_of(winner.line)
    if (
        writer is None
        or short(writer) in silent
        or not _all_labelled(case, identities, winner.line)
    ):
        return None
    name = silent.pop()
    return None if case.unread_of(identities.ranks_on(name)) else name


def _hosts_that_gave_up(case: Case, identities: Identities) -> set[str]:
    """Return the hosts of which a process told an error: who joined in time waited for the others, and gave up."""
    harm = (Role.INITIATING, Role.CASCADE, Role.TEARDOWN)
    return {
        short(node)
        for one in case.with_role(*harm)
        if (node := identities.node_of(one.line)) is not None
    }


def _all_labelled(case: Case, identities: Identities, around: LogLine) -> bool:
    """Tell whether the lines around one are all of known nodes, but for a batch script's head and the scheduler's."""
    view = case.view(around)
    labelled = False
    for number in view.between(around.number - _AROUND, around.number + _AROUND):
        line = view.line(number)
        if line is None or not line.text.strip() or line.stream is Stream.SCHEDULER:
            continue
        if phrase("told-by-launcher").search(line.text):
            continue
        if identities.node_of(line) is not None:
            labelled = True
        elif labelled or line.stream is Stream.AGENT:
            return False  # it may be of the node that seems silent
    return labelled


def node_found_faulty(case: Case, winner: Observation) -> str | None:
    """Return the only node that DLRover's check before training found faulty, for a fault that a node has, or None."""
    if not has(winner.leaf, "found_by_node_check") and not says(
        "node-check-faulty", winner.line.text
    ):
        return None
    told, verdict, joined = "", 0, 0
    names: dict[str, set[str]] = {}
    view = case.view(winner.line)
    fault = winner.line.number
    for number in view.numbers:
        raw = view.survey.kept[number]
        if match := phrase_in_bytes("node-check-faulty").search(raw):
            if number > fault and not verdict < joined < fault:
                break  # the check of another fault
            # Every check judges all nodes anew: an empty list clears the one before.
            told, verdict = match["list"].decode(), number
            if number > fault:
                break
        elif match := phrase_in_bytes("node-check-joined").search(raw):
            names.setdefault(match["node_rank"].decode(), set()).add(match["node"].decode())
            joined = number if number < fault else joined
    faulty = told.replace(",", " ").split()
    first, last = (verdict, fault) if verdict < fault else (joined, verdict)
    if len(faulty) != 1 or any(first < row.line < last for row in view.survey.steps):
        return None  # who trained behind the check was not among the nodes that failed it
    found = names.get(faulty[0], set())
    # Ranks are given anew in every round.
    return next(iter(found)) if len(found) == 1 else None
