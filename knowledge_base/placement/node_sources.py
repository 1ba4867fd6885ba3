"""Which node an event was on: the sources, the surest first."""

from __future__ import annotations

from rerail.domain.evidence import Blames, Role, Stream, Tier
from rerail.knowledge_base.causality.exits import ExitFact
from rerail.knowledge_base.phrases import phrase, says
from rerail.knowledge_base.placement import witnesses
from rerail.knowledge_base.placement.everywhere import EVERYWHERE, ranks_alike
from rerail.knowledge_base.placement.headings import named_above
from rerail.knowledge_base.placement.launch_checks import (
    node_found_faulty,
    node_not_joined,
    waits_for_others,
)
from rerail.knowledge_base.placement.logged_tracebacks import logged_on
from rerail.knowledge_base.placement.names import is_lid, same_host, short
from rerail.knowledge_base.placement.odd_version import host_of_odd_version
from rerail.knowledge_base.placement.one_node import GPUS_OF_A_NODE, one_node
from rerail.knowledge_base.placement.own_words import node_in, number_in, own_pod, words_of_pods
from rerail.knowledge_base.placement.place import Answer, Asked, Source
from rerail.knowledge_base.placement.rank_sources import called_otherwise, carries_the_jobs_loss
from rerail.knowledge_base.taxonomy import has
from rerail.lazy_patterns import lazy
from rerail.log_parsers.prefixes import TASK

_LOST_ALONE = "the scheduler or the launcher lost this node, and no other"
_CONTAINER_ID = lazy(r"[0-9a-f]{8,64}")


def _accused(asked: Asked) -> Answer[str] | None:
    """Several hosts could not reach one peer, or one host was lost: it is at fault, and not who tells."""
    if asked.event.blames is not Blames.PEER:
        return None
    lost = {
        node: line for node, line in asked.identities.lost_nodes.items() if node != asked.line.node
    }
    if len(lost) == 1:
        other, line = next(iter(lost.items()))
        return Answer(other, _LOST_ALONE, line)
    if has(asked.event.leaf, "of_a_host") and not asked.event.fields.get("peer"):
        return Answer(None, "who tells it lost another host, and nothing says which")
    node = witnesses.accused_by_several(asked.selection, asked.identities, asked.event)
    told_by = witnesses.tellers(asked.selection, asked.identities, asked.event)
    if asked.event.fields.get("node") and (
        own := witnesses.accuses_several(asked.selection, asked.identities, asked.event)
    ):
        return Answer(own, "it alone complains, and of several peers", asked.line)
    if node is None and _waited_alike(asked):
        return Answer(None, "several hosts waited, and of them none is the one that did not come")
    if node is None and len(told_by) > 2:
        return Answer(None, "several hosts tell of it, and of no common peer")
    if node is None and witnesses.accuse_each_other(asked.selection, asked.identities, asked.event):
        return Answer(None, "two hosts tell it, each of another peer")
    if (
        node is None
        and "unreached" in asked.event.marks
        and witnesses.two_strangers(asked.selection, asked.identities, asked.event)
    ):
        return Answer(
            None, "it could not reach another host, and nothing says which of the two is at fault"
        )
    if node is not None and is_lid(node):
        return Answer(None, f"several hosts could not reach {node}, and nothing says whose that is")
    return Answer(node, "several hosts could not reach it", asked.line) if node else None


def _waited_alike(asked: Asked) -> bool:
    """Tell whether several hosts say the same of having waited for others, and of no peer."""
    event = asked.event
    if not has(event.leaf, "waits_for_others") or event.fields.get("peer"):
        return False
    same = [c.line for c in asked.selection.candidates if c.rule_id == event.rule_id]
    return len({asked.identities.node_of(line) for line in same} - {None}) > 1


def _not_joined(asked: Asked) -> Answer[str] | None:
    node = node_not_joined(asked.case, asked.identities, asked.event)
    because = f"one node is missing in the store, and of the allocation only {node} wrote nothing"
    if node:
        return Answer(node, because)
    victim = asked.event.blames is Blames.NOBODY and has(asked.event.leaf, "waits_for_others")
    if waits_for_others(asked.event) is None and not victim:
        return None
    return Answer(
        None, "who tells it waited for others, and nothing says which of them are missing"
    )


ACCUSED: tuple[Source[str], ...] = (_not_joined, _accused)


def _checked_elsewhere(asked: Asked) -> Answer[str] | None:
    """A rank's work was done again on another host, which prints it: the host that it had before is meant."""
    if "checked_elsewhere" not in asked.event.marks:
        return None
    known, rank = asked.identities, asked.place.rank
    checked_on = asked.event.fields.get("checked_on") or asked.line.node
    had = (
        {known.node_of_rank.get(rank), *known.conflicts.get(rank, ())}
        if rank is not None
        else {None}
    )
    before = {host for host in had if host and not same_host(host, checked_on)}
    if checked_on is None or len(before) != 1:
        return Answer(None, "the work was checked on another host than the one at fault")
    line = known.told_by.get(("rank", rank))
    return Answer(before.pop(), f"rank {rank} ran there before it was checked elsewhere", line)


def _of_the_job(asked: Asked) -> Answer[str] | None:
    """The loss of the whole job is of no host, where the job has several."""
    if not carries_the_jobs_loss(asked) or len(asked.identities.nodes_at_work) < 2:
        return None
    return Answer(None, "a step line carries the loss of the whole job")


def _slot(asked: Asked) -> Answer[str] | None:
    node = asked.event.fields.get("node")
    return Answer(node, "the line names it", asked.line) if node else None


def _label(asked: Asked) -> Answer[str] | None:
    node = asked.identities.node_in_front(asked.line)
    rank, who = asked.place.rank, asked.process
    if who is not None and who.node and asked.line.pid is not None and who.pid != asked.line.pid:
        return None  # who prints the line relays what another process raised
    if asked.event.blames is Blames.SUBJECT and (rank is None or rank != asked.line.rank):
        return None  # who prints it only noticed
    own = called_otherwise(asked) if rank is not None and asked.line.rank != rank else None
    if rank is not None and rank not in (asked.line.rank, own and own.value):
        said = number_in(asked.line.message, "rank", telling="on_rank") == rank
        if asked.line.rank is not None or (said and rank in asked.identities.node_of_rank):
            return None  # who prints the line speaks of another rank
    if node is None:
        return None
    if asked.case.view(asked.line).section(asked.line.number):
        headed = named_above(asked.case, asked.line, "node")
        if headed is not None and headed.slots["node"] == node:
            return _heading(asked)
    return Answer(node, "the label in front of the line", asked.line)


def _own_words(asked: Asked) -> Answer[str] | None:
    if asked.event.blames is Blames.PEER:
        return None  # the sentence may be about the other end
    seen = asked.identities.nodes_seen
    node = node_in(asked.line.message, seen)
    if asked.event.lines and node not in seen and not has(asked.event.leaf, "machine"):
        return None  # what an exception speaks of need not be where it was raised
    return Answer(node, "the line speaks of this host alone", asked.line) if node else None


def _odd_version(asked: Asked) -> Answer[str] | None:
    """Of hosts that load different versions, the one that differs from all others."""
    if asked.event.blames is not Blames.SUBJECT or asked.place.rank is not None:
        return None
    line = host_of_odd_version(asked.case, asked.identities)
    node = asked.identities.node_of(line) if line is not None else None
    return Answer(node, "it alone loads another version", line) if node else None


def _process(asked: Asked) -> Answer[str] | None:
    who = asked.process
    if asked.event.blames is Blames.SUBJECT and asked.place.rank is None:
        return None  # who prints it only noticed
    if who is None or not who.node:
        return None
    if who.rank is not None and asked.place.rank not in (None, who.rank):
        return None  # who prints the line speaks of another rank
    by = f"process {who.pid}" if who.pid is not None else "this GPU"
    return Answer(who.node, f"{by} runs there", asked.identities.told_by.get(("pid", who.pid)))


def _others_words(asked: Asked) -> Answer[str] | None:
    node = witnesses.node_in_words(asked.case, asked.selection, asked.event)
    return Answer(node, "another line of the same fault names it") if node else None


def _heading(asked: Asked) -> Answer[str] | None:
    found = named_above(asked.case, asked.line, "node")
    if found is None or "pid" in found.slots:
        return None  # a remote process has answered before
    return Answer(_whole_name(asked, found.slots["node"]), "the heading names it", found.line)


def _whole_name(asked: Asked, name: str) -> str:
    """Return the name with its domain, where a heading has it without, and one host alone calls itself so."""
    known = asked.identities
    told = {*known.nodes_seen, *known.node_of_rank.values(), *(f.node for f in asked.exits)}
    whole = {host for host in told if host and host != name and short(host) == name}
    return whole.pop() if len(whole) == 1 else name


def _found_faulty(asked: Asked) -> Answer[str] | None:
    node = node_found_faulty(asked.case, asked.event)
    return Answer(node, "the check before training found it faulty") if node else None


def _tells_of_another(asked: Asked) -> bool:
    """Tell whether the fault is another rank's than that of the process that prints it."""
    own = asked.place.rank is not None and asked.place.rank == asked.line.rank
    return asked.event.blames is Blames.SUBJECT and not own


def _place(asked: Asked) -> Answer[str] | None:
    if _tells_of_another(asked):
        return None
    place = asked.line.place
    known = asked.identities
    node = (
        known.node_of_place.get(place or "")
        or known.host_numbered.get(place or "")
        or _of_replica(asked)
    )
    line = known.told_by.get(("place", place)) or known.told_by.get(("node rank", node))
    if not node and place in asked.identities.nodes_seen:
        at = asked.identities.node_of_rank.get(-1 if asked.place.rank is None else asked.place.rank)
        told_of_here = at is None or same_host(at, place)
        return Answer(place, "its processes call their host so") if told_of_here else None
    return Answer(node, f"{place} runs there", line) if node else None


def _of_replica(asked: Asked) -> str | None:
    """Slurm starts the replicas of a role as the tasks of their numbers, one on each node."""
    _, slash, number = (asked.line.place or "").rpartition("/")
    tasks = asked.identities.node_of_task
    if not slash or not number.isdigit() or len(set(tasks.values())) < len(tasks):
        return None
    return tasks.get(int(number))


def _pod_in_words(asked: Asked) -> Answer[str] | None:
    """The line speaks of one pod, and another line says on which host that runs."""
    if _tells_of_another(asked):
        return None
    known = asked.identities
    pods = {word for word in words_of_pods(asked.line.text) if word in known.node_of_place}
    if len(pods) != 1:
        return None
    pod = pods.pop()
    line = known.told_by.get(("place", pod))
    return Answer(known.node_of_place[pod], f"{pod} runs there", line)


def _own_pod(asked: Asked) -> Answer[str] | None:
    """The pod whose event or state the line tells, where no line tells of its host."""
    pod = own_pod(asked.line.text)
    return Answer(pod, "the line tells of this pod", asked.line) if pod else None


def _own_place(asked: Asked) -> Answer[str] | None:
    """The pod, container or replica that printed the line, where no line names any host of the job."""
    place, known = asked.line.place, asked.identities
    if not place or "/" in place or known.nodes_seen or known.node_of_place or known.lost_nodes:
        return None
    if _tells_of_another(asked) or asked.event.blames is Blames.PEER:
        return None
    if phrase("only-launches").search(place) or _CONTAINER_ID.fullmatch(place):
        return None
    return Answer(place, "the front of its line, and no host is named anywhere", asked.line)


def of_rank(asked: Asked) -> Answer[str] | None:
    """The host of the rank that was found, unless the logs put it on several."""
    rank = asked.place.rank
    if rank is None:
        return None
    if moved := asked.identities.moved_to(rank, asked.line):
        return Answer(moved[0], f"rank {rank} was moved there", moved[1])
    if conflict := asked.identities.conflicts.get(rank):
        return Answer(None, f"the logs put rank {rank} on several hosts: {', '.join(conflict)}")
    node = asked.identities.node_of_rank.get(rank)
    line = asked.identities.told_by.get(("rank", rank))
    return Answer(node, f"rank {rank} runs there", line) if node else None


def _of_task(asked: Asked) -> Answer[str] | None:
    """Srun says of its tasks, when they end, on which node they were."""
    known = asked.identities
    front = phrase("task-in-front").match(asked.line.text)
    number = int(front[1]) if front else None
    labelled = {f"r{number}", f"{TASK}{number}"} & set(asked.line.label.split("/"))
    of_another = asked.line.rank is not None and asked.place.rank not in (None, asked.line.rank)
    task = number if labelled and not of_another else None
    if task is None and known.tasks_are_ranks:
        task = asked.place.rank
    node = known.node_of_task.get(task) if task is not None else None
    line = known.told_by.get(("task", task))
    return Answer(node, f"task {task} ran there", line) if node else None


def _lost(asked: Asked) -> Answer[str] | None:
    """A fault of a machine that names none, where the scheduler lost exactly one."""
    lost = asked.identities.lost_nodes
    checked = asked.event.tier is Tier.HARDWARE or has(asked.event.leaf, "found_by_node_check")
    if checked and asked.line.rank is None and len(asked.identities.set_aside) == 1:
        node, line = next(iter(asked.identities.set_aside.items()))
        return Answer(
            node, "the platform's own check took this node, and no other, out of service", line
        )
    if not has(asked.event.leaf, "of_a_host") or len(lost) != 1:
        return None
    node, line = next(iter(lost.items()))
    return Answer(node, _LOST_ALONE, line)


def _at_the_other_end(asked: Asked) -> Answer[str] | None:
    """Who prints a line only noticed what is wrong at an address that nothing ties to a host."""
    peer = asked.event.fields.get("peer")
    if asked.event.blames is not Blames.SUBJECT or asked.place.rank is not None or not peer:
        return None
    uses = phrase("uses-address")
    own = {
        host: line
        for view in asked.case.views
        for number in asked.case.lines_with(view, "uses-address")
        if (told := uses.search(view.text(number) or "")) and told["address"] == peer
        and (line := view.line(number)) is not None and (host := asked.identities.node_of(line)) is not None
    }  # fmt: skip
    if len(own) == 1:
        ((host, line),) = own.items()
        return Answer(host, f"{peer} is its own address", line)
    return Answer(None, f"it is of the other end, {peer}")


def _of_exits(asked: Asked) -> Answer[str] | None:
    alike = ranks_alike(asked)
    held = asked.identities.per_node or GPUS_OF_A_NODE
    if len(alike) >= EVERYWHERE and len({rank // held for rank in alike}) > 1:
        return None  # who of them ended first tells where that one was
    told = [o for o in asked.case.observations if o.rule_id == asked.event.rule_id]
    exits = witnesses.ended_before_order(
        asked.case, witnesses.ended_for_cause(asked.case, asked.exits), of_one=len(told) == 1
    )
    if has(asked.event.leaf, "whole_host") and not asked.event.lines:
        # Ranks of other hosts end with plain codes when a host is lost, unless one of its processes raised it.
        exits = [f for f in exits if f.how != "plain" or f.rank in {asked.place.rank} - {None}]
    node = _node_from_exits(
        _before_the_loss(asked, exits), asked.place.rank, labelled=asked.line.rank is not None
    )
    return Answer(node, "the process that ended first and by itself was there") if node else None


def _collected_from(asked: Asked) -> Answer[str] | None:
    """The host or pod that a collector names in front of every line of the file, where nothing else tells."""
    view = asked.case.view(asked.line)
    host = view.origin.collected_from
    if host is None or _tells_of_another(asked) or asked.event.blames is Blames.PEER:
        return None
    if phrase("only-launches").search(host):
        return None
    if not one_node(asked.identities, asked.place.rank or 0):
        return None  # a launcher prints there for all nodes
    node = asked.identities.host(host)
    return Answer(node, "the front of every line of its file", asked.line)


def _only_one(asked: Asked) -> Answer[str] | None:
    """The only node that the logs know, where nothing speaks for a job on several."""
    known = asked.identities
    elsewhere = {f.node for f in asked.exits} | set(known.node_of_task.values()) - {None}
    if len(known.nodes_seen | known.lost_nodes.keys()) != 1 or known.onlookers & known.nodes_seen:
        return None
    if any(says("no-compute-host", node) for node in known.nodes_seen):
        return None
    if any(node and not same_host(node, only) for only in known.nodes_seen for node in elsewhere):
        return None
    # A node that only its kernel speaks of need not be where a program failed; nor need a kernel's
    # line without a host be of the only node that the job's labels name, where the job has several.
    kernel = asked.line.stream is Stream.KERNEL
    deep = asked.event.tier in (Tier.HARDWARE, Tier.HOST) or kernel
    if not kernel and ((known.job_nodes or 1) > 1 or _started_elsewhere(asked)):
        return None  # what all nodes of the job print stands in one output
    if not deep and (known.node_count or 1) > 1 and _nobodys_file(asked):
        return None  # the launcher tells of several nodes
    highest = max(known.ranks_seen, default=0) if kernel else asked.place.rank
    if highest is not None and not kernel:
        highest = max([highest, *(f.rank for f in asked.exits if f.rank is not None)])
    of_one_agent = asked.place.rank in known.ranks_of_log.get(asked.line.file, ())
    several = highest is not None and not one_node(known, highest) and not of_one_agent
    if several and (not kernel or known.ranks_seen):
        return None
    node = next(iter(known.nodes_seen if deep else known.nodes_at_work), None)
    return Answer(node, "no other node appears in the logs") if node else None


def _started_elsewhere(asked: Asked) -> bool:
    """Tell whether the command above a line starts programs on other hosts than the one of its prompt."""
    view, line = asked.case.view(asked.line), asked.line
    here = view.section(line.number)
    return any(
        number < line.number and view.section(number) == here
        for number in asked.case.lines_with(view, "started-elsewhere")
    )


def _nobodys_file(asked: Asked) -> bool:
    """Tell whether nothing that is known of ranks and hosts stands in the file of a line without a rank."""
    told = {line.file for line in asked.identities.told_by.values()}
    alone = len(asked.case.views) == 1 or asked.place.rank is not None
    return not alone and asked.line.file not in told


SOURCES: tuple[Source[str], ...] = (
    _checked_elsewhere, _of_the_job, _slot, _label, logged_on, _odd_version, _own_words, _process, _others_words, _heading,
    _found_faulty, _place, _pod_in_words, of_rank, _of_task, _lost, _at_the_other_end, _own_pod, _of_exits, _collected_from,
    _only_one, _own_place,
)  # fmt: skip


def _before_the_loss(asked: Asked, exits: list[ExitFact]) -> list[ExitFact]:
    """The exits in front of the first line that tells of a lost process: nobody was torn down before it."""
    lost = [o.line for o in asked.case.with_role(Role.CASCADE)]
    first = [
        f
        for f in exits
        if lost and all(f.line.file == line.file and f.line.number < line.number for line in lost)
    ]
    return first or exits


def _of_another_rank(ended: ExitFact, rank: int, *, labelled: bool) -> bool:
    """Tell whether torchrun's table names another rank, or a launcher does for a rank that labels its own lines."""
    told = ended.rank is not None and ended.local_rank is not None
    return told and (labelled or (ended.ended is not None and ended.rank != rank))


def _node_from_exits(exits: list[ExitFact], rank: int | None, *, labelled: bool) -> str | None:
    """The node whose task ended first and alone; later tasks were torn down."""
    named = [f for f in exits if f.node and f.how != "ordered"]
    if rank is not None:
        # A launcher's own ranks are the job's; a scheduler's tasks may hold several of them, each at least one.
        tasks = [
            f
            for f in named
            if not _of_another_rank(f, rank, labelled=labelled) and (f.rank or 0) <= rank
        ]
        named = [f for f in named if f.rank == rank] or tasks
    (node, *others) = {f.node for f in named} or {None}
    return node if not others and "[" not in (node or "") else None  # a list of hosts is none
