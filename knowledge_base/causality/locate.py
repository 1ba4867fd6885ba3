"""Where a fault was: rank, node and GPU, as far as the evidence ties them to its line.

The line itself knows best; then the process id and the PCI address on it; then who felt it. Nobody
is named on a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rerail.domain.evidence import LogLine, Observation, Role, Stream, Tier
from rerail.knowledge_base.causality.case import Case
from rerail.knowledge_base.causality.exits import ExitFact
from rerail.knowledge_base.causality.joins import Joins, find_pci
from rerail.knowledge_base.causality.launch_checks import node_found_faulty, node_not_joined
from rerail.knowledge_base.causality.one_node import (
    device_in_front,
    one_node,
    spawned,
)
from rerail.knowledge_base.causality.processes import Identity, short
from rerail.knowledge_base.causality.rank_sections import odd_one_out, rank_above
from rerail.knowledge_base.causality.ray_tasks import task_of
from rerail.knowledge_base.causality.select import Selection
from rerail.knowledge_base.causality.smi_sections import gpu_above
from rerail.knowledge_base.causality.witnesses import (
    LOST,
    WAITED,
    accused_by_several,
    ended_before_order,
    node_in_words,
    node_of_broadcast,
    rank_lost_by_jax,
    rank_that_ended,
    rank_told_again,
)
from rerail.knowledge_base.taxonomy import leaves

NO_NODE = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1"})  # noqa: S104 - names, not a bind
EVERYWHERE = 3
"""A fault of one kind on this many ranks is nobody's in particular."""
_TASK_IN_FRONT = re.compile(r"\s{0,8}(\d{1,6}): ")
_TASKS_OF_NODE = re.compile(r"srun: error: (?P<node>[\w.-]+): tasks? (?P<tasks>[\d,-]+): ")
# Of these the process that tells is the one at the other end, as often as not.
_TOLD_BY_PEERS = frozenset({"network", "nccl_communication", "distributed_init"})


@dataclass(slots=True)
class Place:
    """Rank, node, local GPU index and PCI address of a fault, and why there if its line does not say; None where unknown."""

    rank: int | None = None
    node: str | None = None
    gpu: int | None = None
    pci: str | None = None
    why: str | None = None


def locate(
    case: Case, selection: Selection, joins: Joins, exits: list[ExitFact], winner: Observation
) -> Place:
    """Return where the chosen first fault was."""
    fields, line = winner.fields, winner.line
    place = Place(gpu=_number(fields.get("gpu")), pci=fields.get("pci"))
    if place.pci is None and (section := gpu_above(case, line)) is not None:
        place.pci, place.gpu = section
    accused = (
        accused_by_several(selection, joins, winner) if peers_tell(winner.leaf or "") else None
    )
    if accused is None and (accused := node_not_joined(case, joins, winner)) is not None:
        place.why = (
            f"one node is missing in the store, and of the allocation only {accused} wrote nothing"
        )
    if accused is not None:
        place.node = accused
        return place
    identity = _identity(case, joins, winner, place.pci)
    place.rank = _rank(case, selection, joins, exits, winner, identity)
    place.node = (
        fields.get("node")
        or line.node
        or (identity.node if identity else None)
        or node_in_words(case, selection, winner)
        or node_of_broadcast(case, line)
        or node_found_faulty(case, winner)
        or joins.seats.node_of(line)
    )
    if place.gpu is None and identity is not None:
        place.gpu = identity.gpu if identity.gpu is not None else identity.local_rank
    if place.node is None and place.rank is not None:
        place.node = joins.node_of_rank.get(place.rank)
    if place.node is None:
        place.node = _node_of_task(exits, line)
    if place.node is None:
        place.node = _node_from_exits(
            _before_the_loss(case, ended_before_order(case, exits)), place.rank
        )
    if place.node is None and len(joins.nodes_seen) == 1:
        # A node that only its kernel speaks of need not be where a program failed.
        kernel = line.stream is Stream.KERNEL
        deep = winner.tier in (Tier.HARDWARE, Tier.HOST) or kernel
        # Nor does a rank run on the only node of which the log knows the name, where there are several.
        if kernel or place.rank is None or one_node(joins, place.rank):
            place.node = next(iter(joins.nodes_seen if deep else joins.nodes_at_work), None)
    if place.node in NO_NODE:
        place.node = None
    if _everywhere(selection, winner, place):
        place.rank = None
    return place


def _identity(case: Case, joins: Joins, winner: Observation, pci: str | None) -> Identity | None:
    pid = winner.fields.get("pid")
    # An address belongs to one process of a node; the ids inside a container are others than the
    # kernel's, and repeat.
    by_pci = find_pci(joins, pci, winner.line.node) if pci else None
    if by_pci is not None and by_pci.rank is not None:
        return by_pci
    by_pid = joins.by_pid.get(int(pid), winner.line.node) if pid and pid.isdigit() else None
    own = winner.line.pid
    if by_pid is None and own is not None and winner.leaf and not peers_tell(winner.leaf):
        by_pid = joins.by_pid.get(own, winner.line.node)
    if (
        by_pid is None
        and by_pci is None
        and not peers_tell(winner.leaf or "")
        and (task := task_of(case, winner.line)) is not None
    ):
        by_pid = joins.by_pid.get(*task) or Identity(pid=task[0], node=task[1])
    return by_pid or by_pci


def peers_tell(leaf: str) -> bool:
    """Tell whether a failure of this kind is mostly reported by the process at the other end."""
    return leaf in leaves() and leaves()[leaf].category in _TOLD_BY_PEERS


def _rank(
    case: Case,
    selection: Selection,
    joins: Joins,
    exits: list[ExitFact],
    winner: Observation,
    identity: Identity | None,
) -> int | None:
    named = _number(winner.fields.get("rank"))
    if named is not None:
        return named
    line = winner.line
    if winner.leaf == "rank_divergence":
        # Who noticed that two ranks do different things is one of the two, and not known to be the wrong one.
        return odd_one_out(case, line)
    if winner.leaf == "loss_nan" and any(
        r.line == line.number for r in case.view(line).survey.steps
    ):
        # A step line carries the loss of the whole job; its rank is only the one that prints.
        return None
    headed = rank_above(case, line)
    if headed is not None:
        return headed
    if identity is not None and identity.rank is not None:
        return identity.rank
    if (
        identity is not None
        and identity.local_rank is not None
        and len(joins.nodes_seen) <= 1
        and joins.ranks_seen
        and (identity.local_rank in joins.ranks_seen or one_node(joins, identity.local_rank))
    ):
        # On a single node, as the labels show it, a local rank is a rank.
        return identity.local_rank
    seated = joins.seats.rank_at(line)
    if seated is not None:
        return seated
    local = device_in_front(line) if line.label else spawned(case, line)
    if local is not None and one_node(joins, local):
        return local
    return _rank_by_others(case, selection, exits, winner)


def _rank_by_others(
    case: Case, selection: Selection, exits: list[ExitFact], winner: Observation
) -> int | None:
    """The rank of a fault whose own line names none, by who felt it, told it again or ended of it."""
    if winner.tier in (Tier.HARDWARE, Tier.HOST) or winner.line.stream is Stream.KERNEL:
        felt = _felt_by(case, selection, winner)
        if felt is None:
            felt = rank_that_ended(case, selection, exits, winner)
        return felt if felt is not None else rank_lost_by_jax(case)
    if winner.leaf == "node_fail_scheduler":
        return rank_lost_by_jax(case)
    told = rank_told_again(case, winner)
    if told is None:
        told = _died(exits, winner)
    return told if told is not None else rank_that_ended(case, selection, exits, winner)


def _everywhere(selection: Selection, winner: Observation, place: Place) -> bool:
    same = {c.line.rank for c in selection.candidates if c.leaf == winner.leaf} - {None}
    return len(same) >= EVERYWHERE and place.rank in same and not place.pci


def _died(exits: list[ExitFact], winner: Observation) -> int | None:
    """The only rank that a signal ended by itself is the one whose crash the log shows."""
    node = short(winner.fields.get("node") or winner.line.node or "")
    # Not SIGABRT: that is how NCCL ends the ranks that waited in vain. Nor who ended on another host.
    crashed = {
        f.rank
        for f in exits
        if f.code in (-4, -7, -8, -9, -11) and (not node or not f.node or short(f.node) == node)
    } - {None}
    return crashed.pop() if len(crashed) == 1 else None


def _felt_by(case: Case, selection: Selection, winner: Observation) -> int | None:
    """The only rank that printed an error of its own was hit by the deeper fault."""
    device = {
        o.line.rank
        for o in case.observations
        if o is not winner
        and o.tier in (Tier.LIBRARY, Tier.HARDWARE, Tier.APPLICATION)
        and any(word in o.line.text for word in ("CUDA", "uncorrectable", "Cuda failure"))
    } - {None}
    felt = device or {c.line.rank for c in selection.candidates} - {None}
    # Who tells of a lost peer sat at the other end.
    # Who waited in vain in a collective felt nothing but that another rank did not come.
    told = [
        o.line
        for o in case.with_role(Role.CASCADE)
        if not LOST.search(o.line.text) and not WAITED.search(o.line.text)
    ]
    # A rank of another node only lost this one.
    here = [line for line in told if line.node and line.node == winner.line.node]
    if winner.line.node and any(line.node for line in told):
        told = here
    felt = felt or {line.rank for line in here or told} - {None}
    return felt.pop() if len(felt) == 1 else None


def _before_the_loss(case: Case, exits: list[ExitFact]) -> list[ExitFact]:
    """The exits in front of the first line that tells of a lost process: nobody was torn down before it."""
    lost = [o.line for o in case.with_role(Role.CASCADE)]
    first = [
        f
        for f in exits
        if lost and all(f.line.file == line.file and f.line.number < line.number for line in lost)
    ]
    return first or exits


def _node_from_exits(exits: list[ExitFact], rank: int | None) -> str | None:
    """The node whose task ended first and alone; later tasks were torn down."""
    named = [f for f in exits if f.node and f.code not in (-15, 143)]
    if rank is not None:
        named = [f for f in named if f.rank == rank] or named
    return named[0].node if len({f.node for f in named}) == 1 else None


def _node_of_task(exits: list[ExitFact], line: LogLine) -> str | None:
    """The node of the task that `srun --label` puts in front of a line, as srun's own words on its end tell it."""
    front = _TASK_IN_FRONT.match(line.text)
    if front is None or "/" not in line.label or not line.label.startswith(f"r{int(front[1])}/"):
        return None
    nodes = {
        told["node"]
        for fact in exits
        if (told := _TASKS_OF_NODE.search(fact.line.text)) and _among(int(front[1]), told["tasks"])
    }
    return nodes.pop() if len(nodes) == 1 else None


def _among(task: int, tasks: str) -> bool:
    for part in tasks.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and int(first) <= task <= int(last if last.isdigit() else first):
            return True
    return False


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
