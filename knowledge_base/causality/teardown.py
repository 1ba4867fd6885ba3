"""What went wrong behind the end of a run that had completed."""

from __future__ import annotations

from collections.abc import Sequence

from rerail.domain.evidence import LogLine, Observation, Tier
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.exits import ExitFact
from rerail.knowledge_base.causality.overruled import later
from rerail.knowledge_base.causality.select import Selection
from rerail.knowledge_base.phrases import says
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


def cut_a_save(case: Case, exits: Sequence[ExitFact], success: Observation) -> bool:
    """Tell whether a process was killed while it wrote the model behind the end of its training: that was no teardown."""
    view = case.view(success.line)
    for fact in _badly_ended(case, exits, success):
        if fact.how != "killed" or fact.line.file != view.name:
            continue
        between = view.between(success.line.number + 1, fact.line.number - 1)
        texts = [view.text(number) or "" for number in between]
        begun = max(
            (at for at, text in enumerate(texts) if says("begins-to-save", text)), default=None
        )
        if begun is not None and not any(says("has-saved", text) for text in texts[begun + 1 :]):
            return True
    return False


def _badly_ended(case: Case, exits: Sequence[ExitFact], success: Observation) -> list[ExitFact]:
    return [
        fact
        for fact in exits
        if later(case, fact.line, success.line) and fact.how not in ("ordered", "plain")
    ]
