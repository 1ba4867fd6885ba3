"""What NCCL's own health report says: which process is gone, and which ranks launched less.

`ncclras` asks the RAS threads of a running job (NCCL 2.24 and later, User Guide, RAS). A process that
they cannot reach is missing at first and dead after a minute. Different counts of operations are
what any moment of a healthy job shows; they mean something where two reports show the same.
Ranks in a report are those of its communicator; they are the job's where it spans the job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rerail.domain.evidence import LogLine, Observation
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.copies import without_copies
from rerail.knowledge_base.causality.progress import step_rows, survived
from rerail.log_parsers.view import LogView

_ABOVE, _BELOW = 1_000, 20_000  # lines of a report around what the rules find of it
_STEPS = 2
_FEW = 4  # a quarter of the ranks at most are behind the others

_BEGINS = re.compile(r"^\s*(?:NCCL version \d|Job summary\s*$)")
_TOTALS = re.compile(r"^\s*[\d-]+ +(?P<per_node>[\d-]+) +[\d-]+ +\d+ +(?P<gpus>\d+)\s*$")
_GROUP = re.compile(r"^\s*(?P<group>\d+) +\d+ +[\d-]+ +[\d-]+ +(?P<ranks>\d+) +\d+ +[A-Z]")
_COMM = re.compile(r"#(?P<group>\d+)-\d+ \((?P<hash>[0-9a-f]{8,16})\) (?P<kind>[A-Z]+)")
_HEAD = re.compile(r"^\s*(?P<kind>DEAD|INCOMPLETE|TIMEOUT)\s*$")
_PROCESS = re.compile(r"Process \d+ on node (?P<node>[\w.:-]+) managing GPUs? (?P<gpu>[\d,-]+)")
_MISSING = re.compile(r"The missing ranks?: (?P<ranks>\d+(?:,\d+)*)")
_COUNT = re.compile(
    r"(?P<many>\d+) ranks (?:have )?(?:(?:launched )?up to operation (?P<up_to>\d+)|not launched any operations)"
)
_RANK = re.compile(
    r"Rank (?P<rank>\d+)(?P<count> has (?:launched up to operation (?P<up_to>\d+)|not launched any operations))?"
    r" -- GPU \S+ managed by process \d+ on node (?P<node>[\w.:-]+)"
)


@dataclass(slots=True)
class Lag:
    """The ranks of one communicator by the number of operations that each has launched."""

    line: LogLine
    whole_job: bool
    counts: dict[int, int] = field(default_factory=dict)
    behind: dict[int, tuple[int, str]] = field(default_factory=dict)
    named_by: LogLine | None = None


@dataclass(slots=True)
class Report:
    """One answer of `ncclras`; `gone` are (node, GPU) of the processes that it did not reach."""

    dead: bool = False
    line: LogLine | None = None
    per_node: int | None = None
    gpus: int | None = None
    sizes: dict[int, int] = field(default_factory=dict)
    gone: list[tuple[str, str]] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    lags: dict[str, Lag] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """Whom the last report names, and in which words; `lost_node` if it is all of a node's processes."""

    line: LogLine
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    words: str
    dead: bool = False
    lost_node: str | None = None


def finding(case: Case) -> Finding | None:
    """Return whom the reports of the case name, or None where there are none or training went on."""
    seen: list[Observation] = [o for o in case.observations if "ras_report" in o.marks]
    if not seen or survived(case, seen[-1]):
        return None
    views = without_copies({o.line.file: case.view(o.line) for o in seen}.values())
    reports: list[Report] = []
    for view in views:
        hits = [o.line.number for o in seen if o.line.file == view.name]
        reports += _reports(view, min(hits), max(hits))
    for report in reversed(reports):
        if report.gone or report.ranks:
            return _gone(report)
    return _same_twice(case, reports)


def _gone(report: Report) -> Finding | None:
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
    return Finding(
        report.line,
        tuple(report.ranks),
        nodes,
        words,
        dead=report.dead,
        lost_node=nodes[0] if whole else None,
    )


def _same_twice(case: Case, reports: list[Report]) -> Finding | None:
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
    return Finding(
        found.line,
        ranks,
        tuple(dict.fromkeys(behind[rank] for rank in sorted(behind))),
        "launched fewer operations than the others, the same in two reports of NCCL's RAS",
    )


def one_look(case: Case) -> Finding | None:
    """Return whom a single report shows behind all others, with nothing of the job behind the report.

    A job that moves shows the same at any moment, so that this is a question and no answer.
    """
    seen: list[Observation] = [o for o in case.observations if "ras_mismatch" in o.marks]
    if not seen or survived(case, seen[-1]):
        return None
    view = case.view(seen[-1].line)
    reports = [r for r in _reports(view, seen[0].line.number, seen[-1].line.number) if r.lags]
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
    return Finding(lag.named_by or lag.line, ranks, nodes, words)


def _trained(case: Case, first: LogLine, last: LogLine) -> bool:
    """Tell whether the job printed steps between two lines of one file."""
    if first.file != last.file:
        return False
    rows = step_rows(case.view(first))
    return len({r.step for r in rows if first.number < r.line < last.number}) >= _STEPS


def _reports(view: LogView, first: int, last: int) -> list[Report]:
    """Read the reports of one file, in order, from around a first hit to behind a last one."""
    reports = [Report()]
    mode, comm, up_to = "", "", 0
    for number in view.between(first - _ABOVE, last + _BELOW):
        line = view.line(number)
        text = line.message if line is not None else ""
        report = reports[-1]
        if _BEGINS.match(text):
            if report != Report():
                reports.append(Report())
            continue
        if totals := _TOTALS.match(text):
            report.gpus = int(totals["gpus"])
            report.per_node = int(totals["per_node"]) if totals["per_node"].isdigit() else None
        elif group := _GROUP.match(text):
            report.sizes[int(group["group"])] = int(group["ranks"])
        elif head := _HEAD.match(text):
            mode, comm = head["kind"], ""
        elif named := _COMM.search(text):
            mode, comm, size = named["kind"], named["hash"], report.sizes.get(int(named["group"]))
            whole = size is not None and size == report.gpus
            if line is not None and mode == "MISMATCH":
                report.lags[comm] = Lag(line, whole)
            elif mode == "INCOMPLETE" and not whole:
                mode = "PART"
        elif mode == "MISMATCH" and comm in report.lags:
            up_to = _count(report.lags[comm], line, text, up_to)
        elif mode in ("DEAD", "INCOMPLETE"):
            _unreached(report, line, text, dead=mode == "DEAD", in_job=bool(comm))
    return reports


def _count(lag: Lag, line: LogLine | None, text: str, up_to: int) -> int:
    said = {int(many["up_to"] or 0): int(many["many"]) for many in _COUNT.finditer(text)}
    for reached, many in said.items():
        lag.counts[reached] = lag.counts.get(reached, 0) + many
        up_to = reached
    # Where one line gives all counts, those that it lists by name are the fewest.
    if len(said) > 1:
        up_to = min(said, key=lambda reached: said[reached])
    if one := _RANK.search(text):
        lag.named_by = lag.named_by or line
        own = int(one["up_to"] or 0) if one["count"] else up_to
        if one["count"]:
            lag.counts[own] = lag.counts.get(own, 0) + 1
        lag.behind[int(one["rank"])] = own, one["node"]
    return up_to


def _unreached(
    report: Report, line: LogLine | None, text: str, *, dead: bool, in_job: bool
) -> None:
    if process := _PROCESS.search(text):
        place = process["node"], process["gpu"]
        report.gone += [place] if place not in report.gone else []
    elif missing := _MISSING.search(text):
        report.ranks = sorted({*report.ranks, *map(int, missing["ranks"].split(","))})
    elif in_job and (one := _RANK.search(text)) and int(one["rank"]) < (report.gpus or 0):
        # NCCL 2.27 names each rank with its process; a freed communicator gave numbers beyond the job (issue 1762).
        report.ranks = sorted({*report.ranks, int(one["rank"])})
    else:
        return
    report.dead |= dead
    report.line = report.line or line
