"""Whom NCCL's own health report names as missing, dead or behind.

Different counts of operations are what any moment of a healthy job shows; they mean something where
two reports show the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rerail.domain.evidence import LogLine, Observation
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.progress import step_rows, survived
from rerail.knowledge_base.causality.repeated_logs import without_copies
from rerail.knowledge_base.waiting.read import Told
from rerail.log_parsers.ras_reports import Lag, Report, read_reports

_STEPS = 2
_FEW = 4  # a quarter of the ranks at most are behind the others


def told_by_report(case: Case, gave_up: Collection[int] = ()) -> Told | None:
    """Return whom the reports of the case name, or None where there are none or training went on.

    Args:
        case: the evidence.
        gave_up: ranks whose own watchdog gave up waiting: their job does not move any more, so that one look is enough.
    """
    seen: list[Observation] = [o for o in case.observations if "ras_report" in o.marks]
    if not seen or survived(case, seen[-1]):
        return None
    views = without_copies({o.line.file: case.view(o.line) for o in seen}.values())
    reports: list[Report] = []
    for view in views:
        hits = [o.line.number for o in seen if o.line.file == view.name]
        reports += read_reports(view, min(hits), max(hits))
    for report in reversed(reports):
        if report.gone or report.ranks:
            return _gone(report)
    return _same_twice(case, reports) or _of_a_job_that_stands(case, gave_up)


def _gone(report: Report) -> Told | None:
    if report.line is None:
        return None
    nodes = tuple(dict.fromkeys(node for node, _ in report.gone))
    words = (
        "is dead to NCCL's RAS network: no thread of it answers any more"
        if report.dead
        else "did not answer NCCL's RAS network"
    )
    lost = len(nodes) == 1 and report.per_node not in (None, 1) and report.dead
    whole = lost and len(report.gone) == report.per_node
    return Told(
        tuple(report.ranks),
        report.line,
        words,
        gone=report.dead,
        nodes=nodes,
        lost_node=nodes[0] if whole else None,
    )


def _same_twice(case: Case, reports: list[Report]) -> Told | None:
    """Two reports with the same counts: the ranks that launched less are where the others wait."""
    before: dict[str, Lag] = {}
    still: list[Lag] = []
    for report in reports:
        if not report.lags:
            continue
        again = [(before[name], lag) for name, lag in report.lags.items() if name in before]
        # Where one communicator moves, or the job trains, the others do not wait for ever.
        moved = any(a.counts != b.counts or _trained(case, a.line, b.line) for a, b in again)
        still = [] if moved else [lag for _, lag in again if lag.behind]
        before |= report.lags
    found = next((lag for lag in still if lag.whole_job), still[0] if still else None)
    if found is None:
        return None
    top = max(found.counts)
    behind = {rank: node for rank, (up_to, node) in found.behind.items() if up_to < top}
    if not behind or len(behind) > sum(found.counts.values()) // 2:
        return None
    ranks = tuple(sorted(behind)) if found.whole_job else ()
    return Told(
        ranks,
        found.line,
        "launched fewer operations than the others, the same in two reports of NCCL's RAS",
        nodes=tuple(dict.fromkeys(behind[rank] for rank in sorted(behind))),
    )


def _of_a_job_that_stands(case: Case, gave_up: Collection[int]) -> Told | None:
    found = one_look(case) if gave_up else None
    if found is None or not found.ranks or set(found.ranks) & set(gave_up):
        return None
    words = "launched fewer operations than the others, which gave up waiting, by NCCL's RAS"
    return replace(found, words=words)


def one_look(case: Case) -> Told | None:
    """Return whom a single report shows behind all others, with nothing of the job behind the report.

    A job that moves shows the same at any moment, so that this is a question and no answer.
    """
    seen: list[Observation] = [o for o in case.observations if "ras_mismatch" in o.marks]
    if not seen or survived(case, seen[-1]):
        return None
    view = case.view(seen[-1].line)
    reports = [r for r in read_reports(view, seen[0].line.number, seen[-1].line.number) if r.lags]
    if len(reports) != 1 or any(row.line > seen[-1].line.number for row in step_rows(view)):
        return None
    lag = next(iter(reports[0].lags.values()))
    top = max(lag.counts, default=0)
    late = {rank: node for rank, (up_to, node) in lag.behind.items() if up_to < top}
    if not late or len(late) * _FEW > sum(lag.counts.values()):
        return None
    ranks = tuple(sorted(late)) if lag.whole_job else ()
    nodes = tuple(dict.fromkeys(late[rank] for rank in sorted(late)))
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(late)} ranks"
    words = (
        f"one look at NCCL's health report shows {who} behind the others; "
        "a job that moves shows that too, and a second look would tell"
    )
    return Told(ranks, lag.named_by or lag.line, words, nodes=nodes)


def _trained(case: Case, first: LogLine, last: LogLine) -> bool:
    """Tell whether the job printed steps between two lines of one file."""
    if first.file != last.file:
        return False
    rows = step_rows(case.view(first))
    return len({r.step for r in rows if first.number < r.line < last.number}) >= _STEPS
