"""Which nodes belong to the job: a fault of a node beside it ended nothing here.

A folder of kernel logs often holds more machines than the job had. A node counts as foreign only
where the job's own list of nodes is whole, and where both are named by one scheme: a pod's name
says nothing of the name of its machine.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from rerail.domain.evidence import LogLine, Observation, Role, Stream
from rerail.errors import RerailError
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase, phrase_in_bytes, says
from rerail.knowledge_base.placement.hosts_below import hosts_below
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.names import short
from rerail.knowledge_base.placement.own_words import node_in
from rerail.knowledge_base.statements import Form, all_forms
from rerail.log_parsers.host_names import series_of
from rerail.log_parsers.view import LogView

_HEAD = 400
_LISTS = ("job-nodes", "job-hosts-of-pbs")
_LONG_S = 60.0


def foreign(case: Case, identities: Identities) -> frozenset[int]:
    """Return the identities (`id`) of the observations on nodes, or about pods or jobs, known not to be the job's."""
    about = _about_other_pods(case, identities) | _about_other_jobs(case)
    beside = frozenset(id(o) for o in case.with_role(Role.INITIATING) if _of_a_service(o))
    if len(beside) < len(case.observations) or any(view.survey.steps for view in case.views):
        about |= beside
    about |= _about_other_nodes(case, identities) | _of_other_processes(case, identities)
    own = nodes(case, identities)
    if not own:
        return about
    schemes = schemes_of(own)
    told = case.with_role(Role.INITIATING)
    return about | {id(o) for o in told if _beside(o, identities, own, schemes)}


def without_foreign(case: Case, identities: Identities) -> None:
    """Forget the lost nodes that are known not to be the job's, and who ran on those that it gave back."""
    for name in given_back(case):
        identities.forget(name)
    own = nodes(case, identities)
    schemes = schemes_of(own)
    for lost in (identities.lost_nodes, identities.set_aside):
        for name in [n for n in lost if elsewhere(n, own, schemes)]:
            del lost[name]


def _about_other_pods(case: Case, identities: Identities) -> frozenset[int]:
    """The events of a cluster are about all its pods; where one names a pod of the job, the others can be told apart.

    Pods of one job begin alike; one that has not printed a line yet may be the job's all the same.
    """
    forms = [form for form in all_forms() if "pod_event" in form.tells]
    told = [(o, pod) for o in case.observations if (pod := _pod_of_event(o, forms)) is not None]
    if not told:
        return frozenset()
    system = _pods_of_the_system(case)
    known = {pod for _, pod in told} & identities.nodes_seen
    stems = {pod.split("-")[0] for pod in known}
    # Where no event is about a pod that is known, one that shares no word with those that train is of something else.
    words = set() if known else _words(_pods_of_training(case))
    return frozenset(
        id(o)
        for o, pod in told
        if pod in system
        or (known and pod.split("-")[0] not in stems)
        or (words and not words & _words({pod}))
    )


def _pods_of_training(case: Case) -> set[str]:
    """Return the pods that print in files in which one of them trains."""
    found: set[str] = set()
    for view in case.views:
        last = view.line(view.survey.steps[-1].line) if view.survey.steps else None
        if last is not None and last.place is not None:
            lines = map(view.line, view.numbers[:_HEAD])
            found |= {one.place for one in lines if one is not None and one.place is not None}
    return found


def _words(pods: set[str]) -> set[str]:
    """Return the words in the names of pods, without their numbers."""
    return {word for pod in pods for word in pod.split("-") if word.isalpha()}


def _pods_of_the_system(case: Case) -> set[str]:
    """Return the pods that events put into a namespace of the cluster's own."""
    assigned = phrase_in_bytes("pod-of-the-system")
    return {
        match["pod"].decode()
        for view in case.views
        for raw in view.survey.kept.values()
        if (match := assigned.search(raw))
    }


def _about_other_nodes(case: Case, identities: Identities) -> frozenset[int]:
    """The events of a cluster are about all its nodes; those of the job are where its pods were put."""
    hosts = {short(host) for host in identities.node_of_place.values()}
    if not hosts:
        return frozenset()
    event = phrase("event-of-node")
    told = ((o, event.search(o.line.text)) for o in case.with_role(Role.INITIATING))
    return frozenset(id(o) for o, match in told if match and short(match["node"]) not in hosts)


def _of_other_processes(case: Case, identities: Identities) -> frozenset[int]:
    """Where a kernel names a process of the job, what it says of another process, long before or after, is of another run.

    A child of a rank, whose number nobody told, ends with it.
    """
    named: dict[tuple[str | None, str], list[tuple[Observation, bool]]] = defaultdict(list)
    for one in case.with_role(Role.INITIATING):
        pid, node = one.fields.get("pid", ""), one.fields.get("node") or one.line.node
        if pid.isdigit() and one.line.stream is Stream.KERNEL:
            who = identities.by_pid.get(int(pid), node)
            ours = who is not None and who.rank is not None
            named[one.leaf, short(node or "")].append((one, ours))
    found: set[int] = set()
    for told in named.values():
        own = [one for one, ours in told if ours]
        for other, ours in told:
            apart = [case.seconds_between(one, other) for one in own]
            if not ours and own and all(s is not None and abs(s) > _LONG_S for s in apart):
                found.add(id(other))
    return frozenset(found)


def _about_other_jobs(case: Case) -> frozenset[int]:
    """A controller's log is about all jobs; where the job's own output tells its number, the others are told apart."""
    own = {job for o in case.observations for job in _numbers("own-job", o)}
    if len(own) != 1:
        return frozenset()
    told = [(o, _numbers("job-of-daemon", o)) for o in case.with_role(Role.INITIATING)]
    return frozenset(id(o) for o, jobs in told if jobs and not jobs & own)


def _of_a_service(observation: Observation) -> bool:
    """Tell whether a host on which no rank runs says something of itself, or of a process that no job starts."""
    line = observation.line
    return line.rank is None and (
        says("no-compute-host", line.node or "") or says("process-of-no-job", line.text)
    )


def _numbers(name: str, observation: Observation) -> set[str]:
    match = phrase(name).search(observation.line.text)
    return {number for number in match.groups() if number} if match else set()


def _pod_of_event(observation: Observation, forms: Sequence[Form]) -> str | None:
    text = observation.line.text
    for form in forms:
        if any(word in text for word in form.literals):
            return next((slots["pod"] for slots in form.slots(text)), None)
    return None


def schemes_of(own: frozenset[str]) -> frozenset[str]:
    """Return how the job's nodes are called."""
    return frozenset(map(series_of, own))


def elsewhere(node: str | None, own: frozenset[str], schemes: frozenset[str]) -> bool:
    """Tell whether a node is none of the job's, all of which are known, though it is called as they are."""
    name = short(node or "")
    return bool(name) and name not in own and series_of(name) in schemes


def _beside(
    observation: Observation, known: Identities, own: frozenset[str], schemes: frozenset[str]
) -> bool:
    line = observation.line
    node = observation.fields.get("node") or line.node or node_in(line.message, known.nodes_seen)
    return observation.line.rank is None and elsewhere(node, own, schemes)


def listed(case: Case) -> dict[str, str]:
    """Return the nodes that a list in front of the job's output names, without their domains, and as it names them."""
    return {name: said for view in case.views for name, said in _lists(case, view)[0].items()}


def only_node_of(case: Case, line: LogLine) -> str | None:
    """Return the node of the job that a line of Slurm's controller is of, where it was given one node and no other."""
    told = phrase("job-of-daemon").search(line.text)
    jobs = {number for number in told.groups() if number} if told else set()
    given, view = set(), case.view(line)
    for number in case.lines_with(view, "nodes-given-to-job"):
        match = phrase("nodes-given-to-job").search(view.text(number) or "")
        if match and not jobs.isdisjoint(match.group("job", "task", "job2", "task2")):
            given |= {*_expanded(match["nodes"] or match["nodes2"])}
    return given.pop() if len(given) == 1 else None


def given_back(case: Case) -> set[str]:
    """Return the nodes of an earlier attempt, where a requeued job was given others."""
    told = [_lists(case, view) for view in case.views]
    return set[str]().union(*(before for _, before in told)).difference(*(last for last, _ in told))


def _lists(case: Case, view: LogView) -> tuple[dict[str, str], set[str]]:
    """Return the nodes of the last allocation that a file tells of, and those of the ones before it.

    The list of a step, or of another variable, shares nodes with the job's; that of a new allocation may not.
    """
    last, before = dict[str, str](), set[str]()
    end = view.numbers[_HEAD] if len(view.numbers) > _HEAD else math.inf
    requeued = min(case.lines_with(view, "requeued"), default=end)
    told = [
        (number, _in_line(view, number, name))
        for name in _LISTS
        for number in case.lines_with(view, name)
        if number < end
    ]
    told += [
        (line.number, {short(host): host for host in hosts})
        for line, hosts in hosts_below(case, view)
        if line.number < end
    ]
    for number, found in sorted(told, key=lambda one: one[0]):
        if requeued <= number and last and found and not last.keys() & found.keys():
            before, last = before | last.keys(), {}
        last |= found
    return last, before


def _in_line(view: LogView, number: int, name: str) -> dict[str, str]:
    """Return the nodes that a line lists behind a phrase; none where it is not about this run."""
    match = phrase_in_bytes(name).search(view.survey.kept[number])
    if not match or says("not-of-this-run", view.text(number) or ""):
        return {}
    return _expanded(phrase("between-listed-hosts").sub(",", match["nodes"].decode()).rstrip(","))


def nodes(case: Case, identities: Identities) -> frozenset[str]:
    """Return the job's nodes without their domains; empty where not all of them are known."""
    told = listed(case)
    placed = {short(name) for name in identities.node_of_rank.values()}
    if told:
        # A step's list may be a part of the job's.
        return frozenset(told.keys() | placed)
    machines = {short(host) for host in identities.hosts_of_listed_pods}
    if len(machines) > 1 and all(
        short(identities.host(name)) in machines for name in identities.nodes_at_work
    ):
        return frozenset(machines | placed)
    world = identities.world_size
    if world is not None and set(identities.node_of_rank) == set(range(world)):
        return frozenset(placed)
    return frozenset(placed) if _are_all(identities, world) else frozenset()


def _are_all(identities: Identities, world: int | None) -> bool:
    """Tell whether as many hosts hold ranks as the job has nodes, each a block of its own."""
    held, hosts = identities.per_node, {short(host) for host in identities.node_of_rank.values()}
    if held is None:
        return identities.node_count is not None and len(hosts) == identities.node_count > 1
    blocks: dict[int, set[str]] = {}
    for rank, host in identities.node_of_rank.items():
        blocks.setdefault(rank // held, set()).add(short(host))
    count = identities.node_count or (world // held if world and world % held == 0 else None)
    alone = all(len(there) == 1 for there in blocks.values())
    return count is not None and alone and len(hosts) == len(blocks) == count > 1


def _expanded(text: str) -> dict[str, str]:
    from rerail.tools.clusters.host_list import expand

    try:
        return {short(name): name for name in expand(text)}
    except (RerailError, ValueError):
        return {}
