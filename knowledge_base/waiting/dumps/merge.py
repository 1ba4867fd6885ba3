"""Brings the verdict of the NCCL flight recorder into the verdict of the logs.

A dump knows who did not come to a collective, a log knows why. So a cause found in the logs stays,
and takes its ranks from the dumps where it had none; without one the dumps give the verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rerail.domain.diagnosis import Outcome, Status
from rerail.domain.evidence import LogLine, Stream
from rerail.knowledge_base.taxonomy import NO_FAILURE, Kind, leaves

if TYPE_CHECKING:
    from rerail.knowledge_base.causality.verdict import Verdict
    from rerail.knowledge_base.waiting.dumps.verdict import DumpVerdict


def apply(verdict: Verdict, dumps: DumpVerdict) -> None:
    """Merge what the dumps say into a log verdict, in place."""
    verdict.dumps = dumps
    if dumps.world_size and (verdict.identities.world_size or 0) < dumps.world_size:
        verdict.identities.world_size = dumps.world_size
    if dumps.kind == "healthy":
        if (
            verdict.leaf is None
            and verdict.outcome is Outcome.INCONCLUSIVE
            and verdict.last is None
        ):
            verdict.outcome, verdict.status, verdict.leaf = (
                Outcome.NO_FAILURE,
                Status.SUPPORTED,
                NO_FAILURE,
            )
            verdict.why, verdict.action = dumps.reason, "none"
        return
    culprits = list(dumps.culprit_ranks)
    if not _may_say_more(verdict.leaf):
        if culprits and not verdict.ranks:
            verdict.ranks = culprits
        return
    if dumps.leaf is None:
        if verdict.leaf is None:
            verdict.why = dumps.reason
            verdict.line = verdict.line or _line(dumps)
        return
    verdict.outcome, verdict.leaf = Outcome.FAILURE, dumps.leaf
    verdict.status = Status(dumps.status)
    verdict.why = dumps.reason
    verdict.action = None
    if culprits:
        verdict.ranks = culprits
        nodes = {verdict.identities.node_of_rank.get(rank) for rank in culprits} - {None}
        verdict.nodes = sorted(node for node in nodes if node)
        verdict.action = "run_node_health_tests" if dumps.kind == "missing_rank" else None
    if verdict.line is None:
        verdict.line = _line(dumps)


def _may_say_more(leaf: str | None) -> bool:
    """Tell whether the logs know nothing better than that ranks waited, or nothing at all."""
    return leaf in (None, NO_FAILURE) or leaves()[leaf].kind is Kind.SYMPTOM


def _line(dumps: DumpVerdict) -> LogLine | None:
    """A dump has no lines; its first fact stands for line 1."""
    if not dumps.evidence:
        return None
    fact = dumps.evidence[0]
    return LogLine(fact.file, 1, fact.shows, fact.shows, rank=fact.rank, stream=Stream.TOOL)
