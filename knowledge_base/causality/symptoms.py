"""What to conclude when nothing but lost peers, orders and exits is there."""

from __future__ import annotations

from rerail.domain.diagnosis import Status
from rerail.domain.evidence import LogLine, Role
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.catalogues import exit_code
from rerail.knowledge_base.causality.conclusion import Conclusion
from rerail.knowledge_base.causality.exits import ExitFact
from rerail.knowledge_base.causality.progress import survived
from rerail.knowledge_base.phrases import phrase, says
from rerail.knowledge_base.placement.identities import Identities


def earlier(case: Case, a: LogLine, b: LogLine) -> bool:
    """Tell whether a line was not written after another one, as far as file and clock tell."""
    if a.file == b.file:
        return a.number < b.number
    time_a, time_b = case.near_time(a), case.near_time(b)
    return time_a is None or time_b is None or time_a <= time_b


def from_ending(case: Case) -> Conclusion | None:
    """Conclude from a launcher or platform that says that the job failed, without any code."""
    told = [o for o in case.observations if "reports_failure" in o.marks]
    told = [
        o for o in told if not says("attempt-restarts", o.line.message) and not survived(case, o)
    ]
    if not told:
        return None
    why = "the job is reported as failed, and no line says why"
    return Conclusion("process_exit_unexplained", told[0].line, Status.HYPOTHESIS, why)


def from_exit(case: Case, fact: ExitFact) -> Conclusion | None:
    """Conclude from the first odd exit alone, as the catalogue of exit codes reads it."""
    code = fact.code
    if fact.how == "ordered":
        why = "stopped by a signal from outside the job"
        return Conclusion("job_cancelled_or_hangup", fact.line, Status.SUPPORTED, why)
    known = exit_code(code)
    leaf, action, why = "process_exit_unexplained", None, f"exit code {code} and no trace of why"
    if not fact.told:
        why = "it is told that the process ended, and no trace of why"
    elif known is not None and known.signal:
        leaf = known.leaf or "process_segfault"
        why = f"{known.signal}, and the process printed no reason. {known.meaning}"
    elif known is not None and known.leaf and code not in (1, 2):
        # 1 and 2 are what any program returns; only a message would say more.
        leaf, action, why = known.leaf, known.action, f"exit code {code}: {known.meaning}"
    return Conclusion(
        leaf,
        fact.line,
        Status.SUPPORTED,
        why,
        (fact.rank,) if fact.rank is not None else (),
        (fact.node,) if fact.node else (),
        action,
    )


def from_quiet_rank(case: Case, identities: Identities, exits: list[ExitFact]) -> Conclusion | None:
    """Conclude from the one rank that neither failed nor complained while all others lost a peer.

    Its launcher reports no exit code for it, so it ended by itself with code 0: it left early.
    """
    lost = {o.line.rank for o in case.with_role(Role.CASCADE) if o.line.rank is not None}
    failed = {f.rank for f in exits if f.rank is not None}
    if (
        len(lost) < 2
        or not failed
        or any(f.how not in ("plain", "ordered", "aborted") for f in exits)
    ):
        return None
    known = set(identities.ranks_seen)
    if identities.world_size is not None and identities.world_size <= 4096:
        known |= set(range(identities.world_size))
    quiet = sorted(known - lost - failed)
    if len(quiet) != 1 or case.unread_of(quiet):
        return None
    last = _last_line(case, quiet[0])
    line = last or next(o.line for o in case.with_role(Role.CASCADE))
    return Conclusion(
        "rank_divergence", line, Status.SUPPORTED,
        f"rank {quiet[0]} ended without an error while the other ranks still needed it", (quiet[0],),
    )  # fmt: skip


def _last_line(case: Case, rank: int) -> LogLine | None:
    last: LogLine | None = None
    for view in case.views:
        for number in reversed(view.numbers[-2000:]):
            line = view.line(number)
            if line is not None and line.rank == rank and line.message.strip():
                if last is None or earlier(case, last, line):
                    last = line
                break
    return last


def from_lost_peer(case: Case, identities: Identities) -> Conclusion | None:
    """Conclude from connections that broke: the peer that all others name is gone."""
    peers: dict[str, LogLine] = {}
    first: LogLine | None = None
    alive_by_name: set[str] = set()  # hosts of processes that complain themselves
    for observation in case.observations:
        if observation.role is not Role.CASCADE or survived(case, observation):
            continue
        first = first or observation.line
        match = phrase("peer-that-left").search(observation.line.text)
        told = observation.fields.get("peer") or (match["peer"] if match else None) or ""
        peer = told.split("<")[0].split(":")[0].strip("[]")
        if says("socket-within-a-host", observation.line.text):
            alive_by_name.add(peer)
        elif peer:
            peers.setdefault(peer, observation.line)
    named = {
        p: line for p, line in peers.items() if p and p != "localhost" and not p.startswith("127.")
    }
    if len(named) == 1 and first is not None:
        peer, line = next(iter(named.items()))
        # Each host says with which address NCCL starts on it; its peers know it by nothing else.
        node = identities.host(peer)
        alive = peer in alive_by_name or any(
            o.line.node == node for o in case.with_role(Role.CASCADE) if o.line is not line
        )
        if line.node not in (peer, node) and not alive:
            who = peer if node == peer else f"{node} ({peer})"
            left = "error" if node in identities.nodes_seen else "line"
            return Conclusion(
                "node_crash", line, Status.HYPOTHESIS,
                f"all that is known is that {who} closed its connections; it left no {left} of its own",
                (), (node,), "restart_and_exclude_suspect_node",
            )  # fmt: skip
    return None
