"""Which rank a library warned of under the number of a device: the one that raises an exception behind the warning."""

from __future__ import annotations

from rerail.domain.evidence import Role
from rerail.knowledge_base.phrases import says
from rerail.knowledge_base.placement.names import same_host
from rerail.knowledge_base.placement.one_node import GPUS_OF_A_NODE
from rerail.knowledge_base.placement.place import Answer, Asked
from rerail.knowledge_base.placement.rank_of_local import number_of_device
from rerail.log_parsers.tracebacks import looks_like_exception


def raises_behind(asked: Asked) -> Answer[int] | None:
    """The only rank that raises behind a warning, if it has the device whose number stands in front of that.

    No other process may have warned under the same number.
    """
    line, known = asked.line, asked.identities
    device = number_of_device(line)
    if device is None or line.rank is not None or asked.event.lines:
        return None
    if any(
        number_of_device(o.line) == device and (o.line.node, o.line.pid) != (line.node, line.pid)
        for o in asked.case.observations
    ):
        return None
    raised = {
        o.line.rank: o.line
        for o in asked.case.with_role(Role.INITIATING, Role.CASCADE)
        if o.line.rank is not None
        and o.line.file == line.file
        and o.line.number > line.number
        and looks_like_exception(o.line.message)
        and not says("lost-peer", o.line.text)
    }
    if len(raised) != 1:
        return None
    ((rank, exception),) = raised.items()
    host = known.node_of_rank.get(rank)
    if host is not None and line.node and not same_host(host, line.node):
        return None
    if rank % (known.per_node or GPUS_OF_A_NODE) != device:
        return None
    if device == 0 and not _sees_several(asked):
        return None
    return Answer(rank, "it alone raises behind this, and has the device of this number", exception)


def _sees_several(asked: Asked) -> bool:
    """Tell whether processes of the line's host have other devices than the first, and this one alone has that.

    A process that sees one device alone calls it the first, whichever it is.
    """
    devices: dict[int | None, int] = {}
    view = asked.case.view(asked.line)
    for number in asked.case.lines_with(view, "device-of-nccl"):
        line = view.line(number)
        device = None if line is None else number_of_device(line)
        if line is not None and device is not None and same_host(line.node, asked.line.node):
            devices[line.pid] = max(device, devices.get(line.pid, 0))
    first = [pid for pid, device in devices.items() if device == 0]
    return len(devices) > 1 and first == [asked.line.pid]
