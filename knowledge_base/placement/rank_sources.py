"""Which rank an event was on: the sources, the surest first."""

from __future__ import annotations

import re

from rerail.domain.evidence import Blames, LogLine, Observation, Role, Stream, Tier
from rerail.knowledge_base.causality.exits import ExitFact
from rerail.knowledge_base.phrases import phrase, says
from rerail.knowledge_base.placement import witnesses
from rerail.knowledge_base.placement.blocks import may_sit_at
from rerail.knowledge_base.placement.by_device import by_device, counted_by_the_machine, reordered
from rerail.knowledge_base.placement.by_exits import (
    first_of_all_hosts,
    launcher_saw,
    own_exit,
    raised_exit,
)
from rerail.knowledge_base.placement.everywhere import EVERYWHERE
from rerail.knowledge_base.placement.felt import felt_by, on_their_gpus
from rerail.knowledge_base.placement.gpu_sources import device_beside
from rerail.knowledge_base.placement.gpu_sources import told as gpu_told
from rerail.knowledge_base.placement.headings import named_above, odd_one_out
from rerail.knowledge_base.placement.identities import Identities, rivals
from rerail.knowledge_base.placement.introductions import writer_of
from rerail.knowledge_base.placement.logged_tracebacks import logged_by
from rerail.knowledge_base.placement.names import named, same_host, short
from rerail.knowledge_base.placement.numbered_outputs import of_numbered_output
from rerail.knowledge_base.placement.odd_version import of_odd_version
from rerail.knowledge_base.placement.one_node import device_in_front, local_that_is_rank, one_node
from rerail.knowledge_base.placement.own_loss import is_own_loss
from rerail.knowledge_base.placement.own_shard import own_shard
from rerail.knowledge_base.placement.own_words import number_in, numbers_in
from rerail.knowledge_base.placement.place import Answer, Asked, Reason, Source
from rerail.knowledge_base.placement.raised_behind import raises_behind
from rerail.knowledge_base.placement.raised_from import raised_from
from rerail.knowledge_base.placement.rank_of_local import rank_at
from rerail.knowledge_base.placement.slowest_told import named_slow
from rerail.knowledge_base.taxonomy import has

_MOST_RANKS_OF_A_NODE = 64
_WITNESSES = 2
_MOST_LINES = 20_000
# Signals that a process brings on itself, or the kernel for what it did. Not SIGABRT: that is how NCCL
# ends the ranks that waited in vain.
_OWN_SIGNALS = frozenset({"crashed", "killed"})


def _from_one(asked: Asked) -> Answer[int] | None:
    """A program that counts its processes from one calls none of them by its rank."""
    if not asked.identities.counts_from_one:
        return None
    return Answer(None, "the program counts its ranks from one")


def _slot(asked: Asked) -> Answer[int] | None:
    named = asked.event.fields.get("rank", "")
    if not named.isdigit():
        return None
    if asked.event.blames is Blames.PEER and _each_names_another(asked):
        return Answer(None, "each speaks of another one, and whom each lost first is not told")
    return Answer(int(named), "the line names it", asked.line)


def _each_names_another(asked: Asked) -> bool:
    """Tell whether processes complain of different peers in the same words."""
    told = {
        (writer_of(asked.case, o.line), o.fields.get("rank"))
        for o in asked.selection.candidates
        if o.rule_id == asked.event.rule_id
    }
    return len({writer for writer, _ in told}) > 1 and len({rank for _, rank in told}) > 1


def _lacked_by_several(asked: Asked) -> Answer[int] | None:
    """Who complains of a peer whose host the line names, or of one that another lacks as well, is not the one at fault."""
    event, peer = asked.event, asked.event.fields.get("peer")
    if event.blames is not Blames.PEER or not peer:
        return None
    if event.fields.get("node"):
        return Answer(None, f"the line accuses {peer}, and no rank there")
    told = (one for one in asked.selection.candidates if one.rule_id == event.rule_id)
    those = {asked.identities.rank_of(one.line) for one in told if one.fields.get("peer") == peer}
    return Answer(None, f"two lack {peer}") if 1 < len(those - {None}) < EVERYWHERE else None


def _subject(asked: Asked) -> Answer[int] | None:
    """The rank that a line speaks of, where its rule says that the one who prints it is not at fault."""
    if asked.event.blames is not Blames.SUBJECT:
        return None
    told = [
        (o.line.label, numbers_in(o.line.message, "rank"))
        for o in asked.case.observations
        if o.rule_id == asked.event.rule_id
    ]
    accused = set.intersection(*(ranks for _, ranks in told)) if told else set()
    if (
        len(accused) == 2
        and (odd := of_odd_version(asked.case, asked.identities, accused)) is not None
    ):
        return Answer(odd[0], "its host alone loads another version", odd[1])
    speakers = {label for label, _ in told}
    if len(accused) != 1 or (len(speakers) < _WITNESSES and any(len(r) > 1 for _, r in told)):
        return Answer(None, "two that speak of each other do not tell which of them is wrong")
    because = f"{len(speakers)} speak of this rank, and who prints it only noticed"
    return Answer(accused.pop(), because, asked.line)


def _between_two(asked: Asked) -> Answer[int] | None:
    if not has(asked.event.leaf, "between_two"):
        return None
    return Answer(None, "two processes have it of each other, and neither is the one")


def _noticed(asked: Asked) -> Answer[int] | None:
    """Who noticed that two ranks do different things is one of the two, and not known to be the wrong one."""
    if not has(asked.event.leaf, "noticed_by_either"):
        return None
    told = {
        o.line.label: numbers_in(o.line.message, "rank")
        for o in asked.case.observations
        if o.rule_id == asked.event.rule_id
    }
    common = set.intersection(*told.values()) if len(told) > _WITNESSES else set()
    if len(common) == 1:
        return Answer(
            common.pop(), "each line names it, and no other rank stands in all", asked.line
        )
    odd = odd_one_out(asked.case, asked.line)
    return Answer(odd, "its value in the table below differs from all others", asked.line)


def _of_the_job(asked: Asked) -> Answer[int] | None:
    """A step line carries the loss of the whole job; its rank is only the one that prints, unless it says on whom."""
    if "taken" in asked.event.fields:
        return Answer(None, "two processes take this rank")
    if carries_the_jobs_loss(asked):
        return Answer(None, "a step line carries the loss of the whole job")
    if asked.event.blames is Blames.NOBODY and has(asked.event.leaf, "reduced_over_all"):
        return Answer(None, "every rank raises it, whoever had it")
    return None


def carries_the_jobs_loss(asked: Asked) -> bool:
    """Tell whether a step line is of the whole job; an exception is its own process's."""
    line = asked.line
    if number_in(line.message, "rank", telling="on_rank") is not None or asked.event.lines:
        return False
    if says("loss-of-one", line.message) or is_own_loss(asked.case, line):
        return False
    return has(asked.event.leaf, "of_the_job") and any(
        row.line == line.number for row in asked.case.view(line).survey.steps
    )


def _heading(asked: Asked) -> Answer[int] | None:
    found = named_above(asked.case, asked.line, "rank")
    return Answer(found.number("rank"), "the heading names it", found.line) if found else None


def _named_process(asked: Asked) -> Answer[int] | None:
    """A process id in the words of the line, where a rank's own line on that host names the same."""
    pid = asked.event.fields.get("pid", "")
    node = asked.event.fields.get("node") or asked.line.node
    if not pid.isdigit():
        return None
    named = re.compile(rf"\bpid[ :=]{{1,2}}{pid}\b")
    told = [
        o.line
        for o in asked.case.observations
        if o.line.rank is not None and named.search(o.line.message)
        and (node is None or o.line.node is None or _on(asked, o.line, node))
    ]  # fmt: skip
    ranks = {line.rank for line in told} - {None}
    return (
        Answer(ranks.pop(), f"its own line names process {pid}", told[0])
        if len(ranks) == 1
        else None
    )


def _on(asked: Asked, line: LogLine, node: str) -> bool:
    known = asked.identities
    own = known.node_of_address.get(line.node or "", line.node)
    return same_host(own, node) or not rivals(own or "", node)


def _process(asked: Asked) -> Answer[int] | None:
    who, known = asked.process, asked.identities
    if who is None:
        return None
    by = f"process {who.pid}" if who.pid is not None else "this GPU"
    line = known.told_by.get(("pid", who.pid))
    if who.rank is not None:
        return Answer(who.rank, f"{by} is this rank", line)
    node = who.node or asked.event.fields.get("node") or asked.line.node or asked.line.place or ""
    if who.node is None and known.nodes_seen != {node} and node:
        return None  # on another host another process may have this number
    seats = known.seats(node, asked.line)
    if who.local_rank is None or who.local_rank >= len(seats):
        return None
    of = node or "the agent that wrote this log"
    because = f"{by} is local rank {who.local_rank} of {of}, which holds {named(seats)}"
    return Answer(seats[who.local_rank], because, line)


def _local_rank(asked: Asked) -> Answer[int] | None:
    """On a single node, as the labels show it, a local rank is a rank."""
    who, known = asked.process, asked.identities
    local = who.local_rank if who is not None else None
    told = known.ranks_seen or known.ranks_heard or known.world_size
    if local is None or len(known.nodes_seen) > 1 or not told:
        return None
    if local in known.ranks_seen or one_node(known, local):
        return Answer(local, "the job runs on one node, where a local rank is the rank")
    return None


def _label(asked: Asked) -> Answer[int] | None:
    """The label in front, unless its process calls itself a higher rank: then the label counts tasks.

    The rank within a part of the job is never higher than the rank in the whole.
    """
    rank = asked.line.rank
    if rank is None or asked.line.stream is Stream.SCHEDULER:
        return None  # a node's daemon prints through any of its tasks
    if asked.identities.local_labels:
        return Answer(None, "each host has a rank of this number: it counts there alone")
    own = asked.identities.rank_of_task.get(rank)
    if own is not None:
        line = asked.identities.told_by.get(("task's rank", rank))
        return Answer(own, f"the process labelled {rank} calls itself rank {own}", line)
    task = phrase("task-of-launcher").match(asked.line.text)
    if task and any(says("frame-of-a-launcher", one.message) for one in asked.event.lines):
        return Answer(None, f"the launcher in task {rank} raised it, and no rank")
    if task and rank in asked.identities.launcher_tasks and str(rank) in task.groups():
        return Answer(None, f"task {rank} is a launcher, and starts several ranks")
    return called_otherwise(asked) or Answer(rank, "the label in front of the line", asked.line)


def called_otherwise(asked: Asked) -> Answer[int] | None:
    """The rank by which the only process of a section is called there, where the file in its heading counts local ones."""
    line, known = asked.line, asked.identities
    view = asked.case.view(line)
    here = view.section(line.number)
    if line.label or not here:
        return None
    told = {
        who.rank: said
        for who in known.by_pid
        if who.rank is not None
        and (said := known.told_by.get(("pid", who.pid))) is not None
        and said.file == line.file
        and view.section(said.number) == here
    }
    if len(told) != 1 or (rank := next(iter(told))) == line.rank:
        return None
    return Answer(rank, "the process of this file is called so", told[rank])


def _introduced(asked: Asked) -> Answer[int] | None:
    """The writer of the line introduces itself as a rank."""
    found = asked.identities.introduced.get(writer_of(asked.case, asked.line))
    if found is None or asked.line.stream is Stream.SCHEDULER:
        return None
    return Answer(found.rank, "its writer introduces itself as this rank", found.line)


def _said_on(asked: Asked) -> Answer[int] | None:
    """The line says on whom it is so; who prints it may be another."""
    rank = number_in(asked.line.message, "rank", telling="on_rank")
    return (
        None if rank is None else Answer(rank, "the line says that it was on this rank", asked.line)
    )


def _seat(asked: Asked) -> Answer[int] | None:
    rank = rank_at(asked.identities, asked.line)
    return None if rank is None else Answer(rank, "its launcher lists who sits there", asked.line)


def _own_words(asked: Asked) -> Answer[int] | None:
    if asked.line.stream is Stream.KERNEL:
        return None
    rank = number_in(asked.line.message, "rank")
    return None if rank is None else Answer(rank, "the line speaks of this rank alone", asked.line)


def _only_node(asked: Asked) -> Answer[int] | None:
    """The number of a device in front of a line, or of the spawned child that it ended, on a job of one node."""
    line = asked.line
    local = device_in_front(line)
    if local is None:
        local = local_that_is_rank(asked.identities, line)
    if not line.label:
        # What a child prints has no name on it; its launcher tells the exception again, below the child's number.
        same = [o.line for o in asked.case.observations if witnesses.told_again(o, asked.event)]
        same += witnesses.raised_alike(asked.selection, asked.event)
        told = (named_above(asked.case, one, "child") for one in (line, *same))
        children = {one.number("child"): one.line for one in told if one is not None}
        if len(children) == 1:
            ((local, line),) = children.items()
            if (rank := _of_child(asked, local)) is not None:
                return Answer(rank, f"child {local} of the host's ranks", line)
    if local is not None and one_node(asked.identities, local):
        return Answer(local, "the job runs on one node, where a device's number is the rank", line)
    return None


def _of_child(asked: Asked, child: int) -> int | None:
    """Return the rank of a spawned child on the only host, or the only one whose task failed, where all ranks are named."""
    known, hosts = asked.identities, asked.identities.nodes_at_work
    if len(hosts) != 1:
        hosts = {fact.node for fact in asked.exits if fact.node and fact.how == "plain"}
    if len(hosts) != 1:
        return None
    ranks = known.block_on(next(iter(hosts)))
    first, count = next(iter(ranks), 0), len(ranks)
    return first + child if count > 1 and first % count == 0 and child < count else None


def _felt_by_several(asked: Asked) -> bool:
    """Tell whether several ranks felt a machine's fault on their GPUs: a launcher's table names the first of them only."""
    machine = asked.event.tier in (Tier.HARDWARE, Tier.HOST)
    return machine and len(on_their_gpus(asked)) >= EVERYWHERE


def _named_there(asked: Asked) -> Answer[int] | None:
    """The rank of that host of which another line says the same."""
    node = asked.event.fields.get("node") or asked.line.node
    told = {
        int(other.fields["rank"]): other.line
        for other in asked.selection.candidates
        if other.leaf == asked.event.leaf and other.fields.get("rank", "").isdigit()
    }
    there = [r for r in told if node and same_host(asked.identities.node_of_rank.get(r), node)]
    if len(told) != 1 or len(there) != 1:
        return None
    return Answer(there[0], f"another line says the same of this rank of {node}", told[there[0]])


def _of_a_machine(asked: Asked) -> Answer[int] | None:
    """The rank that felt a fault of its machine, or ended of it."""
    if (named := _named_there(asked)) is not None:
        return named
    felt = felt_by(asked)
    if felt is not None:
        return Answer(felt, "this rank alone printed an error of its own")
    if _felt_by_several(asked):
        return None
    rank = witnesses.rank_that_ended(asked.case, asked.selection, asked.exits, asked.event)
    if rank is not None and not _on_another_gpu(asked, rank):
        return Answer(rank, "this rank alone ended by itself")
    return _lost_by_jax(asked)


def _on_another_gpu(asked: Asked, rank: int) -> bool:
    """Tell whether a rank sits on another GPU than the one that the machine names: launchers name who ended first."""
    gpu = asked.place.gpu
    if gpu is None or not counted_by_the_machine(asked):
        return False
    seats = {f.local_rank for f in asked.exits if f.rank == rank} - {None}
    return bool(seats) and gpu not in seats and not reordered(asked)


def _lost_by_jax(asked: Asked) -> Answer[int] | None:
    rank = witnesses.rank_lost_by_jax(asked.case)
    return None if rank is None else Answer(rank, "the coordinator lost this task")


def _others(asked: Asked) -> Answer[int] | None:
    """The rank of a fault whose own line names none, by who felt it, told it again or ended of it."""
    case, event = asked.case, asked.event
    if has(event.leaf, "dies_without_a_word"):
        killed = _died(asked.exits, asked)
        if killed is not None:
            return Answer(killed, "this rank alone was ended by a signal")
        silent = _silent(asked)
        if silent is not None:
            return Answer(
                silent, "of the ranks there, this one alone printed nothing when the job ended"
            )
    elif event.tier in (Tier.HARDWARE, Tier.HOST) or asked.line.stream is Stream.KERNEL:
        return _of_a_machine(asked)
    elif not has(event.leaf, "declared_dead"):
        told = witnesses.rank_told_again(case, event)
        if told is not None:
            return Answer(told, "the same fault is told again with this rank's label")
        for source in (_died(asked.exits, asked), witnesses.rank_that_ended(
            case, asked.selection, asked.exits, event
        )):  # fmt: skip
            if source is not None:
                return Answer(source, "this rank alone ended by itself")
        left = witnesses.left_the_barrier(case, asked.line) if event.lines else None
        seen = phrase("gpu-of-allocator").search(asked.line.text)
        if left is not None and (seen is None or int(seen["gpu"]) == left):
            return Answer(left, "the others lost this rank in their barrier")
        if not has(event.leaf, "whole_host"):
            return None
    return _lost_by_jax(asked)


def _alone_there(asked: Asked) -> Answer[int] | None:
    """The rank of the line's host, where each host of the job has one."""
    name = asked.event.fields.get("node") or asked.line.node or asked.line.place
    if name is None and (heading := named_above(asked.case, asked.line, "node")) is not None:
        name = heading.slots["node"]
    rank = asked.identities.rank_alone_on(name) if name else None
    line = asked.identities.told_by.get(("rank", rank))
    return None if rank is None else Answer(rank, f"{name} has this rank alone", line)


def _told_with_process(asked: Asked) -> Answer[int] | None:
    """Another line tells of the same fault on the same host, and of the process or task that it hit."""
    node = asked.event.fields.get("node") or asked.line.node
    told = {
        (_of_process(asked.identities, other, there), other.line)
        for other in asked.selection.candidates
        if other.leaf == asked.event.leaf
        and (there := other.fields.get("node") or other.line.node) is not None
        and (same_host(there, node) or (node is None and "task" in other.fields))
    }
    ranks = {rank for rank, _ in told} - {None}
    if len(ranks) != 1:
        return None
    return Answer(
        ranks.pop(),
        "another line of the same fault names its process",
        min(told, key=lambda t: t[1].number)[1],
    )


def _of_process(known: Identities, told: Observation, node: str) -> int | None:
    """Return the rank of the process, or of the scheduler's task, that a line of a fault names."""
    pid, task = told.fields.get("pid", ""), told.fields.get("task", "")
    if pid.isdigit() and (who := known.by_pid.get(int(pid), node)) is not None:
        return who.rank
    if not task.isdigit() or int(task) in known.launcher_tasks or known.tasks_per_node == 1:
        return None
    return known.rank_of_task.get(int(task), int(task))


def _only_exit_there(asked: Asked) -> Answer[int] | None:
    """The only process of the event's host that its launcher reports, where nobody else there cried."""
    node = asked.line.node
    killed = has(asked.event.leaf, "dies_without_a_word")
    of_one = killed or bool(asked.event.lines) or counted_by_the_machine(asked)
    if node is None or asked.line.rank is not None or not of_one or _felt_by_several(asked):
        return None
    there = [
        f for f in asked.exits if f.node and short(f.node) == short(node) and f.how != "ordered"
    ]
    ranks = {f.rank for f in there}
    lost = {asked.identities.rank_of(o.line) for o in asked.case.with_role(Role.CASCADE)} - {None}
    if killed and ranks & lost:
        return None  # who is killed does not say that it lost another one
    cried = {
        o.line.rank
        for o in asked.case.with_role(Role.CASCADE)
        if o.line.node and short(o.line.node) == short(node)
    } - {None}
    if len(ranks) != 1 or cried - ranks:
        return None
    rank = ranks.pop()
    if rank is None or _on_another_gpu(asked, rank):
        return None
    return Answer(rank, "the only process of this host that ended by itself", there[0].line)


def _hosts_the_store(asked: Asked) -> Answer[int] | None:
    """The process that could not open the store's port, where it is a worker: the first rank alone hosts it."""
    opens = phrase("hosts-the-store")
    if not has(asked.event.leaf, "of_the_first_rank") or asked.line.rank is not None:
        return None
    leaf = asked.event.leaf
    raised = [c for c in asked.selection.candidates if c.leaf == leaf and c.line.rank is None]
    if not any(opens.search(line.message) for one in raised for line in one.lines):
        return None
    return Answer(0, "the store is hosted by the first rank alone", asked.line)


def _idle_device(asked: Asked) -> Answer[int] | None:
    """What one process raised, where one GPU of the machine is idle and all others still wait in their collective."""
    line = asked.line
    own = gpu_told(asked) if asked.place.gpu is None else asked.place.gpu
    if not asked.event.lines or line.rank is not None or own is not None:
        return None
    idle = [
        o
        for o in asked.case.observations
        if "idle_device" in o.marks and o.line.file == line.file and o.line.number > line.number
    ]
    gpus = {int(o.fields["gpu"]) for o in idle}
    if len(gpus) != 1 or not one_node(asked.identities, gpu := gpus.pop()):
        return None
    return Answer(gpu, "the GPU of this rank alone is idle", idle[0].line)


def _awaited(asked: Asked) -> Answer[int] | None:
    """The one rank that all others wait for is where a fault of one process, or of its GPU or host, was."""
    if len(asked.awaited) != 1:
        return None
    rank = asked.awaited[0]
    node = asked.event.fields.get("node") or asked.line.node
    node = node or witnesses.node_in_words(asked.case, asked.selection, asked.event)
    node = asked.identities.node_of_place.get(node or "", node)
    where = asked.identities.node_of_rank.get(rank)
    there = bool(node) and same_host(node, where)
    traits = ["of_one_process", "of_a_gpu", "at_start"]
    if asked.missed_by is not None and where is None:
        traits.append("of_a_host")  # others name it, and nothing says that it runs elsewhere
    if not there and not any(has(asked.event.leaf, trait) for trait in traits):
        return None
    if node and where and not same_host(node, where):
        return None
    machine = asked.event.tier in (Tier.HARDWARE, Tier.HOST) and bool(node)
    known = asked.identities.ranks_heard | asked.identities.ranks_seen | {rank}
    if machine and not there and asked.missed_by is None and 2 * len(known) <= max(known):
        return None  # most ranks are not heard of: others may be silent as well
    return Answer(rank, "it is the one rank that all others wait for")


SOURCES: tuple[Source[int], ...] = (
    _from_one, _between_two, _slot, _lacked_by_several, _subject, _noticed, _of_the_job, _heading, _process,
    _named_process, _local_rank, _said_on, _label, logged_by, _introduced, _seat, _only_node, _own_words, own_shard,
    raised_from, _told_with_process, _alone_there, device_beside, _others, _only_exit_there, _awaited, named_slow,
    own_exit, raised_exit, first_of_all_hosts, launcher_saw, by_device, raises_behind, of_numbered_output, _hosts_the_store,
    _idle_device,
)  # fmt: skip


def accused_device(asked: Asked) -> None:
    """Name the rank of the peer's device, where all that could not reach it name the same one."""
    found, leaf = asked.place, asked.event.leaf
    named = {c.fields.get("peer_gpu", "") for c in asked.selection.candidates if c.leaf == leaf}
    device = named.pop() if len(named) == 1 else ""
    held = asked.identities.ranks_at.get(found.node or "", ())
    if device.isdigit() and int(device) < len(held):
        found.gpu, found.rank = int(device), held[int(device)]
        found.ranks = [found.rank]
        found.reasons.append(
            Reason(f"rank {found.rank}", f"device {device} of {found.node}", asked.line)
        )


def on_the_node(asked: Asked) -> None:
    """Fill in the ranks of a host that failed as a whole: the one that felt it first, or all of them."""
    found = asked.place
    if found.rank is not None or found.node is None or asked.event.blames is not Blames.HOST:
        return
    known = asked.identities
    ranks = known.ranks_on(found.node) or _of_its_task(known, found.node)
    if not ranks or not (known.per_node or 1) <= len(ranks) <= _MOST_RANKS_OF_A_NODE:
        return  # fewer names than processes: what is known of them may count the nodes
    here = (f.local_rank for f in asked.exits if same_host(f.node, found.node))
    ended = [local for local in here if local is not None]
    if len(ranks) == 1 and ended and not any(may_sit_at(ranks[0], local) for local in ended):
        return  # the launcher tells of another process there
    one_each = (known.per_node or known.tasks_per_node or 1) == 1
    if len(ranks) == 1 and one_each and len(_tasks_on(known, found.node)) <= 1:
        found.rank = ranks[0]
    found.ranks = ranks
    line = asked.identities.told_by.get(("rank", ranks[0]))
    found.reasons.append(Reason(named(ranks), f"what runs on {found.node}", line))


def _of_its_task(known: Identities, node: str) -> list[int]:
    """Return the task of a host, where the scheduler starts one on each and labels of ranks do not contradict."""
    tasks = _tasks_on(known, node)
    counted = known.tasks_per_node == 1 and (known.per_node or 1) == 1
    return tasks if counted and len(tasks) == 1 and not known.rank_of_task else []


def _tasks_on(known: Identities, node: str) -> list[int]:
    return [task for task, where in known.node_of_task.items() if same_host(where, node)]


def _died(exits: list[ExitFact], asked: Asked) -> int | None:
    """The only rank that a signal ended by itself is the one whose crash the log shows."""
    node = short(asked.event.fields.get("node") or asked.line.node or "")
    crashed = {
        f.rank
        for f in exits
        if f.how in _OWN_SIGNALS and (not node or not f.node or short(f.node) == node)
    } - {None}
    return crashed.pop() if len(crashed) == 1 else None


def _silent(asked: Asked) -> int | None:
    """The only rank of the event's host that printed no error, where all others there did."""
    node = asked.event.fields.get("node") or asked.line.node
    there = set(asked.identities.ranks_on(node)) if node else set()
    told = asked.case.with_role(Role.CASCADE, Role.INITIATING)
    # What the node's daemon prints into the file of a rank is no word of the rank.
    left = there - {o.line.rank for o in told if o.line.stream is not Stream.SCHEDULER}
    alone = len(there) > 1 and len(left) == 1 and not asked.case.unread_of(left)
    return left.pop() if alone else None
