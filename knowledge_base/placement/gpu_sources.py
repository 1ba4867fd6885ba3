"""Which GPU an event was on, and which process of the job used it."""

from __future__ import annotations

from dataclasses import replace

from rerail.domain.evidence import Blames, LogLine, Observation, Tier
from rerail.knowledge_base.placement.headings import Named, named_above
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.names import pci_key, same_host, short
from rerail.knowledge_base.placement.own_words import number_in
from rerail.knowledge_base.placement.place import Answer, Asked, Reason
from rerail.knowledge_base.placement.processes import Identity, pid_in_front

_BESIDE_S, _BESIDE_LINES = 10.0, 5


def device(asked: Asked) -> None:
    """Set GPU index and PCI address that the event itself, or its section of a report, names."""
    found, fields = asked.place, asked.event.fields
    gpu = fields.get("gpu", "")
    found.gpu = int(gpu) if gpu.isdigit() else None
    found.pci = fields.get("pci")
    if found.pci is not None and found.gpu is None:
        node = fields.get("node") or asked.line.node or ""
        found.gpu = asked.identities.gpu_of_pci.get((short(node), pci_key(found.pci)))
    if found.pci is None and (section := named_above(asked.case, asked.line, "pci")) is not None:
        # nvidia-smi lists devices in the order of their addresses.
        found.pci, found.gpu = section.slots["pci"], section.position
        found.reasons.append(Reason(f"GPU {found.pci}", "the heading names it", section.line))
    if found.gpu is None and (section := named_above(asked.case, asked.line, "gpu")) is not None:
        found.gpu = section.number("gpu")
        found.reasons.append(Reason(f"GPU {found.gpu}", "the heading names it", section.line))


def process(asked: Asked) -> None:
    """Set the process that the event is about: by PCI address, by process id, by a remote task."""
    identities, line, found = asked.identities, asked.line, asked.place
    pid = asked.event.fields.get("pid")
    # An address belongs to one process of a node; the ids inside a container are others than the
    # kernel's, and repeat.
    by_pci = identities.gpu_at(found.pci, line.node) if found.pci else None
    if by_pci is not None and by_pci.rank is not None:
        asked.process = by_pci
        return
    by_pid = identities.by_pid.get(int(pid), line.node) if pid and pid.isdigit() else None
    told_by_peers = asked.event.blames is Blames.PEER
    task = None if told_by_peers else named_above(asked.case, line, "pid")
    if task is not None and "node" in task.slots and line.pid not in (None, task.number("pid")):
        # A process relays what another one raised, on a host that the heading names.
        asked.process = _headed(identities, task)
        return
    there = asked.event.fields.get("node")
    of_another = pid is not None and there and line.node and not same_host(there, line.node)
    if (
        by_pid is None
        and not of_another
        and (own := pid_in_front(line)) is not None
        and asked.event.leaf
        and not (told_by_peers and line.rank is not None)
    ):
        by_pid = identities.by_pid.get(own, line.node)
        if told_by_peers and by_pid is not None and by_pid.rank is None:
            by_pid = None  # beside a complaint of another host a local rank is no rank
    if by_pid is None and by_pci is None and task is not None:
        by_pid = _headed(identities, task)
    asked.process = by_pid or by_pci


def _headed(identities: Identities, heading: Named) -> Identity:
    number, node = heading.number("pid"), heading.slots.get("node")
    known = identities.by_pid.get(number, node)
    if known is None or known.node is not None:
        return known or Identity(pid=number, node=node)
    return replace(known, node=node)


def index(asked: Asked) -> None:
    """Fill in the GPU's index from the process that used it."""
    who = asked.process
    if asked.place.gpu is None and who is not None:
        asked.place.gpu = who.gpu if who.gpu is not None else who.local_rank


def told(asked: Asked) -> int | None:
    """Return the index of the GPU that the event names, in a slot or in the words of its line."""
    if asked.place.gpu is not None:
        return asked.place.gpu
    return number_in(asked.line.message, "gpu")


def device_beside(asked: Asked) -> Answer[int] | None:
    """The rank on the one GPU of the host that the kernel names within seconds of a fault of a bridge or link above it."""
    node = asked.event.fields.get("node") or asked.line.node
    if asked.event.tier is not Tier.HARDWARE:
        return None
    found: dict[int, LogLine] = {}
    for other in asked.case.observations:
        address, beside = other.fields.get("pci"), other.fields.get("node") or other.line.node
        if address is None or not (
            same_host(beside, node) if node else _in_one_output(asked, other)
        ):
            continue
        apart = asked.case.seconds_between(asked.event, other)
        near = _right_beside(asked.line, other.line) if apart is None else abs(apart) <= _BESIDE_S
        if not near:
            continue
        gpu = asked.identities.gpu_of_pci.get((short(node or ""), pci_key(address)))
        held = asked.identities.ranks_at.get(asked.identities.host(short(node or "")), ())
        who = asked.identities.gpu_at(address, node)
        if who is not None and who.rank is not None:
            found[who.rank] = other.line
        elif gpu is not None and gpu < len(held):
            found[held[gpu]] = other.line
    if len(found) != 1:
        return None
    rank, line = next(iter(found.items()))
    return Answer(rank, "the kernel names its GPU beside it", line)


def _right_beside(line: LogLine, other: LogLine) -> bool:
    """Tell whether two lines without a time stand close to each other, as the kernel's do behind a shared one."""
    return line.file == other.file and abs(line.number - other.number) <= _BESIDE_LINES


def _in_one_output(asked: Asked, other: Observation) -> bool:
    """Tell whether no host stands in front of two lines, and both are of one section of a file."""
    view = asked.case.view(asked.line)
    return (
        not other.line.node
        and not other.fields.get("node")
        and other.line.file == asked.line.file
        and view.section(other.line.number) == view.section(asked.line.number)
    )
