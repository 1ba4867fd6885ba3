"""Who else tells where a fault was, when its own line has no label.

A traceback without a label is often told again by a line that has one; schedulers and kubelets name
the node in words; a launcher names the one process that ended by itself.
"""

from __future__ import annotations

from rerail.domain.evidence import LogLine, Observation, Role, Stream, Tier
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.exits import ExitFact
from rerail.knowledge_base.causality.select import Selection
from rerail.knowledge_base.phrases import phrase, says
from rerail.knowledge_base.placement.identities import Identities, rivals
from rerail.knowledge_base.placement.names import lid_address, same_host
from rerail.knowledge_base.taxonomy import has
from rerail.log_parsers.host_names import is_address, is_local
from rerail.log_parsers.text import without_digits
from rerail.log_parsers.tracebacks import looks_like_exception

_LEAST_SENTENCE = 24
_RIGHT_ABOVE = 3
_RAISED_NEAR = 12  # lines from the output of a subprocess to the exception that reports it


def rank_told_again(case: Case, winner: Observation) -> int | None:
    """Return the only rank whose own line tells of the same fault, or None.

    On a GPU every line of the same kind counts, for its error sticks to the context; of any other
    fault only the same sentence, or an exception on the same object of a store.
    """
    # A tool of its own process and the exception of the rank that waited for it name one object.
    named = phrase("store-object").search(winner.line.text)
    ranks: set[int] = set()
    for other in case.observations:
        if other is winner:
            continue
        text = other.line.text
        if named and other.lines and other.line.rank is not None and named[0] in text:
            ranks.add(other.line.rank)
        # One host's lines of one kind, a warning and the exception behind it, are of one process there.
        beside = _front(winner) is not None and _front(other) == _front(winner)
        alike = other.leaf == winner.leaf and (beside or told_again(other, winner))
        if not alike and not (
            winner.lines and quotes_raised(other.line.message, winner.line.message)
        ):
            continue
        rank = _who(other.line)
        if rank is not None:
            ranks.add(rank)
    if not ranks:
        raised = _raised_next(case, winner)
        return raised if raised is not None else _rank_of_own_nccl_error(case, winner)
    return ranks.pop() if len(ranks) == 1 else None


def _who(line: LogLine) -> int | None:
    """Return the rank in front of a line, or the one that a watchdog calls its own."""
    if line.rank is not None:
        return line.rank
    match = phrase("watchdog-of-rank").search(line.text)
    return int(match["rank"]) if match else None


def told_again(other: Observation, winner: Observation) -> bool:
    """Tell whether a line tells of the same fault as another one: by the same sentence, or of what sticks to a GPU.

    An exception quotes a library's last warning, and a warning an exception, without what stands in front of it.
    """
    if other.leaf != winner.leaf:
        return False
    if has(winner.leaf, "sticks_to_gpu"):
        return True
    ours, theirs = winner.line.message.strip(), other.line.message.strip()
    return _holds(theirs, ours) or _holds(ours, theirs)


def quotes_raised(message: str, raised: str) -> bool:
    """Tell whether a line is an exception as `repr` prints it, KeyError('id'), that was raised as `KeyError: 'id'`.

    A sentence in front of it, or a number, may speak of another process.
    """
    name, sign, said = raised.strip().partition(": ")
    if not sign or not looks_like_exception(raised):
        return False
    name = name.rpartition(".")[2]
    found = [message.find(f"{name}({one})") for one in (said, repr(said))]
    return any(at >= 0 and not says("may-speak-of-another", message[:at]) for at in found)


def raised_alike(selection: Selection, winner: Observation) -> list[LogLine]:
    """Return the only other exception of the same kind, where neither is signed: a launcher tells a child's again.

    So it does what a child raised behind a warning of the same kind.
    """
    others = [
        c.line
        for c in selection.candidates
        if c is not winner and c.lines and c.leaf == winner.leaf and not c.line.label
    ]
    warned = all(
        _stands_below(winner.line, one) and _may_be_of_one_gpu(winner.line, one) for one in others
    )
    return others if len(others) == 1 and (winner.lines or warned) else []


def _may_be_of_one_gpu(a: LogLine, b: LogLine) -> bool:
    """Tell whether two lines of an allocator do not name two GPUs."""
    told = [phrase("gpu-of-allocator").search(line.text) for line in (a, b)]
    return len({match["gpu"] for match in told if match is not None}) < len(told)


def _stands_below(above: LogLine, line: LogLine) -> bool:
    return above.file == line.file and above.number < line.number


def _holds(whole: str, message: str) -> bool:
    """Tell whether a message stands in another one, or its sentence behind the name of an exception does."""
    said = (message, message.partition(": ")[2].strip())
    return any(len(one) >= _LEAST_SENTENCE and one in whole for one in said)


def _front(observation: Observation) -> str | None:
    """Return the host, or what stands for it, in front of a line."""
    return observation.line.node or observation.line.place


def _raised_next(case: Case, winner: Observation) -> int | None:
    """Return the rank that raises, close below, what a subprocess printed under the label of its host or none, or None."""
    line = winner.line
    if line.rank is not None or line.pid is not None or line.place is not None:
        return None
    below = [
        o.line
        for o in case.observations
        if o.leaf == winner.leaf
        and o.line.rank is not None
        and o.line.file == line.file
        and o.line.node == line.node
        and 0 < o.line.number - line.number <= _RAISED_NEAR
    ]
    return min(below, key=lambda told: told.number).rank if below else None


def _rank_of_own_nccl_error(case: Case, winner: Observation) -> int | None:
    """Return the only rank whose exception is of an NCCL call that failed in itself, or None.

    NCCL's warning names host and process; PyTorch raises what the call returned under the rank's
    label. Who lost a peer, or waited for another's id, tells of that one.
    """
    if winner.leaf != "net_interface_misconfig" or "NCCL WARN" not in winner.line.text:
        return None
    raised = [
        o.line
        for o in case.observations
        if says("nccl-call-raised", o.line.text) and not says("nccl-call-of-others", o.line.text)
    ]
    ranks = {line.rank for line in raised}
    return ranks.pop() if len(ranks) == 1 else None


def rank_that_ended(
    case: Case, selection: Selection, exits: list[ExitFact], winner: Observation
) -> int | None:
    """Return the only rank that ended by itself, for a fault that one process has, or None."""
    same = [c for c in selection.candidates if c.leaf == winner.leaf and c.tier is winner.tier]
    told = [c for c in _of_one_dump(same, winner) if not _quotes(c, winner)]
    cascades = case.with_role(Role.CASCADE)
    # What a program does on every rank alike is raised once on each; a single traceback is of a single one.
    raised = [c for c in (*told, *cascades) if c.lines and c.leaf == winner.leaf]
    if not winner.lines and len(raised) == 1 and _right_above(winner, raised[0]):
        told = raised  # the winner is what its subprocess prints in front of it
    alone = len(raised) == len(told) == 1 and all(
        o.leaf in (winner.leaf, None) or says("waited-in-vain", o.line.text) for o in cascades
    )
    if not has(winner.leaf, "of_one_process") and not alone:
        return None
    if winner.tier not in (Tier.HARDWARE, Tier.HOST) and len(told) > 1:
        return None  # as many processes as lines may have it
    own = [f for f in exits if f.code != 0 and f.how != "ordered"]
    if any(f.how == "aborted" for f in own) and any(o.leaf != winner.leaf for o in cascades):
        # That is how NCCL ends the ranks that waited in vain; each of them has said so before.
        waited = {_who(o.line) for o in cascades if says("waited-in-vain", o.line.text)}
        if (
            not waited
            or None in waited
            or any(not says("waited-in-vain", o.line.text) for o in cascades)
        ):
            return None
        own = [f for f in own if f.rank not in waited]
    # Whose host is known to be another one did not end of what happened here.
    here = winner.fields.get("node") or winner.line.node
    own = [f for f in own if not here or not f.node or not rivals(f.node, here)]
    # A scheduler lists those of a host that end alike together, and adds the last of them by itself.
    lists = [f for f in own if f.several]
    ranks = {f.rank for f in own if not any(_of_the_list(f, one) for one in lists)} - {None}
    return ranks.pop() if len(ranks) == 1 else None


def _of_one_dump(same: list[Observation], winner: Observation) -> list[Observation]:
    """Return the observations without those right below the winner that other threads of the same kernel print."""
    if not says("thread-of-kernel", winner.line.text):
        return same
    file, first, words = winner.line.file, winner.line.number, without_digits(winner.line.text)
    alike = {
        one.line.number
        for one in same
        if one.line.file == file and without_digits(one.line.text) == words
    }
    last = first
    while last + 1 in alike:
        last += 1
    return [o for o in same if o.line.file != file or not first < o.line.number <= last]


def _quotes(other: Observation, winner: Observation) -> bool:
    """Tell whether a line with the same label has all that another one says, and more: others would say just that."""
    own, whole = winner.line.message.strip(), other.line.message.strip()
    return other.line.label == winner.line.label and own != whole and _holds(whole, own)


def _of_the_list(fact: ExitFact, several: ExitFact) -> bool:
    """Tell whether an exit is told behind a list of others of the same host that ended alike."""
    behind = fact.line.file == several.line.file and fact.line.number > several.line.number
    return behind and fact.how == several.how and same_host(fact.node, several.node)


def _right_above(told: Observation, raised: Observation) -> bool:
    """Tell whether a line without a label stands right above a traceback without one."""
    gap = raised.lines[0].number - told.line.number
    return not told.line.label and not raised.line.label and 0 < gap <= _RIGHT_ABOVE


def rank_lost_by_jax(case: Case) -> int | None:
    """Return the only task that JAX's coordination service stopped hearing from, or None."""
    tasks = {
        match["task"] or match["task2"] or match["task3"]
        for o in case.observations
        if "task_lost" in o.marks and (match := phrase("lost-task").search(o.line.text))
    }
    return int(tasks.pop()) if len(tasks) == 1 else None


def left_the_barrier(case: Case, raised: LogLine) -> int | None:
    """Return the rank that the others of a monitored barrier lost, where it does not list whom it missed itself, or None.

    What was raised must stand above all of them.
    """
    told = [
        (o.line, match)
        for o in case.with_role(Role.CASCADE)
        if (match := phrase("left-monitored-barrier").search(o.line.text))
    ]
    ranks = {match["rank"] for _, match in told}
    below = all(one.file == raised.file and one.number > raised.number for one, _ in told)
    return int(ranks.pop()) if below and len(ranks) == 1 and None not in ranks else None


def node_in_words(case: Case, selection: Selection, winner: Observation) -> str | None:
    """Return the only node that lines of the same fault name in words, or None."""
    if not has(winner.leaf, "has_node"):
        return None
    told = [winner, *(c for c in selection.candidates if c.leaf == winner.leaf)]
    nodes = set()
    for observation in told:
        node = observation.fields.get("node")
        match = phrase("failed-on-node").search(observation.line.text) or phrase(
            "node-in-words"
        ).search(observation.line.text)
        if node or match:
            nodes.add(node or (match["node"] if match else ""))
    if not nodes and winner.line.stream is Stream.CONTAINER:
        # The events of one pod say where it was to run.
        nodes = {o.fields["node"] for o in case.observations if "pod_assigned" in o.marks}
    return nodes.pop() if len(nodes) == 1 else None


def tellers(selection: Selection, identities: Identities, winner: Observation) -> set[str]:
    """Return the hosts whose processes tell of the same fault."""
    same = [c.line for c in selection.candidates if c.leaf == winner.leaf]
    return {node for line in same if (node := identities.node_of(line))}


def accused_by_several(
    selection: Selection, identities: Identities, winner: Observation
) -> str | None:
    """Return the one peer that hosts beside it could not reach, when two or more of them say so, or None."""
    edges = _complaints(selection, identities, winner)
    named = {host for edge in edges if edge[1] for host in edge}
    # One that names no peer adds nothing where its host names one elsewhere.
    edges = {(teller, peer) for teller, peer in edges if peer or teller not in named}
    # Whom all complaints are about or come from: the others do not complain of each other.
    common = set.intersection(*({*edge} - {""} for edge in edges)) if edges else set()
    accused = common & {peer for _, peer in edges if peer}
    if len(accused) != 1:
        return None
    peer = accused.pop()
    return (
        peer if len({teller for teller, other in edges if other == peer} - {peer, ""}) > 1 else None
    )


def accuses_several(
    selection: Selection, identities: Identities, winner: Observation
) -> str | None:
    """Return the only host that complains, where it does of several peers: it is what they have in common, or None."""
    edges = {edge for edge in _complaints(selection, identities, winner) if edge[1]}
    tellers = {teller for teller, _ in edges}
    return tellers.pop() or None if len(tellers) == 1 and len(edges) > 1 else None


def accuse_each_other(selection: Selection, identities: Identities, winner: Observation) -> bool:
    """Tell whether two hosts say the same, each of another peer, and nobody else says it."""
    edges = {edge for edge in _complaints(selection, identities, winner) if all(edge)}
    tellers, peers = {teller for teller, _ in edges}, {peer for _, peer in edges}
    return len(tellers) == len(peers) == len(edges) == 2


def two_strangers(selection: Selection, identities: Identities, winner: Observation) -> bool:
    """Tell whether one host alone complains, of one address alone that no line ties to a host of the job."""
    edges = _complaints(selection, identities, winner)
    return len(edges) == 1 and is_address(next(iter(edges))[1])


def _complaints(
    selection: Selection, identities: Identities, winner: Observation
) -> set[tuple[str, str]]:
    """Return who tells of the same fault, and of which peer; either is empty where it is not known."""
    same = [c for c in selection.candidates if c.leaf == winner.leaf]
    return {(_teller(identities, c), _peer(identities, c)) for c in same}


def _teller(identities: Identities, told: Observation) -> str:
    own = told.fields.get("own", "")
    return identities.node_of(told.line) or identities.node_of_place.get(own, own)


def _peer(identities: Identities, told: Observation) -> str:
    peer = (told.fields.get("peer") or "").split("<")[0].strip("[]")
    if not peer and (lid := told.fields.get("lid")):
        peer = lid_address(lid)
    named = identities.node_of_address.get(peer) or identities.node_of_place.get(peer, peer)
    return "" if is_local(named) else named


def ended_for_cause(case: Case, exits: list[ExitFact]) -> list[ExitFact]:
    """Return the exits without those of ranks that had waited in vain: NCCL aborts them for what others did."""
    waited = {
        o.line.rank for o in case.with_role(Role.CASCADE) if says("waited-in-vain", o.line.text)
    }
    return [f for f in exits if f.how != "aborted" or f.rank is None or f.rank not in waited]


def ended_before_order(
    case: Case, exits: list[ExitFact], *, of_one: bool = False
) -> list[ExitFact]:
    """Return the exits without those that the end of the step for all brought about.

    What a task ends with that was told to end is its own choice; where one process had a fault (`of_one`), and a task
    had ended before, the order came of that one.
    """
    orders = [o.line for o in case.observations if "ends_step" in o.marks]
    if not orders:
        return exits
    first = orders[0]

    def before(fact: ExitFact) -> bool:
        return fact.line.file != first.file or fact.line.number < first.number

    earlier = [f for f in exits if before(f)]
    if of_one and any(f.node and f.line.file == first.file and f.how != "ordered" for f in earlier):
        return earlier
    return [f for f in exits if before(f) or f.how not in ("killed", "ordered")]
