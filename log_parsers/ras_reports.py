"""Reads the text of NCCL's own health report: which process is gone, and which ranks launched less.

`ncclras` asks the RAS threads of a running job (NCCL 2.24 and later, User Guide, RAS). A process that
they cannot reach is missing at first and dead after a minute. Different counts of operations are
what any moment of a healthy job shows; they mean something where two reports show the same.
Ranks in a report are those of its communicator; they are the job's where it spans the job.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rerail.domain.evidence import LogLine
from rerail.lazy_patterns import lazy
from rerail.log_parsers.view import LogView

_ABOVE, _BELOW = 1_000, 20_000  # lines of a report around what the rules find of it

_BEGINS = lazy(r"^\s*(?:NCCL version \d|Job summary\s*$)")
_TOTALS = lazy(r"^\s*[\d-]+ +(?P<per_node>[\d-]+) +[\d-]+ +\d+ +(?P<gpus>\d+)\s*$")
_GROUP = lazy(r"^\s*(?P<group>\d+) +\d+ +[\d-]+ +[\d-]+ +(?P<ranks>\d+) +\d+ +[A-Z]")
_COMM = lazy(r"#(?P<group>\d+)-\d+ \((?P<hash>[0-9a-f]{8,16})\) (?P<kind>[A-Z]+)")
_HEAD = lazy(r"^\s*(?P<kind>DEAD|INCOMPLETE|TIMEOUT)\s*$")
_PROCESS = lazy(r"Process \d+ on node (?P<node>[\w.:-]+) managing GPUs? (?P<gpu>[\d,-]+)")
_MISSING = lazy(r"The missing ranks?: (?P<ranks>\d+(?:,\d+)*)")
_COUNT = lazy(
    r"(?P<many>\d+) ranks? (?:ha(?:ve|s) )?(?:(?:launched )?up to operation (?P<up_to>\d+)|not launched any operations)"
)
_RANK = lazy(
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


def read_reports(view: LogView, first: int, last: int) -> list[Report]:
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
