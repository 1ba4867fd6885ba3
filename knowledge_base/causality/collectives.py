"""Who broke a collective: read from time-outs, status lines and silence.

The ranks that print a time-out are the victims. The culprit is the rank that printed none, is
behind by the status lines, or ran another operation at the same sequence number.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from rerail.domain.evidence import LogLine, Observation, Role
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.progress import survived
from rerail.knowledge_base.placement.identities import Identities
from rerail.knowledge_base.placement.names import same_host
from rerail.log_parsers.tracebacks import looks_like_exception, traceback_above

_WORK = re.compile(
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d+), )?OpType=(?P<op>\w+)(?:, NumelIn=(?P<nin>\d+), NumelOut=(?P<nout>\d+))?"
    r"[^)]*?Timeout\(ms\)=(?P<timeout>\d+)\)"
)
_PG = re.compile(r"\[PG (?:ID )?(?P<pg>\d+)(?: PG GUID [^\]]*?)? Rank (?P<local>\d+)\]")
_STATUS = re.compile(
    r"[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d+), last completed (?:NCCL )?work: (?P<completed>-?\d+)"
)
_STUCK = re.compile(r"at work(?: sequence id)?: (?P<seq>\d+)")
# Nobody completes one of these without every rank; a root completes its broadcast alone.
_NEEDS_ALL = frozenset({
    "ALLREDUCE", "ALLREDUCE_COALESCED", "ALLGATHER", "_ALLGATHER_BASE", "ALLGATHER_COALESCED", "REDUCE_SCATTER",
    "_REDUCE_SCATTER_BASE", "REDUCE_SCATTER_COALESCED", "ALLTOALL", "ALLTOALL_BASE", "BARRIER",
})  # fmt: skip
_APART = 2
_IN_GROUP = re.compile(r"\[Rank (?P<rank>\d+)\]")
_GLOO = re.compile(r"Timed out waiting (?P<timeout>\d+)ms for (?:recv|send) operation")
_LAGGING = re.compile(r"lagging/dead/mismatched ranks|tasks are unhealthy \(stopped sending")
_NAMED_RANK = re.compile(
    r"- \[(?P<ranks>\d+(?:, ?\d+)*)\] (?:joined but didn't finish|finished|did not join|never joined)"
    # JAX 0.10 lists the numbers of its tasks alone, one a line.
    r"|/job:jax_worker/replica:\d+/task:(?P<task>\d+)\s*$|^(?P<bare>\d{1,6})\s*$"
)
_MONITORED = re.compile(r"Ranks? (?P<ranks>\d+(?:, ?\d+)*) failed to pass monitoredBarrier")
# Each rank has a monitor of NVRx; the monitor of a rank that moves stays silent.
_HEARTBEAT = re.compile(
    r"RankMon(?:itor)?Server(?:\d+@[\w.-]+)?:(?P<ranks>\d+)\] Did not get (?:initial|subsequent) heartbeat"
)
# The older coordination service of JAX and TensorFlow; the newer one lists its tasks.
_UNHEARD = re.compile(r"/task:(?P<ranks>\d{1,6}) heartbeat timeout")
_NOTIFY = re.compile(
    r"has not received the Notify record from remote rank:? ?\[(?P<ranks>\d{1,6})\]"
)
# Horovod lists the tensors that each rank has not submitted: in lines of their own, or behind each tensor.
_STALLED = "Missing ranks:"
_STALLED_RANK = re.compile(r"(?:^|[\s>:])(?P<ranks>\d{1,6}): \[(?P<tensors>[\w./][^\]]{0,2000})")
_STALLED_TENSOR = re.compile(r"\[missing ranks: ?(?P<ranks>\d+(?:, ?\d+)*)\]")


_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in')
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python\d")


@dataclass(slots=True)
class Timeout:
    """One collective time-out as one rank printed it."""

    line: LogLine
    rank: int | None
    op: str | None = None
    seq: int | None = None
    numel: int | None = None
    pg: str | None = None
    timeout_s: float | None = None
    enqueued: int | None = None
    completed: int | None = None
    called_at: str | None = None


@dataclass(slots=True)
class Collectives:
    """What the time-outs say together.

    `absent` are ranks that the job has and that printed no time-out; `behind` have the smallest
    last enqueued work; `divergent` ran another operation or size than the majority.
    `silent` tells that those who are named sent no more heartbeats: their processes ended; `unmoved`
    that they live, and their monitors or their peers saw no more of them. `crossed` tells that each rank
    waits for what another one has not submitted. `nodes` are where those are
    who are named, `lost_node` is one of which nobody is left.
    """

    timeouts: list[Timeout] = field(default_factory=list)
    victims: set[int] = field(default_factory=set)
    absent: list[int] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)
    divergent: list[int] = field(default_factory=list)
    named: list[int] = field(default_factory=list)
    named_by: LogLine | None = None
    silent: bool = False
    unmoved: str | None = None
    awaited: dict[int, str] = field(default_factory=dict)
    awaited_by: LogLine | None = None
    crossed: bool = False
    elsewhere: bool = False
    nodes: tuple[str, ...] = ()
    lost_node: str | None = None
    first: Timeout | None = None
    started: float | None = None
    timeout_s: float | None = None

    @property
    def suspects(self) -> list[int]:
        """The smallest set of ranks that explains the time-outs, or an empty list."""
        for found in (self.named, self.divergent, self.behind, self.absent):
            if found:
                return found
        return []

    def describe(self) -> str:
        """Say in one clause why the suspects are suspects."""
        who = _ranks(self.suspects)
        are = "is" if len(self.suspects) == 1 else "are"
        if self.unmoved and (self.named or self.nodes):
            return f"{who if self.named else 'a process'} {self.unmoved}"
        if self.named and self.silent:
            return f"{who} stopped sending heartbeats to the coordinator"
        if self.named:
            return f"{who} {are} named by the other ranks as missing from the collective"
        if self.crossed:
            return f"{who} wait for each other: each submitted tensors that another one did not"
        if self.divergent and self.elsewhere:
            return f"{who} waited at another place of the program than the others"
        if self.divergent:
            return f"{who} ran another operation or size than the others"
        if self.behind:
            return f"{who} {are} behind the others by last enqueued work"
        if self.absent:
            return f"{who} printed no time-out while {len(self.victims)} others did"
        return "no rank stands out"


def analyse(case: Case, identities: Identities) -> Collectives | None:
    """Return what the collective time-outs of the case say, or None when there are none."""
    result = Collectives()
    status: dict[tuple[int | None, str | None], tuple[int, int]] = {}
    stuck: dict[tuple[int, str], int] = {}
    for observation in case.observations:
        line = observation.line
        text = line.text
        if "ast enqueued" in text:
            match = _STATUS.search(text)
            if match:
                pg = _PG.search(text)
                key = (_rank_of(line, text), pg["pg"] if pg else None)
                status.setdefault(key, (int(match["enqueued"]), int(match["completed"])))
                work = _STUCK.search(text)
                if work and key[0] is not None and key[1] is not None:
                    stuck.setdefault((key[0], key[1]), int(work["seq"]))
        timeout = _timeout(line, text)
        if timeout is not None:
            result.timeouts.append(timeout)
        _named(case, observation, result)
        _stalled(case, observation, result)
    _hold_to_a_minority(result, identities)
    _health_report(case, result)
    if not result.timeouts and result.named_by is None and not result.named:
        return None
    for timeout in result.timeouts:
        found = (
            status.get((timeout.rank, timeout.pg))
            or status.get((timeout.rank, None))
            or next(
                (v for (rank, _), v in status.items() if rank == timeout.rank and rank is not None),
                None,
            )
        )
        if found:
            timeout.enqueued, timeout.completed = found
    for timeout in result.timeouts:
        timeout.called_at = _call_site(case, timeout.line)
    result.victims = {t.rank for t in result.timeouts if t.rank is not None}
    _first(case, result)
    _behind(result, status)
    _divergent(result)
    _overtaken(result, status, stuck)
    _apart(result)
    _elsewhere_in_one_group(result)
    _call_sites(result)
    _absent(case, result, identities)
    _silent_host(result, identities)
    return result


def _rank_of(line: LogLine, text: str) -> int | None:
    if line.rank is not None:
        return line.rank
    if line.local_rank is not None:
        return None
    # Without any launcher label the group-local rank is all there is; good for one group only.
    match = _IN_GROUP.search(text)
    return int(match["rank"]) if match else None


def _timeout(line: LogLine, text: str) -> Timeout | None:
    if "milliseconds before timing out" in text or "Watchdog caught collective" in text:
        if text.lstrip().startswith("what():") or "terminated with exception" in text:
            return None
        match = _WORK.search(text)
        if match is None:
            return Timeout(line, _rank_of(line, text))
        pg = _PG.search(text)
        return Timeout(
            line,
            _rank_of(line, text),
            op=match["op"],
            seq=int(match["seq"]) if match["seq"] else None,
            numel=int(match["nin"]) if match["nin"] else None,
            pg=pg["pg"] if pg else None,
            timeout_s=int(match["timeout"]) / 1000.0,
        )
    match = _GLOO.search(text)
    if match:
        return Timeout(line, line.rank, timeout_s=int(match["timeout"]) / 1000.0)
    return None


def _named(case: Case, observation: Observation, result: Collectives) -> None:
    text = observation.line.text
    match = _MONITORED.search(text)
    if match:
        result.named = sorted({int(r) for r in match["ranks"].split(",")} | set(result.named))
        result.named_by = result.named_by or observation.line
    if _LAGGING.search(text):
        result.silent = result.silent or "stopped sending" in text
        view = case.view(observation.line)
        for number in view.between(observation.line.number, observation.line.number + 8):
            found = _NAMED_RANK.search(view.text(number) or "")
            if found:
                result.named = sorted(
                    {int(r) for r in (found["ranks"] or found["task"] or found["bare"]).split(",")}
                    | set(result.named)
                )
                result.named_by = result.named_by or observation.line


def _stalled(case: Case, observation: Observation, result: Collectives) -> None:
    """Read which ranks a monitor or Horovod waits for, where training did not go on behind it."""
    line, text = observation.line, observation.line.text
    found: list[tuple[LogLine, str]] = []
    awaited: dict[int, str] = {}
    unmoved = ""
    for pattern, words in (
        (_HEARTBEAT, "sent no heartbeat to its monitor"),
        (_UNHEARD, "stopped sending heartbeats to the coordinator"),
        (_NOTIFY, "did not send what another rank waits for"),
    ):
        if match := pattern.search(text):
            unmoved = words
            found.append((line, match["ranks"]))
            result.silent = result.silent or pattern is _UNHEARD
    if not found and "issing ranks:" in text:
        unmoved = "did not submit the tensors that the others wait for"
        if match := _STALLED_TENSOR.search(text):
            found.append((line, match["ranks"]))
        elif _STALLED in text:
            below = _stalled_below(case, line)
            found += [(told, ranks) for told, ranks, _ in below]
            awaited.update({int(ranks): tensors for _, ranks, tensors in below})
    if not found or survived(case, observation):
        return
    result.unmoved = unmoved
    result.named = sorted(
        {int(r) for _, ranks in found for r in ranks.split(",")} | {*result.named}
    )
    result.named_by = result.named_by or found[0][0]
    if awaited:
        result.awaited, result.awaited_by = awaited, found[0][0]


def _stalled_below(case: Case, line: LogLine) -> list[tuple[LogLine, str, str]]:
    view = case.view(line)
    found = []
    for number in view.between(line.number + 1, line.number + 64):
        match = _STALLED_RANK.search((view.text(number) or "")[:120])
        below = view.line(number) if match else None
        if match is None or below is None:
            break
        found.append((below, match["ranks"], match["tensors"]))
    return found


def _health_report(case: Case, result: Collectives) -> None:
    """Read whom NCCL's own report names, where no rank names anybody."""
    if result.named or not any("ras_report" in o.marks for o in case.observations):
        return
    from rerail.knowledge_base.causality.ras import finding

    found = finding(case)
    if found is None:
        return
    result.named, result.named_by = list(found.ranks), found.line
    result.unmoved, result.silent = found.words, found.dead
    result.nodes, result.lost_node = found.nodes, found.lost_node


def _hold_to_a_minority(result: Collectives, identities: Identities) -> None:
    """Most ranks cannot be the ones that the others wait for; each of them misses something else."""
    if not result.unmoved or len(result.named) <= 1:
        return
    known = (
        identities.ranks_seen
        | set(result.named)
        | set(range(min(identities.world_size or 0, 65_536)))
    )
    if len(result.named) * 2 > len(known):
        result.named, result.named_by, result.unmoved = [], None, None
        if set(result.awaited) == known and len(set(result.awaited.values())) > 1:
            # Nobody has submitted everything: no rank is late, they submit different things.
            result.crossed, result.divergent = True, sorted(known)
            result.named_by = result.awaited_by


def _first(case: Case, result: Collectives) -> None:
    if not result.timeouts:
        return

    def key(timeout: Timeout) -> tuple[float, int]:
        time = case.near_time(timeout.line)
        return (time if time is not None else float("inf"), timeout.line.number)

    result.first = min(result.timeouts, key=key)
    result.timeout_s = result.first.timeout_s
    when = case.near_time(result.first.line)
    if when is not None and result.timeout_s is not None:
        result.started = when - result.timeout_s


def _behind(
    result: Collectives, status: dict[tuple[int | None, str | None], tuple[int, int]]
) -> None:
    by_group: dict[str | None, dict[int, int]] = defaultdict(dict)
    for (rank, pg), (enqueued, _) in status.items():
        if rank is not None:
            by_group[pg][rank] = enqueued
    for ranks in by_group.values():
        if len(ranks) < 2:
            continue
        low, high = min(ranks.values()), max(ranks.values())
        behind = sorted(r for r, e in ranks.items() if e == low)
        if low < high and len(behind) <= max(1, len(ranks) // 3):
            result.behind = sorted(set(result.behind) | set(behind))


def _divergent(result: Collectives) -> None:
    by_seq: dict[tuple[str | None, int], list[Timeout]] = defaultdict(list)
    for timeout in result.timeouts:
        if timeout.seq is not None and timeout.rank is not None:
            by_seq[(timeout.pg, timeout.seq)].append(timeout)
    for group in by_seq.values():
        kinds = Counter((t.op, t.numel) for t in group)
        if len(kinds) < 2 or len(group) < 2:
            continue
        common, count = kinds.most_common(1)[0]
        odd = sorted({t.rank for t in group if (t.op, t.numel) != common and t.rank is not None})
        if len(odd) <= count:
            # With two ranks neither is the majority: both are shown.
            everyone = sorted({t.rank for t in group if t.rank is not None})
            result.divergent = odd if count > len(odd) else everyone


def _overtaken(
    result: Collectives,
    status: dict[tuple[int | None, str | None], tuple[int, int]],
    stuck: dict[tuple[int, str], int],
) -> None:
    """A rank that sits in a collective which others are past by two: they did not run the same ones."""
    if result.divergent:
        return
    ops = {(t.rank, t.seq): t.op for t in result.timeouts}
    groups = {pg for _, pg in stuck}
    for group in sorted(groups):
        seats = {rank: seq for (rank, pg), seq in stuck.items() if pg == group}
        furthest = max(done for (rank, pg), (_, done) in status.items() if pg == group)
        odd = sorted(
            r for r, seq in seats.items() if furthest > seq and ops.get((r, seq)) in _NEEDS_ALL
        )
        others = sorted(set(seats) - set(odd))
        if odd and others and len(odd) <= len(others):
            result.divergent = odd if len(odd) < len(others) else sorted(seats)


def _apart(result: Collectives) -> None:
    """Two ranks that each waited to the end, two collectives apart or more, did not run the same ones.

    The one that is further on has completed a collective that needs the other one.
    """
    told = [t for t in result.timeouts if t.seq is not None and t.op in _NEEDS_ALL]
    # An exception quotes the time-out that raised it.
    seats = {(t.rank, t.seq or 0, t.pg) for t in told if t.rank is not None}
    ranks = {rank for rank, _, _ in seats}
    if result.divergent or len(told) != len(result.timeouts) or len(seats) != 2 or len(ranks) != 2:
        return
    low, high = sorted(seq for _, seq, _ in seats)
    if len({group for _, _, group in seats}) == 1 and high - low >= _APART:
        result.divergent = sorted(ranks)


def _elsewhere_in_one_group(result: Collectives) -> None:
    """Without status lines: a minority that waits in another operation than the others, further on by two.

    Releases that name no group number the ranks of each group from 0; where no number stands twice and
    none is missing, all that is told is of one group, and its sequence numbers can be compared.
    """
    told = [t for t in result.timeouts if t.seq is not None and t.op is not None]
    if result.divergent or result.behind or any(t.pg is not None for t in result.timeouts):
        return
    matches = [_IN_GROUP.search(t.line.text) for t in told]
    seats = [int(match["rank"]) for match in matches if match]
    if len(seats) < 3 or sorted(seats) != list(range(len(told))):
        return
    common, count = Counter((t.seq, t.op, t.numel) for t in told).most_common(1)[0]
    ahead = [
        t
        for t in told
        if t.seq is not None
        and common[0] is not None
        and t.seq > common[0] + 1
        and t.op != common[1]
    ]
    ranks = sorted({t.rank for t in ahead if t.rank is not None})
    if common[1] in _NEEDS_ALL and len(ahead) + count == len(told) and 0 < len(ranks) < count:
        result.divergent = ranks


def _call_site(case: Case, line: LogLine) -> str | None:
    """Return the program's own source line that sat in the collective, from the traceback above."""
    if not looks_like_exception(line.message):
        return None
    site = None
    for above in traceback_above(line, case.view(line).line).lines:
        match = _FRAME.search(above.message)
        if match and not _LIBRARY.search(match["file"]):
            site = f"{match['file']}:{match['line']}"
    return site


def _call_sites(result: Collectives) -> None:
    """Ranks that gave up at different places of the program wait for different things."""
    sites: dict[str, set[int]] = defaultdict(set)
    for timeout in result.timeouts:
        if timeout.called_at and timeout.rank is not None:
            sites[timeout.called_at].add(timeout.rank)
    if len(sites) < 2 or result.divergent:
        return
    common = max(sorted(sites), key=lambda site: len(sites[site]))
    odd = sorted(
        set().union(*(ranks for site, ranks in sites.items() if site != common)) - sites[common]
    )
    if odd and len(odd) < len(sites[common]):
        result.divergent = odd
        result.elsewhere = True


def _absent(case: Case, result: Collectives, identities: Identities) -> None:
    """Name those who printed no time-out: few of many, or all of a host of which nothing more was heard."""
    if not result.victims or result.behind or result.divergent:
        return
    known = set(identities.ranks_seen)
    if identities.world_size is not None and identities.world_size <= 65_536:
        # A world size below the highest rank belongs to a sub-group, not to the job.
        if identities.world_size > max(known | {0}):
            known |= set(range(identities.world_size))
    elif max(result.victims, default=0) >= 1 and len(result.victims) >= 3:
        known |= set(range(max(result.victims) + 1))
    # Who lost a peer while it waited is a victim as well, unless nobody else is left.
    torn = {o.line.rank for o in case.with_role(Role.CASCADE)}
    absent = sorted(known - result.victims - torn) or sorted(known - result.victims)
    hosts = {identities.node_of_rank.get(rank) for rank in absent}
    host = hosts.pop() if len(hosts) == 1 else None
    whole = host is not None and set(identities.ranks_on(host)) == set(absent) and len(absent) > 1
    lost = any(same_host(node, host) for node in identities.lost_nodes)
    if whole and host is not None and (lost or not _heard_of(case, host, set(absent))):
        result.absent, result.lost_node, result.nodes = absent, host, (host,)
    elif absent and len(absent) <= max(1, len(result.victims) // 2):
        result.absent = absent


def _silent_host(result: Collectives, identities: Identities) -> None:
    """Where all ranks of one host, and no other, sent no more heartbeats, the host is gone."""
    hosts = {identities.node_of_rank.get(rank) for rank in result.named}
    host = hosts.pop() if len(hosts) == 1 else None
    if not result.silent or host is None or len(result.named) < 2 or len(identities.nodes_seen) < 2:
        return
    if set(identities.ranks_on(host)) == set(result.named):
        result.lost_node, result.nodes = host, (host,)


def _heard_of(case: Case, host: str, ranks: set[int]) -> bool:
    """Tell whether a host's processes or its launcher reported an end or an error."""
    return any(
        o.line.rank in ranks
        or same_host(o.line.node, host)
        or same_host(o.fields.get("node"), host)
        for o in case.observations
        if o.role is not Role.BENIGN
    )


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:8]))}{' ...' if len(ranks) > 8 else ''}"
