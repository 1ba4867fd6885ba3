"""Whom do all the others wait for? Whoever nobody waits behind: absent, behind, elsewhere, or in another call.

Every source - watchdogs, status lines, gloo, barriers, monitors, Horovod, HCCL, JAX, NCCL's health
report, stacks - gives facts of the same few kinds, and one list of questions, the surest first, reads
them: whom do others name; who called something else; who is behind; who is
silent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import TypeVar

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.placement.identities import MOST_RANKS, Identities
from rerail.knowledge_base.placement.names import named, same_host
from rerail.knowledge_base.waiting.read import Facts, Position, Told, needs_all, of_two
from rerail.late_dataclass import dataclass

_APART, _FAR_APART = 2, 100
_LEAST_OTHERS = 3
"""So many wait alike where one does not."""
MOST_ODD = 1 / 3
"""A larger part of the processes than this cannot be what the others wait for."""
T = TypeVar("T")


class How(StrEnum):
    """How it is known whom the others wait for; the order is that of trust."""

    NAMED = "named"
    ANOTHER_CALL = "another call"
    STOOD_STILL = "stood still"
    BEHIND = "behind"
    SPOKE = "spoke"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Finding:
    """Whom the others wait for.

    `gone`: they give no sign of life; `kills`: who says so ends them; `lost_node`: nobody of that node is left.
    """

    how: How
    ranks: tuple[int, ...]
    words: str
    line: LogLine | None = None
    gone: bool = False
    nodes: tuple[str, ...] = ()
    lost_node: str | None = None
    kills: bool = False


@dataclass(slots=True)
class Waiting:
    """Who waits, since when, and whom for; `findings` are the answers, the surest first."""

    positions: list[Position] = field(default_factory=list)
    victims: set[int] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    first: Position | None = None
    started: float | None = None
    some_unknown: bool = False
    """More gave up than are known: nobody is named for his absence."""

    @property
    def found(self) -> Finding | None:
        """The surest answer."""
        return self.findings[0] if self.findings else None

    @property
    def suspects(self) -> tuple[int, ...]:
        """The smallest set of ranks that explains the waiting, or none."""
        return self.found.ranks if self.found is not None else ()

    @property
    def silent(self) -> tuple[int, ...]:
        """The same, but for what a rank says itself: beside an error of its own that tells nothing more."""
        return next((one.ranks for one in self.findings if one.how is not How.SPOKE), ())

    def by(self, how: How) -> Finding | None:
        """Return what one of the questions gave."""
        return next((finding for finding in self.findings if finding.how is how), None)

    @property
    def line(self) -> LogLine | None:
        """The line that says best that ranks wait: who names others, else the first time-out."""
        named = self.by(How.NAMED)
        if named is not None and named.line is not None:
            return named.line
        for how in (How.ANOTHER_CALL, How.STOOD_STILL):
            told = self.by(how)
            if told is not None and told.line is not None:
                return told.line
        return self.first.line if self.first is not None else None

    def describe(self) -> str:
        """Say in one clause whom the others wait for, and how that is known."""
        return self.found.words if self.found is not None else "no rank stands out"


def ask(
    facts: Facts,
    job: Identities,
    heard_of: Callable[[str, set[int]], bool],
    before_all: Callable[[LogLine], bool],
) -> list[Finding]:
    """Return the answers to all questions, the surest first.

    Args:
        facts: what was read.
        before_all: tells whether a line is known to be older than all time-outs of others.
        job: who runs where, and how many there are.
        heard_of: tells whether a host with these ranks, or its launcher, reported an end or an error.
    """
    waiting = facts.positions
    known = {*job.ranks_seen, *job.node_of_rank, *range(min(job.world_size or 0, MOST_RANKS))}
    known |= {rank for one in facts.told for rank in one.came}
    told = [_all_but_who_came(one, known) for one in facts.told]
    told = [one for one in told if one.ranks and _of_the_job(one, job)]
    # Who waited in vain itself ends of that, and is gone for it.
    told = [one for one in told if not (one.gone and set(one.ranks) <= facts.victims)]
    named = _named(told, known)
    if named is None and facts.report is not None:
        named = _named([facts.report], set())
    behind = _behind(facts) or _never_enqueued(facts)
    other = (
        _other_tensors(facts.told, known)
        or (named if named is not None and named.how is How.ANOTHER_CALL else None)
        or _different_calls(waiting)
        or _apart(waiting)
        or (_ahead_in_one_group(waiting) if behind is None else None)
    )
    still = _stood_still(facts, before_all)
    if still is not None:
        behind = None
    absent = None
    if behind is None and other is None and still is None:
        absent = _absent(facts, job, heard_of)
        if absent is None:
            other = (
                _one_in_another_call(waiting) or _one_far_apart(waiting) or _other_sites(waiting)
            )
    named = _of_a_host(named, job) if named is not None and named.how is How.NAMED else None
    named = _with_its_host(named, absent) if named is not None else None
    return [one for one in (named, other, still, behind, absent) if one is not None]


def _all_but_who_came(told: Told, known: set[int]) -> Told:
    """Return who did not come, where a line lists those that did: a few of the ranks that are known."""
    missing = known - told.came
    if not told.came or len(missing) > max(1, int(len(known) * MOST_ODD)):
        return told
    return replace(told, ranks=tuple(sorted(missing)))


def _of_the_job(told: Told, job: Identities) -> bool:
    """Tell whether all ranks that somebody names can be ranks: of the whole job, and of those whose hosts are known."""
    if told.of is not None and max(job.ranks_seen | job.ranks_heard, default=0) >= told.of:
        return False  # counted in a group that is a part of the job
    known = job.node_of_rank
    whole = len(known) > 1 and set(known) == set(range(len(known)))
    return not whole or all(rank in known for rank in told.ranks)


def _named(told: Sequence[Told], known: set[int]) -> Finding | None:
    """Whom others report as missing. Most ranks cannot be: then each of them misses something else."""
    if not told:
        return None
    told = _before_the_fall(told)
    ranks = sorted({rank for one in told for rank in one.ranks})
    if all(one.of_part for one in told):
        # Whoever is missing for each of several things holds all of them up.
        ranks = sorted(set.intersection(*(set(one.ranks) for one in told))) or ranks
    lives = next((one for one in reversed(told) if one.lives), None)
    if lives is not None and len(ranks) > 1 and len(ranks) * 2 > len({*known, *ranks}):
        awaited = {rank: tensors for one in told for rank, tensors in one.awaited}
        if set(awaited) != {*known, *ranks} or len(set(awaited.values())) < 2:
            return None
        words = (
            f"{named(ranks)} wait for each other: each submitted tensors that another one did not"
        )
        return Finding(How.ANOTHER_CALL, tuple(ranks), words, told[0].line)
    one = lives or next((one for one in told if one.gone), told[0])
    who = named(ranks) if ranks else "a process"
    words = one.words.format(are="is" if len(ranks) == 1 else "are")
    nodes = tuple(dict.fromkeys(node for t in told for node in t.nodes))
    lost = next((t.lost_node for t in told if t.lost_node), None)
    gone = any(t.gone for t in told)
    kills = any(t.kills for t in told)
    return Finding(
        How.NAMED, tuple(ranks), f"{who} {words}", told[0].line, gone, nodes, lost, kills
    )


def _other_tensors(told: Sequence[Told], known: set[int]) -> Finding | None:
    """The few that wait for all others with something that none of those waits with."""
    parts = [one for one in told if one.of_part]
    everybody = known | {rank for one in parts for rank in one.ranks}
    came = {one.came or frozenset(everybody.difference(one.ranks)): one for one in parts}
    came.pop(frozenset(), None)
    if len(came) < 2:
        return None
    most = max(came, key=lambda ranks: (len(ranks), sorted(ranks)))
    few = frozenset[int]().union(*(ranks for ranks in came if not ranks & most))
    if not few:
        return None
    line = next(one.line for ranks, one in came.items() if ranks <= few)
    others, these = named(sorted(most)), named(sorted(few))
    if len(few) > MOST_ODD * len(few | most):
        words = f"{others} and {these} submitted different tensors, and wait for each other"
        return Finding(How.ANOTHER_CALL, (), words, line)
    words = f"{these} submitted other tensors than all that wait for them"
    return Finding(How.ANOTHER_CALL, tuple(sorted(few)), words, line)


def _before_the_fall(told: Sequence[Told]) -> Sequence[Told]:
    """Leave out who is called gone only behind those that did not come: who waited in vain is ended, and gone as well."""
    missing = {rank for one in told if not one.gone for rank in one.ranks}
    gone = {rank for one in told if one.gone for rank in one.ranks}
    if not missing or not gone or missing & gone:
        return told
    return [one for one in told if not one.gone]


def _another_call(ranks: Iterable[int], positions: Sequence[Position]) -> Finding:
    """Who ran another operation than the others; its own line is the one to show."""
    odd = tuple(sorted(ranks))
    line = next((p.line for p in positions if p.rank in odd), None)
    words = f"{named(odd)} ran another operation or size than the others"
    return Finding(How.ANOTHER_CALL, odd, words, line)


def _different_calls(waiting: Sequence[Position]) -> Finding | None:
    """Ranks that called different things as the same number of one group."""
    by_seq: dict[tuple[str | None, int], list[Position]] = defaultdict(list)
    for one in waiting:
        if one.seq is not None and one.rank is not None and one.op not in of_two():
            by_seq[one.group, one.seq].append(one)
    found: set[int] = set()
    for group in by_seq.values():
        kinds = Counter(kind for _, kind in {(p.rank, (p.op, p.size)) for p in group})
        if len(kinds) < 2:
            continue
        common, count = max(kinds.items(), key=lambda one: (one[1], str(one[0])))
        odd = {p.rank for p in group if (p.op, p.size) != common and p.rank is not None}
        if len(odd) <= count:
            # With two ranks neither is the majority: both are shown.
            found = odd if count > len(odd) else {p.rank for p in group if p.rank is not None}
    return _another_call(found, waiting) if found else None


def _one_in_another_call(waiting: Sequence[Position]) -> Finding | None:
    """The one rank of many that waits in another operation than all others, where none tells numbers or groups.

    Of several that do, each may wait in a group of its own, as the stages of a pipeline do.
    """
    calls: dict[str, set[int]] = defaultdict(set)
    for one in waiting:
        if one.seq is not None or one.group is not None or one.op in of_two():
            return None
        if one.op is not None and one.rank is not None:
            calls[one.op].add(one.rank)
    if len(calls) != 2:
        return None
    few, most = sorted(calls.values(), key=len)
    if len(few) != 1 or len(most) < _LEAST_OTHERS or few & most:
        return None
    return _another_call(few, waiting)


def _apart(waiting: Sequence[Position]) -> Finding | None:
    """Two ranks that each waited to the end, two collectives apart or more, did not run the same ones.

    The one that is further on has completed a collective that needs the other one.
    """
    told = [p for p in waiting if p.seq is not None and p.op in needs_all()]
    # An exception quotes the time-out that raised it.
    sits = {(p.rank, p.seq or 0, p.group) for p in told if p.rank is not None}
    ranks = {rank for rank, _, _ in sits if rank is not None}
    if len(told) != len(waiting) or len(sits) != 2 or len(ranks) != 2:
        return None
    low, high = sorted(seq for _, seq, _ in sits)
    if len({group for _, _, group in sits}) > 1 or high - low < _APART:
        return None
    return _another_call(ranks, waiting)


def _ahead_in_one_group(waiting: Sequence[Position]) -> Finding | None:
    """Without status lines: a minority that waits in another operation than the others, further on by two.

    Releases that name no group number the ranks of each group from 0; where no number stands twice and
    none is missing, all that is told is of one group, and its sequence numbers can be compared.
    """
    calls = [p for p in waiting if p.seq is not None and p.op is not None]
    # An exception quotes the time-out that raised it.
    told = [*{(p.rank, p.member, p.seq, p.op, p.size): p for p in calls}.values()]
    members = [p.member for p in told if p.member is not None]
    if any(p.group is not None for p in waiting) or len(members) < 3:
        return None
    if sorted(members) != list(range(len(told))):
        return None
    (seq, op, _), count = Counter((p.seq, p.op, p.size) for p in told).most_common(1)[0]
    ahead = [p for p in told if (p.seq or 0) > (seq or 0) + 1 and p.op != op]
    ranks = {p.rank for p in ahead if p.rank is not None}
    if op in needs_all() and len(ahead) + count == len(told) and 0 < len(ranks) < count:
        return _another_call(ranks, waiting)
    return None


def _one_far_apart(waiting: Sequence[Position]) -> Finding | None:
    """Without status lines: the one rank that waits in the same operation as all others, many collectives away.

    As in `_ahead_in_one_group` releases that name no group are meant, and ranks that are each told once.
    """
    told = [*{(p.rank, p.seq, p.op, p.size): p for p in waiting}.values()]
    if any(p.group is not None or p.seq is None or p.rank is None for p in told):
        return None
    calls = {(p.op, p.size) for p in told}
    if len(calls) != 1 or len({p.rank for p in told}) < len(told) or told[0].op not in needs_all():
        return None
    (seq, count), *others = Counter(p.seq for p in told).most_common()
    if count < _LEAST_OTHERS or len(others) != 1 or others[0][1] != 1:
        return None
    odd = next(p for p in told if p.seq != seq)
    if abs((odd.seq or 0) - (seq or 0)) < _FAR_APART:
        return None
    words = f"rank {odd.rank} waited in collective {odd.seq}, all others in {seq}"
    return Finding(How.ANOTHER_CALL, (odd.rank or 0,), words, odd.line)


def _other_sites(waiting: Sequence[Position]) -> Finding | None:
    """Ranks that gave up at different places of the program wait for different things.

    Where sequence numbers are told these decide, and `if rank == 0` is one call at two places.
    """
    if any(one.seq is not None for one in waiting):
        return None
    sites: dict[str, set[int]] = defaultdict(set)
    for one in waiting:
        if one.site and one.rank is not None:
            sites[one.site].add(one.rank)
    if len(sites) < 2:
        return None
    common, others = most_common(sites)
    odd = set().union(*(sites[site] for site in others)) - sites[common]
    if not odd or len(odd) >= len(sites[common]):
        return None
    words = f"{named(sorted(odd))} waited at another place of the program than the others"
    line = next((p.line for p in waiting if p.rank in odd), None)
    return Finding(How.ANOTHER_CALL, tuple(sorted(odd)), words, line)


def most_common(places: Mapping[str, Collection[T]]) -> tuple[str, list[str]]:
    """Return the place where most are, and the others; of equals the first by name."""
    common = max(sorted(places), key=lambda place: len(places[place]))
    return common, [place for place in places if place != common]


def _stood_still(facts: Facts, before_all: Callable[[LogLine], bool]) -> Finding | None:
    """The one rank whose own watchdog hung before anybody gave up waiting; afterwards it hangs on many."""
    early = {rank: line for rank, line in facts.still.items() if before_all(line)}
    if len(early) != 1 or not facts.positions:
        return None
    rank, line = next(iter(early.items()))
    words = (
        f"rank {rank} stood still, its own watchdog thread too, before any other gave up waiting"
    )
    return Finding(How.STOOD_STILL, (rank,), words, line)


def _behind(facts: Facts) -> Finding | None:
    """Ranks that have enqueued less than the others of their group, as long as they are few."""
    by_group: dict[str | None, dict[int, int]] = defaultdict(dict)
    for (rank, group), (enqueued, _) in facts.progress.items():
        if rank is not None:
            by_group[group][rank] = enqueued
    behind: set[int] = set()
    for ranks in by_group.values():
        low, high = min(ranks.values()), max(ranks.values())
        few = {rank for rank, enqueued in ranks.items() if enqueued == low}
        if low < high and len(few) <= max(1, int(len(ranks) * MOST_ODD)):
            behind |= few
    if not behind:
        return None
    told = {rank for rank, _ in facts.progress}
    waits = [p for p in facts.positions if p.seq is not None and p.rank is not None]
    calls = {(p.group, p.seq, p.op) for p in waits if p.rank in behind}
    if any((p.group, p.seq, p.op) in calls and p.rank not in told for p in waits):
        return None  # others that told no status wait in the very collective that it waits in
    ranks_behind = tuple(sorted(behind))
    are = "is" if len(behind) == 1 else "are"
    words = f"{named(ranks_behind)} {are} behind the others by last enqueued work"
    return Finding(How.BEHIND, ranks_behind, words)


def _never_enqueued(facts: Facts) -> Finding | None:
    """Ranks whose own status ends before the collective of their group that the others waited in, if they are few."""
    awaited: dict[str, dict[int, int]] = defaultdict(dict)
    for one in facts.positions:
        if one.seq is not None and one.rank is not None and one.group is not None:
            awaited[one.group][one.rank] = one.seq
    behind: set[int] = set()
    for (rank, group), (enqueued, _) in facts.progress.items():
        waits = awaited.get(group or "", {})
        if rank is not None and rank not in waits and enqueued < min(waits.values(), default=0):
            behind.add(rank)
    waiting = {rank for ranks in awaited.values() for rank in ranks} - behind
    if not behind or len(waiting) < 2 or len(behind) > max(1, int(len(waiting) * MOST_ODD)):
        return None
    ranks = tuple(sorted(behind))
    words = f"{named(ranks)} had not enqueued the collective that the others of its group waited in"
    return Finding(How.BEHIND, ranks, words)


def _absent(
    facts: Facts, job: Identities, heard_of: Callable[[str, set[int]], bool]
) -> Finding | None:
    """Who printed no time-out: few of many, or all of a host of which nothing more was heard."""
    victims, world_size = facts.victims, job.world_size
    if not victims:
        return None
    known = set(job.ranks_seen)
    if world_size is not None and world_size <= MOST_RANKS:
        # A world size below the highest rank belongs to a sub-group, not to the job.
        if world_size > max(known | {0}):
            known |= set(range(world_size))
    elif max(victims) >= 1 and len(victims) >= 3:
        known |= set(range(max(victims) + 1))
    known -= _joined(facts) - victims
    late = tuple(sorted(facts.late))
    if late and len(late) <= max(1, len(victims) // 2):
        words = f"{named(late)} lost the others only when they had long given up waiting"
        return Finding(How.ABSENT, late, words)
    # Who lost a peer while it waited is a victim as well, unless nobody else is left.
    absent = tuple(sorted(known - victims - facts.torn) or sorted(known - victims))
    words = f"{named(absent)} printed no time-out while {len(victims)} others did"
    host = _only_host(absent, job)
    if host is not None and len(absent) > 1 and set(job.ranks_on(host)) == set(absent):
        lost = any(same_host(node, host) for node in job.lost_nodes)
        if lost or not heard_of(host, set(absent)):
            return Finding(How.ABSENT, absent, words, nodes=(host,), lost_node=host)
    if not absent or len(absent) > max(1, len(victims) // 2):
        return None
    return Finding(How.ABSENT, absent, words)


def _joined(facts: Facts) -> set[int]:
    """The ranks that had begun what the others waited in, as a process tells that was asked for its state."""
    awaited: dict[str | None, set[int]] = defaultdict(set)
    for one in facts.positions:
        if one.seq is not None:
            awaited[one.group].add(one.seq)
    common = awaited[None] if set(awaited) == {None} else set()
    return {
        rank
        for (rank, group), (enqueued, _) in facts.progress.items()
        if rank is not None and enqueued >= max(awaited.get(group, common), default=enqueued + 1)
    }


def _of_a_host(found: Finding, job: Identities) -> Finding:
    """Where all ranks of one host, and no other, sent no more heartbeats, the host is gone."""
    host = _only_host(found.ranks, job)
    if not found.gone or host is None or len(found.ranks) < 2 or len(job.nodes_seen) < 2:
        return found
    if set(job.ranks_on(host)) != set(found.ranks):
        return found
    return replace(found, nodes=(host,), lost_node=host)


def _with_its_host(found: Finding, absent: Finding | None) -> Finding:
    """Where who sends no more heartbeats is of a host of which nothing more was heard, that host is gone."""
    if not found.gone or absent is None or absent.lost_node is None:
        return found
    if not set(found.ranks) <= set(absent.ranks):
        return found
    return replace(found, ranks=absent.ranks, nodes=absent.nodes, lost_node=absent.lost_node)


def _only_host(ranks: Sequence[int], job: Identities) -> str | None:
    hosts = {job.node_of_rank.get(rank) for rank in ranks}
    return hosts.pop() if len(hosts) == 1 else None
