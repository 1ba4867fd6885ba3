"""Which ranks felt the fault of a machine, by what they printed of it themselves."""

from __future__ import annotations

from rerail.domain.evidence import Blames, LogLine, Observation, Role, Stream, Tier
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.own_failures import is_own
from rerail.knowledge_base.phrases import phrase_in_bytes, says
from rerail.knowledge_base.placement.headings import named_above
from rerail.knowledge_base.placement.identities import rivals
from rerail.knowledge_base.placement.launch_checks import waits_for_others
from rerail.knowledge_base.placement.names import same_host
from rerail.knowledge_base.placement.one_node import one_node
from rerail.knowledge_base.placement.place import Asked
from rerail.knowledge_base.taxonomy import Kind, leaves

_MOST_LINES = 20_000
_HEAD = 4  # lines of a report above the rank that it names


def _lost_its_device(case: Case) -> set[int | None]:
    """The ranks that print that their device is gone, in lines that no rule knows."""
    found: set[int | None] = set()
    gone = phrase_in_bytes("device-gone")
    for view in case.views:
        for number in view.numbers[:_MOST_LINES]:
            if gone.search(view.survey.kept[number]):
                line = view.line(number)
                if line is not None and line.stream is not Stream.KERNEL:
                    found.add(line.rank)
    return found - {None}


def on_their_gpus(asked: Asked) -> set[int | None]:
    """The ranks that print an error of their own GPU."""
    return {
        o.line.rank
        for o in asked.case.observations
        if o is not asked.event
        and o.role is not Role.BENIGN
        and not _of_another_host(asked, o.line)
        and o.tier in (Tier.LIBRARY, Tier.HARDWARE, Tier.APPLICATION)
        and says("felt-on-gpu", o.line.text)
    } - {None}


def _whose(asked: Asked, told: Observation) -> int | None:
    """The rank of an exception: that of its heading, where one rank prints what another raised, of its process or label."""
    found = named_above(asked.case, told.line, "rank") if told.lines else None
    if found is not None:
        return found.number("rank")
    line, known, own = told.line, asked.identities, told.line.rank
    node = asked.event.fields.get("node") or asked.line.node
    if line.pid is not None and same_host(known.host(line.node or ""), known.host(node or "")):
        who = known.by_pid.get(line.pid, line.node)
        own = own if who is None or who.rank is None else who.rank
    # Where a process calls itself a higher rank than its label, the label counts something else.
    own = own if own is not None else _printed_by(asked, line)
    return None if own in known.rank_of_task else own


def _names_the_missing(asked: Asked, line: LogLine) -> bool:
    """Tell whether a line heads the list of missing ranks: who prints it waited for them."""
    row = asked.missed_by
    return row is not None and row.file == line.file and 0 < row.number - line.number <= _HEAD


def _printed_by(asked: Asked, line: LogLine) -> int | None:
    """The rank in front of a line, or the child whose traceback a launcher of one node repeats."""
    child = named_above(asked.case, line, "child") if not line.label else None
    if child is None:
        return line.rank
    number = child.number("child")
    return number if one_node(asked.identities, number) else None


def _only_waited(asked: Asked, told: Observation) -> bool:
    """Tell whether an error is of who waited for others at the start, of another host, or no process's at all."""
    kernel = told.line.stream is Stream.KERNEL
    return kernel or waits_for_others(told) is not None or _of_another_host(asked, told.line)


def _of_another_host(asked: Asked, line: LogLine) -> bool:
    node, known = asked.event.fields.get("node") or asked.line.node, asked.identities
    own, held = known.node_of(line), known.ranks_at.get(node or "", ())
    if node is None or (own is None and (line.rank is None or not held)):
        return False
    return line.rank not in held if own is None else rivals(known.host(own), node)


def _may_be_there(asked: Asked, told: Observation) -> bool:
    """Tell whether who lost a peer may be of the event's host: where a job has several, it may run anywhere."""
    known, line = asked.identities, told.line
    node, rank = asked.event.fields.get("node") or asked.line.node, line.rank
    if node is None or rank is None or line.node or rank in known.node_of_rank:
        return True
    return (
        told.leaf is None or leaves()[told.leaf].kind is not Kind.SYMPTOM or one_node(known, rank)
    )


def felt_by(asked: Asked) -> int | None:
    """The only rank that printed an error of its own was hit by the deeper fault."""
    case, event = asked.case, asked.event
    device = on_their_gpus(asked) or _lost_its_device(case)
    # What a program raises by itself is no sign of a broken machine under it, unless it is the very same.
    others = [
        c
        for c in asked.selection.candidates
        if (c.leaf == event.leaf or not is_own(c))
        and c.blames is not Blames.NOBODY
        and not _only_waited(asked, c)
    ]
    same = {_whose(asked, c) for c in others if c.leaf == event.leaf} - {None}
    felt = device or same or {_whose(asked, c) for c in others} - {None}
    # A lost-connection line is printed by the peer, and who waited in vain in a collective felt
    # nothing but that another rank did not come.
    told: list[LogLine] = [
        o.line
        for o in case.with_role(Role.CASCADE)
        if _may_be_there(asked, o)
        and not _names_the_missing(asked, o.line)
        and not says("lost-peer", o.line.text)
        and not says("waited-in-vain", o.line.text)
        and not _of_another_host(asked, o.line)
    ]
    # A rank of another node only lost this one.
    here = [line for line in told if line.node and line.node == event.line.node]
    if event.line.node and any(line.node for line in told):
        told = here
    felt = felt or {_printed_by(asked, line) for line in here or told} - {None}
    return felt.pop() if len(felt) == 1 else None
