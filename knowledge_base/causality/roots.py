"""Which of several possible first faults nothing else explains, and which of those is the first.

An edge leads from a cause to what it explains: the deeper fault to the shallower one, the link of a
chain of exceptions that a rule knows to the one that none knows, the heavier Xid to the lighter one
of the same GPU. The roots are what no edge leads to; faults that explain each other in a circle stand
or fall together. Of the roots the one that is known to come first is taken. Where no clock and no
file says which came first, the text decides, so that the order of files never does, and `contested`
says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from rerail.domain.evidence import Blames, Observation, Stream, Tier
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.own_failures import is_own
from rerail.knowledge_base.rules import Rule
from rerail.knowledge_base.taxonomy import Kind, has, leaves
from rerail.late_dataclass import dataclass
from rerail.log_parsers.tracebacks import is_frame, looks_like_exception

_LEVEL = {
    Tier.HARDWARE: 0.0,
    Tier.HOST: 1.0,
    Tier.SCHEDULER: 2.0,
    Tier.LIBRARY: 2.0,
    Tier.APPLICATION: 2.3,
    Tier.GENERIC: 4.0,
    Tier.EXIT: 5.0,
}
_DEEPER_PENALTY = {Kind.ROOT: 0.0, Kind.LOOK_DEEPER: 1.5, Kind.SYMPTOM: 3.0}
SLACK_S = 120.0
"""A deeper fault this much later than a shallower one did not cause it."""
DECLARED_S = 600.0
"""A lost host is declared so long after others felt it (SlurmdTimeout is 300 s, a pod's toleration as well), and a
service says so long after it ended a job why it did, once the job's outputs are put away."""
_CLOCKS_APART_S = 5.0
"""Clocks of two hosts differ by less: a fault this much later did not raise what no machine raises."""
_ONE_EVENT_S = 30.0
"""Xids of one GPU within this time are one event."""
_SAYS_MORE = 10
_CHAIN_LINES = 120
_LEAST_SENTENCE = 16


@dataclass(frozen=True, slots=True)
class Edge:
    """`cause` explains `effect`, and why."""

    cause: Observation
    effect: Observation
    because: str


@dataclass(slots=True)
class Roots:
    """The first fault, the faults that nothing explains, and the edges to those that something does."""

    first: Observation | None = None
    roots: list[Observation] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    contested: bool = False
    """Another root may have come before the first one, or the first one was told after what it explains."""


def level(observation: Observation) -> float:
    """Return how shallow an observation is: 0 is hardware, larger explains less."""
    kind = leaves()[observation.leaf].kind if observation.leaf else Kind.ROOT
    return _LEVEL[observation.tier] + _DEEPER_PENALTY[kind]


def slow(observation: Observation) -> bool:
    """Tell whether an observation only makes a run slow."""
    return has(observation.leaf, "slow")


def find(case: Case, rules: dict[str, Rule], candidates: Sequence[Observation]) -> Roots:
    """Return the roots of the candidates and the first of them; independent of the candidates' order."""
    result = Roots()
    own = _without_copies(candidates, result.edges)
    own = _without_other_kills(case, own, result.edges)
    heads = _heads(case, _without_unknown_links(own, result.edges))
    for position, a in enumerate(heads):
        for b in heads[position + 1 :]:
            edge = _edge(case, rules, a, b)
            if edge is not None:
                result.edges.append(edge)
    result.roots = _sources(heads, [(e.cause, e.effect) for e in result.edges])
    if not result.roots:
        return result
    order = [
        (a, b) for a in result.roots for b in result.roots if a is not b and case.known_before(a, b)
    ]
    earliest = _sources(result.roots, order)

    def last_resort(observation: Observation) -> tuple[object, ...]:
        rule = rules.get(observation.rule_id)
        line = observation.line
        priority = rule.priority if rule is not None else 0
        return level(observation), -priority, line.text, line.number, line.file

    result.first = min(earliest, key=last_resort)
    first = result.first
    result.contested = any(
        o.leaf != first.leaf and not _together(case, o, first) for o in earliest if o is not first
    ) or any(_told_late(case, edge) for edge in result.edges if edge.cause is first)
    return result


def _told_late(case: Case, edge: Edge) -> bool:
    """Tell whether a cause was told only after its effect: then the clocks do not prove the edge."""
    gap = case.seconds_between(edge.effect, edge.cause)
    return gap is not None and gap > _CLOCKS_APART_S


def _together(case: Case, a: Observation, b: Observation) -> bool:
    return a.line.file == b.line.file and a.line.label == b.line.label


def _without_copies(candidates: Sequence[Observation], edges: list[Edge]) -> list[Observation]:
    """Of one exception that is told twice, the copy that is raised under a rank's label knows its place.

    A launcher or a wrapper repeats the sentence of the process that failed, before or behind it.
    """
    placed: dict[str, Observation] = {}
    for one in candidates:
        if one.line.rank is not None and (one.lines or looks_like_exception(one.line.message)):
            placed.setdefault(one.line.message.strip(), one)
    left = []
    for one in candidates:
        copy_of = _copy_of(one, placed) if one.line.rank is None else None
        if copy_of is None:
            left.append(one)
        else:
            edges.append(Edge(copy_of, one, "the same exception, told again without its place"))
    return left


def _copy_of(one: Observation, placed: dict[str, Observation]) -> Observation | None:
    """Return the placed exception that a line repeats: its whole traceback, or a sentence long enough to be its own."""
    message = one.line.message.strip()
    if one.lines:
        same = placed.get(message)
        if same is not None and not same.lines:
            # Of the process itself the log may hold the last line alone, above the copy.
            above = same.line.file == one.line.file and same.line.number < one.line.number
            return same if above else None
        return same if same is not None and _innermost(same) == _innermost(one) else None
    return next(
        (o for s, o in placed.items() if len(s) >= _LEAST_SENTENCE and message.endswith(s)), None
    )


def _without_other_kills(
    case: Case, candidates: Sequence[Observation], edges: list[Edge]
) -> list[Observation]:
    """Of the programs that kernels killed, that one is the job's of which its own output names a process."""
    killed = [
        o
        for o in candidates
        if o.line.stream is Stream.KERNEL and o.fields.get("pid") and o.fields.get("device")
    ]
    if len(killed) < 2:
        return list(candidates)
    told = {o.fields.get("pid") for o in case.observations if o.line.stream is not Stream.KERNEL}
    known = {o.leaf: o for o in reversed(killed) if o.fields["pid"] in told}
    others = [
        o
        for o in killed
        if o.leaf in known and o.fields["device"] != known[o.leaf].fields["device"]
    ]
    edges += [
        Edge(known[o.leaf], o, "the job's own output names a process of the other program")
        for o in others
    ]
    gone = {id(other) for other in others}
    return [o for o in candidates if id(o) not in gone]


def _innermost(exception: Observation) -> str | None:
    """Return the last frame of a traceback: file, line and function."""
    messages = (line.message.strip() for line in reversed(exception.lines))
    return next((message for message in messages if is_frame(message)), None)


def _without_unknown_links(
    candidates: Sequence[Observation], edges: list[Edge]
) -> list[Observation]:
    """Of one chain of exceptions of one process, the link that a rule knows tells more."""
    known: dict[tuple[str, str], list[Observation]] = defaultdict(list)
    for one in candidates:
        if one.lines and one.tier not in (Tier.GENERIC, Tier.EXIT) and not slow(one):
            known[one.line.file, one.line.label].append(one)
    left = []
    for one in candidates:
        near = (
            other
            for other in known.get((one.line.file, one.line.label), ())
            if abs(other.line.number - one.line.number) < _CHAIN_LINES
        )
        link = next(near, None) if one.tier is Tier.GENERIC and one.lines else None
        if link is None:
            left.append(one)
        else:
            edges.append(Edge(link, one, "another link of the same chain of exceptions"))
    return left


def _heads(case: Case, candidates: Iterable[Observation]) -> list[Observation]:
    """Return the earliest of each kind: hundreds of ranks that tell the same need no comparing.

    Of one kind at most two are left, the earliest by the clock and one of those without any.
    """
    kinds: dict[tuple[str, str | None], dict[str, Observation]] = defaultdict(dict)
    for one in candidates:
        files = kinds[one.rule_id, one.fields.get("pci")]
        known = files.get(one.line.file)
        if known is None or case.known_before(one, known):
            files[one.line.file] = one
    heads: list[Observation] = []
    for files in kinds.values():
        timed = [(time, o) for o in files.values() if (time := case.near_time(o.line)) is not None]
        if timed:
            heads.append(
                min(timed, key=lambda pair: (pair[0], pair[1].line.text, pair[1].line.file))[1]
            )
        rest = [o for o in files.values() if case.near_time(o.line) is None]
        if rest:
            heads.append(min(rest, key=lambda o: (o.line.text, o.line.number, o.line.file)))
    return sorted(heads, key=lambda o: (o.line.text, o.line.file, o.line.number))


def _edge(case: Case, rules: dict[str, Rule], a: Observation, b: Observation) -> Edge | None:
    """Return which of two explains the other, or None where neither does."""
    if slow(a) != slow(b):
        cause, effect = (b, a) if slow(a) else (a, b)
        return Edge(cause, effect, "it only makes a run slow, and something ended this one")
    lost = _lost_peer(case, a, b) or _lost_peer(case, b, a)
    if lost is not None:
        return lost
    own = _own_word(case, a, b) or _own_word(case, b, a)
    if own is not None:
        return own
    heavier = _heavier(rules, a, b)
    if heavier is not None and _one_event(case, a, b):
        cause, effect = (a, b) if heavier else (b, a)
        # Across layers only what also came first: a time-out behind an exception is its echo.
        if abs(level(a) - level(b)) < 1.0 or case.before(cause, effect):
            return Edge(
                cause, effect, "of two errors of one GPU the vendor's order names the other"
            )
    if abs(level(a) - level(b)) < 1.0:
        return _fuller(rules, a, b)
    deeper, shallower = (a, b) if level(a) < level(b) else (b, a)
    if (
        has(deeper.leaf, "told_by_peers")
        and has(shallower.leaf, "of_one_process")
        and not has(deeper.leaf, "of_one_process")
        and case.known_before(shallower, deeper)
    ):
        return Edge(shallower, deeper, "peers of the process that had ended tell of it")
    if has(deeper.leaf, "at_start") and case.known_before(shallower, deeper):
        return None  # what cannot be started anew had run before
    gap = case.seconds_between(shallower, deeper)
    late = _CLOCKS_APART_S if is_own(shallower) or not _can_explain(deeper, shallower) else SLACK_S
    if late == SLACK_S and has(shallower.leaf, "by_order"):
        late = DECLARED_S
    if gap is not None and gap > late:
        return None
    when = " before it" if case.known_before(deeper, shallower) else ""
    return Edge(deeper, shallower, f"explained by the deeper fault{when}")


def _can_explain(cause: Observation, effect: Observation) -> bool:
    """Tell whether one kind of failure can have caused another that was printed before it was told."""
    if cause.leaf is None or effect.leaf is None:
        return True
    return effect.leaf in leaves()[cause.leaf].explains


def _lost_peer(case: Case, lost: Observation, teller: Observation) -> Edge | None:
    """A host that is declared lost explains why others could not reach a peer, also before it was declared."""
    host = lost.fields.get("node") or lost.line.node
    if not has(lost.leaf, "whole_host") or host is None:
        return None
    other = lost.leaf != teller.leaf and _can_explain(lost, teller)
    names_it = other and teller.fields.get("node") == host
    if teller.blames is not Blames.PEER and not names_it:
        return None
    if has(lost.leaf, "ends_a_hang"):
        return None  # a limit or somebody ended the job on all its hosts, and lost none
    gap = case.seconds_between(teller, lost)
    if teller.line.node == host or (gap is not None and abs(gap) > DECLARED_S):
        return None
    return Edge(lost, teller, f"{host} was lost, and this is how others tell of it")


def _own_word(case: Case, own: Observation, told: Observation) -> Edge | None:
    """A process that says of itself what another one says of its peer knows best whose it is."""
    if own.leaf != told.leaf or told.blames is not Blames.PEER or own.blames is not Blames.SPEAKER:
        return None
    same = (own.line.rank, own.line.node) == (told.line.rank, told.line.node)
    gap = case.seconds_between(told, own)
    if same or own.line.stream is Stream.KERNEL or (gap is not None and abs(gap) > SLACK_S):
        return None
    return Edge(own, told, "who has it says so itself, and this is of its peer")


def _fuller(rules: dict[str, Rule], a: Observation, b: Observation) -> Edge | None:
    """The same fault told twice without a clock: the line that says more stands for it."""
    if a.leaf != b.leaf or (a.line.time is not None and b.line.time is not None):
        return None
    more = rules[a.rule_id].priority - rules[b.rule_id].priority
    if abs(more) < _SAYS_MORE:
        return None
    cause, effect = (a, b) if more > 0 else (b, a)
    return Edge(cause, effect, "it tells the same with fewer words")


def _heavier(rules: dict[str, Rule], a: Observation, b: Observation) -> bool | None:
    """Several Xids of one GPU within seconds: the vendor's order says which is the fault."""
    if "pci" not in a.fields or "pci" not in b.fields or a.fields["pci"] != b.fields["pci"]:
        return None
    weight_a = rules[a.rule_id].weight if a.rule_id in rules else 0
    weight_b = rules[b.rule_id].weight if b.rule_id in rules else 0
    return None if weight_a == weight_b else weight_a > weight_b


def _one_event(case: Case, a: Observation, b: Observation) -> bool:
    own_a, own_b = a.line.time, b.line.time
    if own_a is not None and own_b is not None and a.line.clock == b.line.clock:
        return abs(own_a - own_b) < _ONE_EVENT_S
    gap = case.seconds_between(a, b)
    return gap is None or abs(gap) < _ONE_EVENT_S


def _sources(
    nodes: Sequence[Observation], pairs: Iterable[tuple[Observation, Observation]]
) -> list[Observation]:
    """Return the nodes to which no pair (from, to) leads but from their own circle."""
    below: dict[int, set[int]] = defaultdict(set)
    for a, b in pairs:
        below[id(a)].add(id(b))
    reach = {id(node): _reachable(id(node), below.__getitem__) for node in nodes}
    return [
        node
        for node in nodes
        if all(id(other) in reach[id(node)] for other in nodes if id(node) in reach[id(other)])
    ]


def _reachable(start: int, below: Callable[[int], set[int]]) -> set[int]:
    found: set[int] = set()
    todo = list(below(start))
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo += below(node)
    return found
