"""Where every process is while a job hangs: who is not where the others wait.

The ranks of a job wait for each other in collectives, and on the GPU for collectives that do not
end. A few that are anywhere else are what the others wait for; where all wait alike, nobody is
missing and the operation itself does not end. One look at a healthy job shows much the same, so
without a second look, or time-outs, it is a guess.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

from rerail.domain.diagnosis import Status
from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.conclusion import Conclusion
from rerail.knowledge_base.causality.progress import outlived
from rerail.knowledge_base.causality.repeated_logs import without_copies
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.names import same_host
from rerail.knowledge_base.placement.processes import Identity
from rerail.knowledge_base.waiting.engine import MOST_ODD, Waiting
from rerail.knowledge_base.waiting.read import frames
from rerail.log_parsers.stacks import Frame, Stack, read_rows, read_stacks

_LEAST = 3


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one process is: what it waits for, if anything, and at which line of the program."""

    stack: Stack
    rank: int | None
    node: str | None
    waits: str | None
    site: Frame

    @property
    def line(self) -> LogLine:
        """The line of the stack that shows where the program is, or that it waits for data."""
        shown = next((f for f in self.stack.frames if _of_loader(f)), self.site)
        return self.stack.lines[self.stack.frames.index(shown)]

    @property
    def name(self) -> str:
        """How the process is called: by its rank, its process id or its file."""
        if self.rank is not None:
            return f"rank {self.rank}"
        return f"process {self.stack.pid}" if self.stack.pid is not None else self.stack.head.file


def from_stacks(case: Case, identities: Identities, waiting: Waiting | None) -> Conclusion | None:
    """Conclude from the stacks of three or more processes, or of the one that others wait for; or return None.

    Args:
        case: the evidence.
        identities: which process is which rank.
        waiting: who waits for whom, where something else tells that the job hangs.
    """
    hung = waiting is not None
    files = dict.fromkeys(o.line.file for o in case.observations if "stack" in o.marks)
    views = without_copies(view for view in case.views if view.name in files)
    stacks = [s for view in views for s in read_rows(view) or read_stacks(view)]
    places, again = _latest(stacks, identities)
    if any(outlived(case, p.stack.head) for p in places):
        return None
    if len(places) < _LEAST:
        return _of_the_awaited(places, waiting, identities)
    odd, leaf, why = _odd(places)
    if leaf is None:
        return None
    status = Status.SUPPORTED if odd and (hung or again) else Status.HYPOTHESIS
    others = [p for p in places if p not in odd]
    return Conclusion(
        leaf, (odd or others)[0].line, status, why,
        tuple(sorted({p.rank for p in odd if p.rank is not None})),
        tuple(dict.fromkeys(p.node for p in odd if p.node)),
        # Why it stands there the stack does not tell; one that stood once may not stand again.
        "restart_as_is" if leaf == "nccl_slow_rank_timeout" else None,
        tuple(p.line for p in [*odd[1:3], *(others if odd else others[1:])[:2]]),
    )  # fmt: skip


def _of_the_awaited(
    places: list[Standing], waiting: Waiting | None, identities: Identities
) -> Conclusion | None:
    """Conclude from the only stack of a process that does not wait, where others wait for just that rank."""
    working = [p for p in places if not p.waits]
    if waiting is None or len(working) != 1 or len(waiting.suspects) != 1:
        return None
    place, rank = working[0], waiting.suspects[0]
    where = identities.node_of_rank.get(rank)
    there = place.node is not None and where is not None and same_host(place.node, where)
    agent = any(frames()["agent"].search(frame.file) for frame in place.stack.frames)
    # Of a process of that host that nothing ties to a rank, only where the host has one.
    alone = there and identities.per_node == 1 and place.rank is None
    if agent or (place.rank != rank and not alone):
        return None
    why = f"rank {rank}, which the others wait for, is {_where(place)}"
    nodes = (place.node,) if place.node else ()
    return Conclusion(
        _leaf_of(place), place.line, Status.SUPPORTED, why, (rank,), nodes, "restart_as_is"
    )


def _where(place: Standing) -> str:
    top, site = place.stack.frames[0], place.site
    return f"at {site}" if top == site else f"in {top}, called from {site}"


def _leaf_of(place: Standing) -> str:
    loader = any(map(_of_loader, place.stack.frames))
    return "dataloader_hang" if loader else "nccl_slow_rank_timeout"


def _of_loader(frame: Frame) -> bool:
    return frames()["data"].search(frame.file) is not None


def _latest(stacks: list[Stack], identities: Identities) -> tuple[list[Standing], bool]:
    """Return the last place of each process, and whether all of several looks saw the same."""
    last: dict[object, Standing] = {}
    looks: Counter[object] = Counter()
    moved = False
    for stack in stacks:
        place = _standing(stack, identities)
        head = stack.head
        key = place.rank if place.rank is not None else (head.file, head.label, stack.pid)
        before = last.get(key)
        moved |= before is not None and before.stack.frames != stack.frames
        last[key] = place
        looks[key] += 1
    return list(last.values()), bool(looks) and min(looks.values()) > 1 and not moved


def _standing(stack: Stack, identities: Identities) -> Standing:
    head = stack.head
    known = identities.by_pid.get(stack.pid, head.node) if stack.pid is not None else None
    node = head.node or (known.node if known else None)
    rank = head.rank if head.rank is not None else _rank_of(known, node, identities)
    if node is None and rank is not None:
        node = identities.node_of_rank.get(rank)
    calls = stack.frames
    waits = next(
        (
            str(frame)
            for pattern in (frames()["collective"], frames()["gpu"])
            for frame in calls
            if pattern.search(frame.function) or pattern.search(frame.file)
        ),
        None,
    )
    if any(map(_of_loader, calls)):
        waits = None  # it waits for data, not for the others
    # Native frames of the interpreter have no lines, and stand in front of what it runs.
    own = [f for f in calls if not _of_library(f.file)]
    site = next((f for f in own if f.line is not None), own[0] if own else calls[0])
    return Standing(stack, rank, node, waits, site)


def _rank_of(known: Identity | None, node: str | None, identities: Identities) -> int | None:
    """Return the rank of a process: its own, or that of its local rank on a host whose ranks are told without a gap."""
    if known is None or known.rank is not None or known.local_rank is None or node is None:
        return known.rank if known is not None else None
    held = identities.block_on(node)
    return held[known.local_rank] if known.local_rank < len(held) else None


def _of_library(file: str) -> bool:
    # py-spy shortens what it finds on the path of modules: `queue.py`, `torch/cuda/__init__.py`.
    module = file.split("/", 1)[0].removesuffix(".py")
    return module in sys.stdlib_module_names or frames()["library"].search(file) is not None


def _odd(places: list[Standing]) -> tuple[list[Standing], str | None, str]:
    """Return the processes that the others wait for, the leaf and the reason."""
    waiting = [p for p in places if p.waits]
    working = [p for p in places if not p.waits]
    few = MOST_ODD * len(places)
    if working and len(working) <= few:
        common = Counter(p.site for p in waiting).most_common(1)[0][0]
        where = _where(working[0])
        why = f"{_names(working)} {_is(working)} {where}, while {len(waiting)} others wait at {common}"
        return working, _leaf_of(working[0]), why
    if working:
        return [], None, ""
    sites = Counter(p.site for p in waiting)
    common, count = sites.most_common(1)[0]
    odd = [p for p in waiting if p.site != common]
    if (
        odd
        and len(odd) <= few
        and not any(frames()["point_to_point"].search(str(p.waits)) for p in waiting)
    ):
        why = f"{_names(odd)} {_is(odd)} waiting at {odd[0].site}, {count} others at {common}"
        return odd, "rank_divergence", why
    if not odd:
        why = f"all {len(places)} processes wait at {common}: none is missing, the operation does not end"
        return [], "nccl_timeout_unexplained", why
    return [], None, ""


def _names(places: list[Standing]) -> str:
    named = ", ".join(p.name for p in places[:4])
    return named + (f" and {len(places) - 4} more" if len(places) > 4 else "")


def _is(places: list[Standing]) -> str:
    return "is" if len(places) == 1 else "are"
