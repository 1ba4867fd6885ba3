"""What went wrong behind the end of a run that had completed."""

from __future__ import annotations

from collections.abc import Sequence

from rerail.domain.evidence import LogLine, Observation, Tier
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.exits import ExitFact
from rerail.knowledge_base.causality.overruled import later
from rerail.knowledge_base.causality.select import Selection
from rerail.log_parsers.host_names import is_local


def bad(
    case: Case, selection: Selection, exits: Sequence[ExitFact], success: Observation
) -> list[LogLine]:
    """Return lines behind the success marker that tell of an abort, a crash or a killed hang."""
    late = _badly_ended(case, exits, success)
    ended = {fact.rank for fact in late} - {None}
    lines = [
        o.line
        for o in selection.after_success
        if o.tier not in (Tier.GENERIC,)
        and not o.fields.get("thread")
        and (case.known_before(success, o) or o.line.rank in ended)
    ]
    lines += [fact.line for fact in late]
    abort = [o.line for o in selection.after_success if o.line in lines]
    return abort or lines


def of_one_process(
    case: Case, exits: Sequence[ExitFact], success: Observation
) -> tuple[list[int], list[str]]:
    """Return rank and node of the only process that ended badly behind the success marker, as far as they are told."""
    late = _badly_ended(case, exits, success)
    ranks = {f.rank for f in late if f.rank is not None}
    if any(f.how == "killed" or (f.rank is None and f.local_rank is None) for f in late):
        return [], []  # somebody was ended from outside, or somebody else ended so as well
    nodes = {f.node for f in late if f.node is not None and not is_local(f.node)}
    return (list(ranks), sorted(nodes)) if len(ranks) == 1 else ([], [])


def _badly_ended(case: Case, exits: Sequence[ExitFact], success: Observation) -> list[ExitFact]:
    return [
        fact
        for fact in exits
        if later(case, fact.line, success.line) and fact.how not in ("ordered", "plain")
    ]
