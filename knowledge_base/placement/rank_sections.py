"""Ranks that a heading names for the lines below it, whoever prints them.

torch's distributed checkpoint collects the exceptions of all ranks and raises them on each; Composer
prints what a process wrote after it has ended. The label in front is the printer's.
"""

from __future__ import annotations

import re

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.log_parsers.tracebacks import HEADER
from rerail.log_parsers.view import LogView

_REACH = 300  # lines of a traceback, and of those that its exception chains
_OF_RANK = re.compile(re.escape(HEADER) + r" \(RANK (?P<rank>\d{1,6})\)")
# MPICH prints the stack of an error below the line that names the rank.
_MPI_HEAD = re.compile(r"\(rank (?P<rank>\d{1,6}) in comm 0\): Fatal error in ")
_MPI_STACK = re.compile(r"^\s*(?:P?MPI|MPID|MPIR|MPIDI|MPIDU)\w{0,60}\(")
_MPI_REACH = 24
# fairseq prints the norm of every rank below its complaint, a rank a line.
_RANK_VALUE = re.compile(
    r"^\s*rank\s{1,4}(?P<rank>\d{1,6}) = (?P<value>-?[\d.]{1,40}|-?inf|nan)\s*$"
)
# torch_npu heads what the accelerator's library says with the process and its rank, -1 where it has none.
_NPU_HEAD = re.compile(r"\(PID:\d{1,9}, Device:-?\d{1,4}, RankID:(?P<rank>\d{1,6})\) ERR\d{5}\b")
_NPU_SAYS = re.compile(r"(?:^|\s)E[A-Z]\d{4}: ")
_NPU_REACH = 3
_TABLE_FROM = 12  # lines below the complaint within which its table begins
_SECTION = re.compile(r"-{4,}(?P<edge>Begin|End) global rank (?P<rank>\d{1,6}) STD(?:OUT|ERR)-{4,}")


def rank_above(case: Case, line: LogLine) -> int | None:
    """Return the rank that the heading above a line names for it, or None."""
    view = case.view(line)
    if line.rank is None and _MPI_STACK.match(line.message):
        return _mpi_head(view, line)
    if line.rank is None and (npu := _npu_head(view, line)) is not None:
        return npu
    own_traceback = True
    for number in reversed(list(view.between(max(1, line.number - _REACH), line.number))):
        text = view.text(number)
        if not text:
            continue
        if own_traceback and HEADER in text:
            if match := _OF_RANK.search(text):
                return int(match["rank"])
            own_traceback = False
        if "global rank" in text and (match := _SECTION.search(text)):
            return int(match["rank"]) if match["edge"] == "Begin" else None
    return None


def _npu_head(view: LogView, line: LogLine) -> int | None:
    """The rank in torch_npu's heading: on the line, below the exception's own, or above the library's words."""
    numbers = [line.number]
    if "Error" in line.text:
        numbers.append(line.number + 1)
    if _NPU_SAYS.search(line.text):
        numbers += range(line.number - 1, max(0, line.number - 1 - _NPU_REACH), -1)
    for number in numbers:
        if match := _NPU_HEAD.search(view.text(number) or ""):
            return int(match["rank"])
    return None


def _mpi_head(view: LogView, line: LogLine) -> int | None:
    for number in reversed(list(view.between(max(1, line.number - _MPI_REACH), line.number - 1))):
        text = view.text(number) or ""
        if match := _MPI_HEAD.search(text):
            return int(match["rank"])
        if text.strip() and not _MPI_STACK.search(text):
            return None
    return None


def odd_one_out(case: Case, line: LogLine) -> int | None:
    """Return the only rank whose value in the table below a line is not that of all others, or None."""
    view = case.view(line)
    values: dict[str, list[int]] = {}
    end = view.numbers[-1] if view.numbers else line.number
    last = line.number + _TABLE_FROM
    for number in view.between(line.number + 1, end):
        if number > last:
            break
        told = view.line(number)
        match = _RANK_VALUE.match(told.message) if told is not None else None
        if match:
            values.setdefault(match["value"], []).append(int(match["rank"]))
            last = number + 1
    if len(values) != 2:
        return None
    few, many = sorted(values.values(), key=len)
    return few[0] if len(few) == 1 and len(many) > 1 else None
