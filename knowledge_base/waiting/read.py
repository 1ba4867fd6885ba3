"""Reads who waits in which collective, how far each rank is, and whom others report as missing.

The wordings are data (`wordings.yaml`); what follows from what they say is decided in `engine`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.domain.evidence import LogLine, Observation, Role
from rerail.kept_patterns import kept_pattern
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.progress import survived
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.tracebacks import looks_like_exception, traceback_above

FILE = Path(__file__).with_name("wordings.yaml")
_NUMBER = lazy(r"\d+")
_FRAME = lazy(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in')
_LONGEST = 4000  # characters of a line that lists ranks
_MOST_BEHIND, _WENT_ON = 2_000, 2
"""Lines behind a report that are read; sentences of other wordings that show that those who waited go on."""
_LONG_AFTER_S = 60.0
"""Whoever waits ends within seconds of the others, or after as long as the watchdog waits for dumps."""
_MOST_AT_A_BARRIER = 65_536
_NEVER_CAME = "{are} not among those that say that they wait in the barrier, and as many came"
_NAMED_MISSING = "{are} named by the other ranks as missing from the collective"


@dataclass(frozen=True, slots=True)
class Form:
    """One wording of `wordings.yaml`; see the head of that file for its keys."""

    id: str
    tells: str
    literals: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...] = ()
    not_in: re.Pattern[str] | None = None
    below: re.Pattern[str] | None = None
    within: int = 0
    unbroken: bool = False
    loose: bool = False
    several: bool = False
    words: str = _NAMED_MISSING
    lives: bool = False
    gone: bool = False
    outlived: bool = False
    kills: bool = False
    whom: tuple[int, ...] = ()
    matches: tuple[str, ...] = ()

    def slots(self, text: str) -> dict[str, str] | None:
        """Return what a line says in this wording, or None where it does not use it."""
        if not any(word in text for word in self.literals):
            return None
        if self.not_in is not None and self.not_in.search(text):
            return None
        found: dict[str, str] = {}
        for position, pattern in enumerate(self.patterns):
            match = pattern.search(text)
            if match is None:
                if position == 0 and not self.loose:
                    return None
                continue
            found |= {key: value for key, value in match.groupdict().items() if value is not None}
        return found


@lru_cache(maxsize=1)
def forms() -> tuple[Form, ...]:
    """Return the wordings of this installation."""
    return tuple(_form(raw) for raw in load_cached(FILE)["forms"])


@lru_cache(maxsize=1)
def _any_of_them() -> re.Pattern[str]:
    return kept_pattern("|".join(re.escape(word) for form in forms() for word in form.literals))


@lru_cache(maxsize=1)
def frames() -> dict[str, re.Pattern[str]]:
    """Return what tells where a frame of a stack is: collective, gpu, point_to_point, data, library."""
    return {name: lazy(text) for name, text in load_cached(FILE)["frames"].items()}


@lru_cache(maxsize=1)
def needs_all() -> frozenset[str]:
    """Return the collectives that nobody completes without every rank."""
    return frozenset(load_cached(FILE)["needs_all"])


def of_two() -> frozenset[str]:
    """Return the operations of two ranks, one of which sends what the other one receives."""
    return frozenset(load_cached(FILE)["of_two"])


def _form(raw: dict[str, Any]) -> Form:
    patterns = tuple(lazy(text) for text in raw.get("patterns") or ())
    keys = ("within", "unbroken", "loose", "several", "words", "lives", "gone", "outlived", "kills")
    rest: dict[str, Any] = {key: raw[key] for key in keys if key in raw}
    rest |= {key: lazy(raw[key]) for key in ("not_in", "below") if key in raw}
    rest["whom"] = tuple(raw.get("ranks") or ())
    return Form(
        raw["id"], raw["tells"], tuple(raw["literals"]), patterns, matches=tuple(raw["matches"]),
        **rest,
    )  # fmt: skip


@dataclass(slots=True)
class Position:
    """The call that one rank waits in, as it printed it; `limit_s` is how long it waited, in seconds."""

    line: LogLine
    rule_id: str
    rank: int | None
    op: str | None = None
    seq: int | None = None
    size: int | None = None
    group: str | None = None
    member: int | None = None
    limit_s: float | None = None
    site: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """Ranks, or nodes, that something reports as missing; `words` end a sentence about them.

    `lives` says that they live and do not move, `gone` that they give no sign of life any more;
    `lost_node` is a node of which nobody is left, `awaited` what each of the ranks has not submitted.
    """

    ranks: tuple[int, ...]
    line: LogLine
    words: str
    lives: bool = False
    gone: bool = False
    nodes: tuple[str, ...] = ()
    lost_node: str | None = None
    awaited: tuple[tuple[int, str], ...] = ()
    of: int | None = None
    """Size of the group that the ranks are counted in."""
    kills: bool = False
    """Who says so is a monitor, which then ends the process."""
    of_part: bool = False
    """Its line tells of several things that are waited for, and these are missing for one of them."""
    came: frozenset[int] = frozenset()
    """Those that came, where they are told instead: the ranks are all others of the job."""


@dataclass(slots=True)
class Facts:
    """All that was read. `progress` is (last enqueued, last completed) by rank and group."""

    positions: list[Position] = field(default_factory=list)
    progress: dict[tuple[int | None, str | None], tuple[int, int]] = field(default_factory=dict)
    victims: set[int] = field(default_factory=set)
    """Ranks that waited in vain, those of lines that were not kept included."""
    torn: set[int] = field(default_factory=set)
    """Ranks that lost another one."""
    late: set[int] = field(default_factory=set)
    """Those of them that lost it long after all others had waited in vain: they were not waiting themselves."""
    told: list[Told] = field(default_factory=list)
    gave_up: set[int] = field(default_factory=set)
    """Ranks that waited in vain and do not say in which collective."""
    still: dict[int, LogLine] = field(default_factory=dict)
    """Ranks that say of themselves that they stand still, with the first line that does."""
    some_unknown: bool = False
    """Others than those gave up, in lines that were counted and not kept: who is not among them may be among those."""
    report: Told | None = None
    """Whom NCCL's own health report names; it counts where no rank names anybody."""


def read(case: Case) -> Facts:
    """Return what the observed lines of a case say of waiting."""
    facts = Facts()
    compared: list[tuple[Position, Position]] = []
    arrivals: dict[str, list[tuple[dict[str, str], LogLine]]] = defaultdict(list)
    for observation, line in _lines(case):
        for form in forms():
            slots = form.slots(line.text)
            if slots is None or (line is not observation.line and form.tells != "missing"):
                continue
            if form.tells == "call":
                own = _position(case, observation, slots)
                facts.positions.append(own)
                if "peer" in slots:
                    compared.append((own, _of_peer(own, slots)))
            elif form.tells == "arrived":
                arrivals[slots["key"]].append((slots, line))
            elif form.tells == "missing":
                facts.told += _missing(case, form, observation, line, slots)
            else:
                _of_itself(case, facts, form, line, slots)
    facts.positions += _of_the_job(compared)
    facts.told += filter(None, map(_never_came, arrivals.values()))
    # Of many equal lines only some are kept; by their rules it is known exactly which ranks print them.
    facts.torn = {r for o in case.with_role(Role.CASCADE) if (r := o.line.rank) is not None}
    rules = {p.rule_id for p in facts.positions if p.rank is not None and p.rank == p.line.rank}
    facts.victims = {p.rank for p in facts.positions if p.rank is not None}
    unmarked = {
        p.rule_id
        for p in facts.positions
        if p.rank is not None and (p.line.rank, p.line.local_rank) == (None, None)
    }
    facts.victims |= case.facts.ranks(rules) | case.facts.numbers_said(unmarked)
    facts.victims |= facts.gave_up if facts.victims else set()
    facts.late = _late(case, facts) - facts.victims
    facts.some_unknown = _some_unknown(case, facts.positions)
    return facts


def _some_unknown(case: Case, positions: Sequence[Position]) -> bool:
    """Tell whether a file has more lines of those who gave up, of ranks that nothing tells, than were kept.

    A launcher may print again, without a rank, what the files of ranks hold: all of its lines are kept, too.
    """
    rules, kept = {one.rule_id for one in positions}, defaultdict[str, set[int]](set)
    for one in case.observations:
        if one.rule_id in rules:
            kept[one.line.file].add(one.line.number)
    return any(count > len(kept[file]) for file, count in case.facts.untold(rules).items())


def _of_itself(case: Case, facts: Facts, form: Form, line: LogLine, slots: dict[str, str]) -> None:
    """Take what a rank says of itself alone."""
    rank = _rank_of(case, line, slots)
    if form.tells == "progress":
        _progress(case, facts, line, slots)
    elif rank is not None and form.tells == "gave_up":
        facts.gave_up.add(rank)
    elif rank is not None:
        facts.still.setdefault(rank, line)


def _missing(
    case: Case, form: Form, observation: Observation, line: LogLine, slots: dict[str, str]
) -> list[Told]:
    """Return whom a line calls missing, unless all came in the end, or it counts within a part of the job."""
    if line.rank is not None and slots.get("member", str(line.rank)) != str(line.rank):
        return []
    if form.outlived and survived(case, observation):
        return []
    told = list(_told(case, form, line, slots))
    return [] if form.outlived and told and _went_on(case, told) else told


def _never_came(arrivals: Sequence[tuple[dict[str, str], LogLine]]) -> Told | None:
    """Return who did not come to a barrier, where as many ranks say that they are there as it counted, and one gave up."""
    given_up: dict[int, LogLine] = {}
    came, counts, worlds = set[int](), [0], set[int]()
    for slots, line in arrivals:
        rank = int(slots["rank"])
        if "gave_up" in slots:
            given_up.setdefault(rank, line)
        elif rank in given_up:  # it comes again: another attempt of the job
            given_up, came, counts = {}, set(), [0]
        came.add(rank)
        counts.append(int(slots["count"]))
        worlds.add(int(slots["world"]))
    counted, world = max(counts), max(worlds)
    if not given_up or len(worlds) != 1 or len(came) != counted or world > _MOST_AT_A_BARRIER:
        return None
    left = sorted(set(range(world)) - came)
    if not left or len(left) != world - counted:
        return None
    return Told(tuple(left), next(iter(given_up.values())), _NEVER_CAME, of=world)


def _lines(case: Case) -> Iterator[tuple[Observation, LogLine]]:
    """Yield the lines that may use a wording, those of tracebacks included, with their observations."""
    for observation in case.observations:
        for line in (observation.line, *observation.lines):
            if _any_of_them().search(line.text) is not None:
                yield observation, line


def _late(case: Case, facts: Facts) -> set[int]:
    """Return the ranks whose first word of a lost peer comes long after the last that waited in vain."""
    gave_up = [t for p in facts.positions if (t := case.time(p.line)) is not None]
    first: dict[int, float] = {}
    for observation in case.with_role(Role.CASCADE):
        rank, time = observation.line.rank, case.time(observation.line)
        if rank is not None and time is not None:
            first[rank] = min(time, first.get(rank, time))
    return {rank for rank, time in first.items() if gave_up and time > max(gave_up) + _LONG_AFTER_S}


def _position(case: Case, observation: Observation, slots: dict[str, str]) -> Position:
    line = observation.line

    def number(slot: str) -> int | None:
        return int(slots[slot]) if slot in slots else None

    limit = number("limit_ms")
    return Position(
        line,
        observation.rule_id,
        _rank_of(case, line, slots),
        op=slots.get("op"),
        seq=number("seq"),
        size=number("size"),
        group=slots.get("group"),
        member=number("member"),
        limit_s=limit / 1000.0 if limit is not None else None,
        site=_call_site(case, line),
    )


def _of_the_job(compared: Sequence[tuple[Position, Position]]) -> list[Position]:
    """Return the calls of peers, where the writers' own ranks say that their group is the whole job.

    A line counts both ranks within one group, and the first of the job is the first of each group that it is in.
    """
    alike = all(own.rank == own.member for own, _ in compared)
    return [peer for _, peer in compared] if alike and any(own.rank for own, _ in compared) else []


def _of_peer(own: Position, slots: dict[str, str]) -> Position:
    """Return the call of another rank that a line compares its writer's with."""
    size = int(slots["peer_size"]) if "peer_size" in slots else None
    op, seq, peer = slots["peer_op"], int(slots["peer_seq"]), int(slots["peer"])
    return replace(own, rank=peer, member=peer, op=op, seq=seq, size=size, site=None)


def _progress(case: Case, facts: Facts, line: LogLine, slots: dict[str, str]) -> None:
    rank, group = _rank_of(case, line, slots), slots.get("group")
    facts.progress.setdefault((rank, group), (int(slots["enqueued"]), int(slots["completed"])))


def _rank_of(case: Case, line: LogLine, slots: dict[str, str]) -> int | None:
    if line.rank is not None:
        return line.rank
    if line.local_rank is not None:
        return case.facts.rank_at(line.node, line.local_rank)
    # Without any launcher label the group-local rank is all there is; good for one group only.
    return int(slots["member"]) if "member" in slots else None


def _told(case: Case, form: Form, line: LogLine, slots: dict[str, str]) -> Iterator[Told]:
    if form.below is None:
        of = int(slots["of"]) if "of" in slots else None
        # One line may tell of several things that are waited for.
        each = form.patterns[0].finditer(line.text) if form.several else ()
        for one in [match.groupdict() for match in each] or [slots]:
            ranks = form.whom or _ranks(one.get("ranks") or "")
            came = frozenset(_ranks(one.get("came") or ""))
            if ranks or came:
                yield Told(
                    ranks,
                    line,
                    form.words,
                    form.lives,
                    form.gone,
                    of=of,
                    kills=form.kills,
                    of_part=form.several,
                    came=came,
                )
        return
    view = case.view(line)
    for number in view.between(line.number + 1, line.number + form.within):
        row = view.line(number)
        if row is not None and (row.node, row.place) != (line.node, line.place):
            continue  # what another container prints in between
        if row is None:
            match = None
        else:  # a number in front of a row may look like a launcher's label
            match = form.below.search(row.message[:_LONGEST]) or form.below.search(
                row.text[:_LONGEST]
            )
        if match is not None and row is not None:
            ranks = _ranks(match["ranks"])
            awaited = tuple((rank, match["awaited"]) for rank in ranks) if form.unbroken else ()
            # A list of who is gone may be numbers alone; its title says more.
            by = line if form.gone else row
            yield Told(ranks, by, form.words, form.lives, form.gone, awaited=awaited)
        elif form.unbroken:
            return


def _went_on(case: Case, told: Sequence[Told]) -> bool:
    """Tell whether ranks that waited went on behind a report, and nothing failed: then all came in the end.

    Who waits in a collective prints nothing of its own but what a side thread repeats.
    """
    last = max((one.line for one in told), key=lambda line: line.number)
    missing = {rank for one in told for rank in one.ranks}
    harm = (Role.INITIATING, Role.CASCADE, Role.TEARDOWN)
    behind = [
        o for o in case.observations if o.line.file == last.file and o.line.number > last.number
    ]
    if any(o.role in harm for o in behind):
        return False
    view, said = case.view(last), set[str]()
    for number in view.between(last.number + 1, last.number + _MOST_BEHIND):
        line = view.line(number)
        if line is not None and line.rank is not None and line.rank not in missing:
            if line.message[:1].isalpha() and case.one_stretch(line, last):
                said.add(_NUMBER.sub("0", line.message))
    return len(said) >= _WENT_ON


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.replace(",", " ").split())


def _call_site(case: Case, line: LogLine) -> str | None:
    """Return the program's own source line that sat in the collective, from the traceback above."""
    if not looks_like_exception(line.message):
        return None
    site = None
    for above in traceback_above(line, case.view(line).line).lines:
        match = _FRAME.search(above.message)
        if match and not frames()["library"].search(match["file"]):
            site = f"{match['file']}:{match['line']}"
    return site
