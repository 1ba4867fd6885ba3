"""Which rank had a fault that its line does not sign: who ended as one that had it, or before all others."""

from __future__ import annotations

from rerail.domain.evidence import Blames, Role, Tier
from rerail.knowledge_base.causality.exits import ExitFact, ended_first
from rerail.knowledge_base.phrases import says
from rerail.knowledge_base.placement.names import short
from rerail.knowledge_base.placement.place import Answer, Asked
from rerail.knowledge_base.placement.raised_from import raised_from_it
from rerail.knowledge_base.taxonomy import has


def same_place(a: str | None, b: str | None) -> bool:
    """Tell whether two hosts may be one: where one is not known, they may."""
    return a is None or b is None or short(a) == short(b)


def own_exit(asked: Asked) -> Answer[int] | None:
    """The only rank that ended by a code of its own, where the others ended by what a lost peer raises."""
    node = asked.line.node
    own = {f.rank for f in asked.exits if f.how == "own" and same_place(f.node, node)}
    if asked.event.tier in (Tier.HARDWARE, Tier.HOST) or len(own) != 1 or None in own:
        return None
    return Answer(own.pop(), "this rank alone ended with a code of its own")


def raised_exit(asked: Asked) -> Answer[int] | None:
    """The only worker that ended as a Python process does that raises; who waits in vain is aborted or terminated."""
    if asked.line.rank is not None or asked.event.blames is Blames.PEER:
        return None
    workers = [f for f in asked.exits if f.rank is not None and f.of_one_process]
    raised = {f.rank for f in workers if f.how == "plain"}
    others = [o for o in asked.case.with_role(Role.CASCADE) if o.lines]
    alike = [
        c
        for c in asked.selection.candidates
        if c.lines and c.leaf == asked.event.leaf and not raised_from_it(asked, c.line)
    ]
    if len(raised) != 1 or others or len(alike) > 1:
        return None
    if not (asked.event.lines or alike or says("stops-itself", asked.line.message)):
        return None
    line, node = next((f.line, f.node) for f in workers if f.rank in raised)
    if not same_place(node, asked.line.node):
        return None
    return Answer(raised.pop(), "this process alone ended as one that raised", line)


def first_of_all_hosts(asked: Asked) -> Answer[int] | None:
    """The process whose end torchrun's tables date before that of any other host, for what one process raised."""
    of_one = bool(asked.event.lines) or has(asked.event.leaf, "of_a_gpu")
    if not of_one or asked.line.rank is not None or asked.event.blames is Blames.PEER:
        return None
    first = ended_first(asked.exits)
    if first is None or not same_place(first.node, asked.line.node):
        return None
    if not asked.event.lines and not _may_have_had(asked, first):
        return None
    return Answer(first.rank, "this process ended before those of all other hosts", first.line)


def launcher_saw(asked: Asked) -> Answer[int] | None:
    """The process that its launcher saw end first, for what one process had and no line of its own signs."""
    event = asked.event
    if asked.line.rank is not None or event.blames is not Blames.SPEAKER:
        return None
    if not event.lines and not has(event.leaf, "of_one_process"):
        return None
    told = [o for o in asked.case.observations if "first_to_end" in o.marks]
    ranks = {o.fields["rank"] for o in told if o.fields.get("rank", "").isdigit()}
    if len(ranks) != 1:
        return None
    rank = int(ranks.pop())
    if not same_place(asked.identities.node_of_rank.get(rank), asked.line.node):
        return None
    return Answer(rank, "its launcher saw this process end first", told[0].line)


def _may_have_had(asked: Asked, ended: ExitFact) -> bool:
    """Tell whether a process may have ended of what a line says that nobody signed: it stands above, and is not later."""
    line = asked.line
    below = line.file == ended.line.file and line.number < ended.line.number
    late = line.time is not None and ended.ended is not None and line.time > ended.ended + 1.0
    return below and not late and ended.how not in ("killed", "ordered")
