"""Which rank sits at the GPU that a machine, a tool or an allocator numbers."""

from __future__ import annotations

from rerail.domain.evidence import LogLine, Tier
from rerail.knowledge_base.phrases import phrase, phrase_in_bytes
from rerail.knowledge_base.placement.gpu_sources import told as gpu_told
from rerail.knowledge_base.placement.headings import named_above
from rerail.knowledge_base.placement.names import named, short
from rerail.knowledge_base.placement.one_node import one_node
from rerail.knowledge_base.placement.own_words import node_in, number_in
from rerail.knowledge_base.placement.place import Answer, Asked
from rerail.knowledge_base.placement.rank_of_local import gpu_of_its_own
from rerail.knowledge_base.taxonomy import has

_MOST_LINES = 20_000


def by_device(asked: Asked) -> Answer[int] | None:
    """On a job of one node each rank has the GPU of its number, where that rank is known to be there."""
    named_gpu = _by_uuid(asked)
    if named_gpu is not None:
        return named_gpu
    gpu = gpu_told(asked)
    there = _on_several(asked, gpu)
    if there is not None:
        return there
    node = asked.event.fields.get("node") or asked.line.node or asked.line.place
    if gpu is not None and node and counted_by_the_machine(asked):
        known, at = asked.identities, (short(node), gpu)
        rank = known.rank_of_gpu.get(at)
        if rank is None and not reordered(asked):
            rank = known.rank_of_seat.get(at)
        if rank is not None:
            return Answer(
                rank, f"GPU {gpu} of {node} is this rank's", known.told_by.get(("rank", rank))
            )
    if not counted_by_the_machine(asked):
        gpu = gpu_of_its_own(asked.line.text)
        if (there := _own_of_host(asked, node, gpu)) is not None:
            return there
    known = asked.identities
    ranks = known.ranks_seen | known.ranks_heard
    if known.node_count == 1:
        ranks |= set(range(known.per_node or 0))
    if gpu is None or gpu not in ranks:
        return None
    if not one_node(asked.identities, gpu):
        return None
    return Answer(gpu, f"the job runs on one node, and GPU {gpu} is this rank's", asked.line)


def _own_of_host(asked: Asked, node: str | None, gpu: int | None) -> Answer[int] | None:
    """The rank at the GPU that a process calls its own, on the host of its line or of the heading above it."""
    if node is None and (heading := named_above(asked.case, asked.line, "node")) is not None:
        node = heading.slots["node"]
    return _in_order(asked, node, gpu)


def _by_uuid(asked: Asked) -> Answer[int] | None:
    """The one rank that says that it has the GPU whose UUID the line names."""
    uuid = phrase("uuid-of-gpu").search(asked.line.text)
    if uuid is None or not has(asked.event.leaf, "of_a_gpu"):
        return None
    ranks: dict[int, LogLine] = {}
    name = uuid["uuid"].encode()
    for view in asked.case.views:
        for number in view.numbers[:_MOST_LINES]:
            line = view.line(number) if name in view.survey.kept[number] else None
            if line is not None and line.lies != asked.line.lies:
                own = phrase("rank-in-front").search(line.text)
                rank = int(own["rank"]) if own else line.rank
                if rank is not None:
                    ranks.setdefault(rank, line)
    if len(ranks) != 1:
        return None
    ((rank, line),) = ranks.items()
    return Answer(rank, f"{uuid['uuid']} is this rank's", line)


def _on_several(asked: Asked, gpu: int | None) -> Answer[int] | None:
    """On a host whose ranks a table lists in order, one for each GPU, that of the GPU's number."""
    node = asked.event.fields.get("node") or asked.line.node or node_in(asked.line.message)
    words = asked.line.message
    own = number_in(words, "gpu") is not None and node_in(words) is not None
    return _in_order(asked, node, gpu) if own or counted_by_the_machine(asked) else None


def _in_order(asked: Asked, node: str | None, gpu: int | None) -> Answer[int] | None:
    """The rank at a GPU's number of a host whose ranks are known in the order of their local ranks."""
    held = asked.identities.held_on(node) if node else ()
    if gpu is None or gpu >= len(held) or reordered(asked):
        return None
    return Answer(held[gpu], f"GPU {gpu} of {node}, which holds {named(held)} in order", asked.line)


def counted_by_the_machine(asked: Asked) -> bool:
    """Tell whether the kernel or a tool counted the GPU; a process may see one alone and call it the first."""
    return has(asked.event.leaf, "of_a_gpu") and asked.event.tier is Tier.HARDWARE


def reordered(asked: Asked) -> bool:
    """Tell whether some process sees its GPUs in an order of its own."""
    order = phrase_in_bytes("visible-devices")
    for view in asked.case.views:
        for number in view.numbers[:_MOST_LINES]:
            found = order.search(view.survey.kept[number])
            listed = [int(one) for one in found["list"].split(b",")] if found else []
            if listed != list(range(len(listed))):
                return True
    return False
