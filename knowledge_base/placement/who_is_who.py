"""Who is who, put together from statements, self-descriptions, labels and tables, and what follows from them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.progress import last_command
from rerail.knowledge_base.phrases import phrase, says
from rerail.knowledge_base.placement.allocation import listed, without_foreign
from rerail.knowledge_base.placement.blocks import fill_blocks, free_seats, learn_blocks
from rerail.knowledge_base.placement.column_tables import Row, rows
from rerail.knowledge_base.placement.described_pods import DescribedPods
from rerail.knowledge_base.placement.environments import environments
from rerail.knowledge_base.placement.host_aliases import standing_alone, without_domain
from rerail.knowledge_base.placement.hosts_below import orders_below
from rerail.knowledge_base.placement.identities import Identities, rivals
from rerail.knowledge_base.placement.identity_statements import (
    Reading,
    introduce,
    learn_threads,
    numbers,
    read,
    read_labels,
    read_locals,
    same_process,
)
from rerail.knowledge_base.placement.introductions import Introduced, introductions
from rerail.knowledge_base.placement.names import pci_key, same_host, short
from rerail.knowledge_base.placement.one_name import rename
from rerail.knowledge_base.placement.one_node import GPUS_OF_A_NODE
from rerail.knowledge_base.placement.other_runs import OtherRuns
from rerail.knowledge_base.placement.own_numbers import learn_numbers
from rerail.knowledge_base.placement.parallel_ranks import with_ranks
from rerail.knowledge_base.placement.pod_ranks import (
    node_numbers,
    number_of,
    ranks_by_number,
    ranks_of_counted,
)
from rerail.knowledge_base.placement.processes import Identity
from rerail.knowledge_base.placement.rank_tables import (
    Held,
    aliases,
    held,
    lines_with_tables,
    orders,
    placed,
)
from rerail.knowledge_base.placement.rosters import rosters
from rerail.knowledge_base.placement.self_descriptions import described
from rerail.knowledge_base.placement.whole_groups import without_parts
from rerail.knowledge_base.statements import Statement
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import address_in, is_address, may_be_host

_DIGITS = lazy(r"\d+")


def build(case: Case, statements: list[Statement]) -> Identities:
    """Return everything that ties names together: statements, self-descriptions, and labels."""
    found = Identities()
    reading = Reading()
    described_pods = DescribedPods(case)
    for statement in with_ranks(without_parts(statements)):
        line = statement.line
        if reading.other_runs.told_by(line.text) or _names_no_host(statement):
            continue
        if "began" in statement.slots and described_pods.tells_no_place(statement):
            continue
        if "own_run" not in statement.form.tells or line.number > last_command(
            case, case.view(line)
        ):
            read(statement, found, reading)
    found.onlookers -= reading.looked_at
    given = listed(case)
    if len(given) > 1:
        found.job_nodes = found.job_nodes or len(given)
    if given:
        found.node_count = found.node_count or len(given)
    for view in case.views:
        for line, who in described(case, view):
            introduce(line, who, found)
        read_labels(case, view, found, reading)
    for observation in case.observations:
        same_process(observation.line, found)
    learn_threads(found, reading)
    # Behind the labels, which may call the same host by a longer name.
    if len(given) == 1 and not found.nodes_seen:
        found.nodes_seen.update(given.values())
        found.nodes_at_work.update(given.values())
    read_locals(case, found)
    learn_numbers(case, found)
    found.told_of_several = (
        case.says("several-nodes")
        or any(v.origin.node for v in case.views)
        or _end_in_several(statements)
    )
    _introductions(case, statements, found)
    _aliases(case, found, reading)
    rename(found, reading.hosts)
    _conclude(found, reading)
    _tables(case, found, reading.other_runs)
    _called_by_number(found, reading)
    fill_blocks(found, each=found.per_node)
    learn_blocks(found)
    _in_places(found, reading)
    rename(found, reading.hosts)
    told = found.node_count is not None or len(found.nodes_seen) <= 1
    if found.world_size is None and found.per_node and told:
        found.world_size = found.per_node * (found.node_count or 1)
    case.facts.seat(found.rank_of_seat)
    found.ranks_seen |= case.facts.ranks_heard()
    _labelled(case, found)
    without_foreign(case, found)
    return found


def _called_by_number(found: Identities, reading: Reading) -> None:
    """The number of a node, or a name that only counts it (node3), stands for the host that other lines number so."""
    told = {number: host for host, number in found.node_ranks.items()}
    if len(told) != len(found.node_ranks):
        return
    counted = {
        name: int(match["number"])
        for name in found.nodes_seen | reading.labels
        if name not in found.node_ranks and (match := phrase("counted-node").fullmatch(name))
    }
    found.host_numbered |= {str(number): host for number, host in told.items()}
    if not set(counted.values()) <= told.keys():
        return
    for name, number in counted.items():
        host = told[number]
        found.keep(found.node_of_place, "place", name, host, found.told_by["node rank", host])
        if host in found.ranks_at:
            found.ranks_at.setdefault(name, found.ranks_at[host])


def _names_no_host(statement: Statement) -> bool:
    """Tell whether what stands where a sentence puts a host is a data set, a device or a model."""
    node = statement.slots.get("node")
    return statement.form.host_like and node is not None and not may_be_host(node)


def _labelled(case: Case, found: Identities) -> None:
    """Take the hosts that labels in front of lines give to ranks."""
    seen = case.facts.nodes_of_ranks()
    hosts = {
        rank: {found.other_names.get(name, name) for name in names} for rank, names in seen.items()
    }
    several = set(map(frozenset, hosts.values()))
    more = found.world_size is not None and found.world_size > max(hosts, default=0) + 1
    anew = more or _counted_anew(case, found, hosts)
    alike = len(several) == 1 or (more and bool(hosts) and _mostly_on_the_same(hosts))
    if anew and alike and max(map(len, several), default=0) > 1:
        # Each host has all of these numbers, and the job has higher ones: they count its own processes.
        found.local_labels = True
        for rank in hosts:
            found.node_of_rank.pop(rank, None)
            found.conflicts.pop(rank, None)
        return
    labelled = {rank: next(iter(names)) for rank, names in hosts.items() if len(names) == 1}
    _without_fronts(found, labelled)
    for rank, node in labelled.items():
        if node in found.prints_for_all or says("no-compute-host", node):
            continue
        found.node_of_rank.setdefault(rank, node)
        found.nodes_seen.add(node)
        found.nodes_at_work.add(node)
    # Of the many lines of a large job only those that matter are kept: a silent rank may have none among them.
    for rank, node in free_seats(found.node_of_rank).items():
        if rank not in found.conflicts:
            found.node_of_rank[rank] = node


def _mostly_on_the_same(hosts: Mapping[int, Collection[str]]) -> bool:
    """Tell whether most numbers stand under the same hosts, and the others under some of them: one printed nothing."""
    (most, count), *_ = Counter(map(frozenset, hosts.values())).most_common(1)
    return 2 * count > len(hosts) and all(names <= most for names in map(set, hosts.values()))


def _end_in_several(statements: list[Statement]) -> bool:
    """Tell whether processes of several pods are reported to have ended, each by its own launcher."""
    ended = (one for one in statements if "exit" in one.form.tells and "node" not in one.slots)
    return len({one.line.place for one in ended} - {None}) > 1


def _counted_anew(case: Case, found: Identities, hosts: Mapping[int, Collection[str]]) -> bool:
    """Tell whether all numbers from 0 on stand under each host, in a job that nobody began again."""
    from_none_on = len(hosts) > 1 and set(hosts) == set(range(len(hosts)))
    if not from_none_on or found.world_size is not None or found.moves:
        return False
    return not any("attempt_started" in o.marks for o in case.observations)


def _without_fronts(found: Identities, labelled: dict[int, str]) -> None:
    """Believe no label that puts ranks of several hosts on the only one that labels name."""
    if len(set(labelled.values())) != 1:
        return
    (front,) = set(labelled.values())
    held, count = found.per_node or GPUS_OF_A_NODE, found.node_count or 1
    in_a_block = min(labelled) // held == max(labelled) // held
    dealt_in_turn = len({rank % count for rank in labelled}) == 1
    # All ranks that there are may be on one large machine; of more than it may hold nobody says so.
    told = found.node_count or found.per_node or found.world_size == len(labelled)
    too_many = not told and len(labelled) > held
    apart = not in_a_block and (too_many or (count > 1 and not dealt_in_turn))
    elsewhere = any(_told_elsewhere(found, rank, front) for rank in labelled)
    if not apart and not elsewhere:
        return
    found.prints_for_all.add(front)
    for rank in [rank for rank, node in found.node_of_rank.items() if same_host(node, front)]:
        line = found.told_by.get(("rank", rank))
        if line is None or line.node is not None:
            del found.node_of_rank[rank]


def _told_elsewhere(found: Identities, rank: int, front: str) -> bool:
    """Tell whether a rank runs on a host of the front's series, or on any that a launcher names beside its ranks' lines."""
    node, line = found.node_of_rank.get(rank, front), found.told_by.get(("rank", rank))
    by_launcher = line is not None and line.rank is None and line.node == front
    return rivals(node, front) or (by_launcher and not same_host(found.host(node), front))


def _introductions(case: Case, statements: list[Statement], found: Identities) -> None:
    """Take the ranks by which writers introduce themselves."""
    found.introduced = introductions(case, statements)
    for one in found.introduced.values():
        line = one.line
        introduce(line, Identity(rank=one.rank, node=line.node or line.place, pid=line.pid), found)
        found.ranks_seen.add(one.rank)
    for writer, (who, line) in environments(case).items():
        rank, known = who.rank, found.introduced.get(writer)
        if rank is None or (known is not None and known.rank != rank):
            continue
        found.introduced.setdefault(writer, Introduced(rank, line))
        node = line.node or who.node
        introduce(line, Identity(rank=rank, node=node, pid=line.pid), found)
        found.ranks_seen.add(rank)


def _aliases(case: Case, found: Identities, reading: Reading) -> None:
    """Tie what stands in front of lines to the names of hosts."""
    for view in case.views:
        reading.aliases.listed(view, reading.labels)
    for label, host, line in reading.aliases.agreed():
        if is_address(label):
            found.keep(found.node_of_address, "address", label, host, line)
        else:
            found.keep(found.node_of_place, "place", label, host, line)
        found.other_names[label] = host
    # What a collector may put in front for a container is a host where other lines say so.
    for places in reading.ranks_of_places.values():
        for place in places.keys() & found.nodes_seen:
            found.node_of_place.setdefault(place, place)
    for name, called in without_domain(found.nodes_seen, reading.labels):
        found.other_names.setdefault(name, called)
    on_networks = [name for name in found.nodes_seen if says("name-on-a-network", name)]
    alone = standing_alone(case, set(map(short, on_networks)))
    for name in on_networks:
        if short(name) in alone:
            found.other_names.setdefault(name, short(name))
            found.node_of_place.setdefault(name, short(name))
    for name in sorted(
        found.nodes_seen | set(found.node_of_place.values()), key=lambda one: (len(one), one)
    ):
        if address := address_in(name):
            found.node_of_address.setdefault(address, name)


def _introduced(found: Identities, reading: Reading) -> None:
    """A place whose lines name one host, and no other place's lines name it, runs there."""
    named = Counter(host for hosts in reading.places.values() for host in hosts)
    for place, hosts in reading.places.items():
        host, line = next(iter(hosts.items()))
        if len(hosts) == 1 and named[host] == 1 and len(reading.places) > 1:
            found.keep(found.node_of_place, "place", place, host, line)


def _tables(case: Case, found: Identities, others: OtherRuns) -> None:
    """Place the ranks that tables of the logs place, as far as nothing contradicts a table."""
    lines = [line for line in lines_with_tables(case.views) if not others.told_by(line.text)]
    per_node = found.per_node or (found.tasks_per_node if (found.tasks_per_node or 0) > 1 else None)
    for address, host, line in aliases(lines):
        found.keep(found.node_of_address, "address", address, host, line)
    for view in case.views:
        table_rows = list(rows(view))
        numbered = _numbered(table_rows)
        for row in table_rows:
            _row(row, found, numbered=numbered)
    _rosters(case, found)
    _pods(found, per_node)
    for file, told_there in found.node_ranks_of_log.items():
        if per_node and len(told_there) == 1:
            first = next(iter(told_there)) * per_node
            found.ranks_of_log.setdefault(file, tuple(range(first, first + per_node)))
    known = found.node_of_rank
    if found.tasks_per_node == 1 and (per_node or 1) > 1:
        _tasks_of_nodes(found)
        firsts = {number * (per_node or 1): host for host, number in found.node_ranks.items()}
        known = firsts | known
    else:
        known = found.node_of_task | known
    told = [held(lines)]
    listed_in_order = [*orders(lines, case.says), *orders_below(case)]
    told += [placed(one, per_node, found.world_size, known) for one in listed_in_order]
    told.append(_by_node_rank(per_node, found))
    for blocks in told:
        rivalled = any(
            rank in found.node_of_rank and rivals(found.node_of_rank[rank], block.host)
            for block in blocks
            for rank in range(block.first, block.last + 1)
        )
        for block in blocks if not rivalled else ():
            _hold(found, block.host, range(block.first, block.last + 1), block.line)


def _row(row: Row, found: Identities, *, numbered: bool) -> None:
    """What one row of a table with titles ties together."""
    node, rank, pid = row.cells.get("node"), row.number("rank"), row.number("pid")
    task, line, gpu = row.number("task"), row.line, row.number("gpu")
    if gpu is not None and (pci := row.cells.get("pci")):
        found.gpu_of_pci.setdefault((short(line.node or ""), pci_key(pci)), gpu)
    for kind in ("pod", "address"):
        if name := row.cells.get(kind):
            table = found.node_of_place if kind == "pod" else found.node_of_address
            found.keep(table, "place" if kind == "pod" else kind, name, node, line)
            if kind == "pod" and node:
                found.hosts_of_listed_pods.add(node)
    held = row.cells.get("ranks")
    # A number alone may count the ranks.
    told = numbers(held) if held and "-" in held else []
    if node and len(told) > 1 and found.node_of_rank.keys().isdisjoint(told):
        _hold(found, node, told, line)
    if task is not None and rank is None:
        found.keep(found.node_of_task, "task", task, node, line)
    if rank is not None:
        seat = gpu if numbered else None
        who = Identity(rank=rank, local_rank=row.number("local"), node=node, pid=pid, gpu=seat)
        found.learn(who, line)


def _numbered(told: Iterable[Row]) -> bool:
    """Tell whether tables number the GPUs of a host: where each process sees its own alone, all call it 0."""
    ranks: dict[tuple[str | None, int | None], set[int | None]] = defaultdict(set)
    for row in told:
        ranks[row.cells.get("node"), row.number("gpu")].add(row.number("rank"))
    return len(ranks) > 1 and all(len(each) == 1 for each in ranks.values())


def _rosters(case: Case, found: Identities) -> None:
    """Take the processes of which a job prints a line each, as far as nothing contradicts one of them."""
    known = frozenset(found.nodes_seen | set(found.node_of_rank.values()))
    ranks = frozenset(found.ranks_seen | case.facts.ranks_heard())
    for table in rosters(case.views, known, found.world_size, ranks):
        told = [(rank, one.who.node) for one in table if one.who.node for rank in one.ranks]
        if any(
            rank in found.node_of_rank and rivals(found.node_of_rank[rank], node)
            for rank, node in told
        ):
            continue
        for one in table:
            node = one.who.node
            if one.who.rank is not None:
                found.learn(one.who, one.line)
            elif node and one.node_rank is not None:
                _number(found, node, one.node_rank, one.line)
            elif node:
                _hold(found, node, one.ranks, one.line)


def _hold(found: Identities, host: str, ranks: Sequence[int], line: LogLine) -> None:
    """Take the ranks of a host, in the order of its local ranks."""
    found.ranks_at.setdefault(host, tuple(ranks))
    found.nodes_seen.add(host)
    found.nodes_at_work.add(host)
    for rank in ranks:
        found.keep(found.node_of_rank, "rank", rank, host, line)


def _number(found: Identities, host: str, number: int, line: LogLine) -> None:
    """Take the number of a host's node, unless one is known."""
    if host not in found.node_ranks:
        found.node_ranks[host] = number
        found.told_by["node rank", host] = line


def _pods(found: Identities, per_node: int | None) -> None:
    """The ranks of pods that an operator numbers, where each holds as many as the others."""
    numbered = node_numbers(found.node_of_place)
    world, count = found.world_size, len(numbered)
    each = world // count if world and count and world % count == 0 else per_node
    if count < 2 or not each or (per_node is not None and each != per_node):
        return
    hosts = Counter(found.node_of_place[pod] for pod in numbered)
    for pod, number in numbered.items():
        ranks = tuple(range(number * each, (number + 1) * each))
        found.ranks_at.setdefault(pod, ranks)
        if hosts[host := found.node_of_place[pod]] == 1:
            found.ranks_at.setdefault(host, ranks)
        for rank in ranks:
            line = found.told_by["place", pod]
            found.keep(found.node_of_rank, "rank", rank, found.node_of_place[pod], line)


def _in_places(found: Identities, reading: Reading) -> None:
    """A rank that calls itself so in one place alone runs where that place does."""
    for rank, places in reading.ranks_of_places.items():
        place, line = next(iter(places.items()))
        if len(places) == 1 and (node := found.node_of_place.get(place)) is not None:
            found.keep(found.node_of_rank, "rank", rank, node, line)
    told: dict[str, set[int]] = defaultdict(set)
    for rank, names in [
        *((rank, set(places)) for rank, places in reading.ranks_of_places.items()),
        *((rank, {name}) for rank, name in found.node_of_rank.items()),
    ]:
        for name in names:
            told[name].add(rank)
    for pod, rank in ranks_by_number(told, found.node_of_place).items():
        line = found.told_by["place", pod]
        found.keep(found.node_of_rank, "rank", rank, found.node_of_place[pod], line)
    _one_rank_each(found, reading)
    alone = _alone_in_pods(found, reading)
    # Of pods with several ranks each only the first one has the rank of its number.
    several = len(alone.keys() - {0}) > 1
    counted = reading.of_pods | (alone if found.per_node == 1 or several else {})
    for pod, rank in ranks_of_counted(
        counted, {*found.node_of_place, *reading.labels}, found.world_size
    ):
        found.rank_of_pod[pod] = rank
        if rank in counted:  # of the others only the pod tells that they are ranks
            line = found.told_by.get(("place", pod), counted[rank])
            found.keep(found.node_of_rank, "rank", rank, found.host(pod), line)


def _one_rank_each(found: Identities, reading: Reading) -> None:
    """Where all ranks of the job call themselves so, each in a place of its own, what is printed there is that rank's."""
    told = reading.ranks_of_places
    places = {next(iter(names)): rank for rank, names in told.items() if len(names) == 1}
    if 1 < len(places) == len(told) == found.world_size:
        for place, rank in places.items():
            found.rank_of_pod.setdefault(place, rank)


def _alone_in_pods(found: Identities, reading: Reading) -> dict[int, LogLine]:
    """The ranks that speak in the pods of their numbers, where each pod has one process."""
    pods = {rank: dict(places) for rank, places in reading.ranks_of_places.items()}
    for rank, names in reading.hosts.items():  # stern puts the pod where others put a host
        told = found.told_by.get(("label", rank))
        pods.setdefault(rank, {}).update({name: told for name in names} if told else {})
    numbered = [
        (rank, number, line)
        for rank, places in pods.items()
        for place, line in places.items()
        if (number := number_of(place)) is not None
    ]
    if any(rank != number for rank, number, _ in numbered):
        return {}
    return {rank: line for rank, _, line in numbered}


def _tasks(found: Identities, reading: Reading) -> None:
    """Tasks of several ranks each, one on a node: ranks are counted through them where two tasks show it."""
    each = {
        (rank - local) // task if (rank - local) % task == 0 else 0
        for task, seats in reading.of_tasks.items()
        for local, rank in seats
        if task
    }
    if len(each) != 1 or 0 in each or len(reading.of_tasks) < 2:
        return
    found.per_node = found.per_node or each.pop()
    for task, hosts in reading.on_tasks.items():
        if len(hosts) == 1:
            host, line = next(iter(hosts.items()))
            found.node_ranks.setdefault(host, task)
            found.told_by.setdefault(("node rank", host), line)


def _tasks_of_nodes(found: Identities) -> None:
    """The scheduler starts one task on each node, in the order of the nodes, and the task several ranks."""
    for task, host in found.node_of_task.items():
        _number(found, host, task, found.told_by["task", task])


def _by_node_rank(per_node: int | None, found: Identities) -> list[Held]:
    """The blocks of nodes that know their own number; of two with one number none."""
    counted = Counter(found.node_ranks.values())
    return [
        Held(node, number * per_node, (number + 1) * per_node - 1, found.told_by["node rank", node])
        for node, number in sorted(found.node_ranks.items())
        if per_node and counted[number] == 1
    ]


def _all_print_names(printed: dict[int, LogLine]) -> Iterable[tuple[int, LogLine]]:
    """Return lines that are nothing but a name where several print one, all of one series."""
    series = {_DIGITS.sub("0", line.message) for line in printed.values()}
    return printed.items() if len(printed) > 1 and len(series) == 1 else ()


def _under_tasks(found: Identities, reading: Reading) -> None:
    """Give a rank that stands behind the number of one task the host on which that task ended."""
    for rank, tasks in reading.tasks_of_ranks.items():
        task = next(iter(tasks))
        if len(tasks) == 1 and task in found.node_of_task and rank not in found.node_of_rank:
            host = found.node_of_task[task]
            found.keep(found.node_of_rank, "rank", rank, host, found.told_by["task", task])


def _conclude(found: Identities, reading: Reading) -> None:
    for rank, seen in reading.hosts.items():
        # A collector's host and a pod's name are two names of one place; two counted hosts are not.
        first = max(sorted(seen), key=lambda name: seen[name])
        others = {name for name in seen if rivals(name, found.node_of_rank.get(rank, first))}
        if others:
            found.conflicts[rank] = tuple(sorted({*found.conflicts.get(rank, ()), first, *others}))
        if rank not in found.node_of_rank:
            found.node_of_rank[rank] = first
            found.told_by.setdefault(("rank", rank), found.told_by["label", rank])
    _introduced(found, reading)
    _tasks(found, reading)
    for rank, line in _all_print_names(reading.printed):
        found.keep(found.node_of_rank, "rank", rank, line.message, line)
    names = {line.message for line in reading.printed_by_tasks.values()}
    # Of tasks that hold several ranks each is alone on its host.
    alone = reading.printed_by_tasks if len(names) == len(reading.printed_by_tasks) else {}
    for task, line in _all_print_names(alone):
        found.keep(found.node_of_task, "task", task, line.message, line)
    if found.tasks_are_ranks and not found.rank_of_task:
        for task, where in found.node_of_task.items():
            if task in found.ranks_seen:
                found.keep(found.node_of_rank, "rank", task, where, found.told_by["task", task])
    _under_tasks(found, reading)
    fill_blocks(found)
    for node, pci, pid in reading.on_gpu:
        identity = found.by_pid.learn(pid, node=node)
        found.by_pci.setdefault(f"{node or ''}|{pci_key(pci)}", identity)
    for identity in found.by_pid:
        if identity.rank is not None and identity.node:
            found.node_of_rank.setdefault(identity.rank, identity.node)
