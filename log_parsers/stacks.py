"""Stacks of running processes, as py-spy and Python's faulthandler print them.

Of each process the main thread counts: it is where a training program waits or works.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rerail.domain.evidence import LogLine
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import looks_like_host
from rerail.log_parsers.variables import AT_MOST, FRAMES
from rerail.log_parsers.view import LogView

_PROCESS = lazy(r"^Process (?P<pid>\d+): ")
_PYSPY = lazy(
    r'^Thread (?P<tid>0x[0-9A-Fa-f]+|\d+) \((?:active|idle)[^)]*\)(?:: "(?P<name>[^"]*)")?$'
)
_PYSPY_FRAME = lazy(r"^(?P<function>\S.*?) \((?P<file>[^()]+?)(?::(?P<line>\d+))?\)$")
_FAULT = lazy(
    r"^(?:Current thread|Thread) 0x[0-9a-fA-F]+(?: \[.{0,40}\])? \(most recent call first\):$"
)
_FAULT_FRAME = lazy(r'^File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)$')
_CRASH = lazy(r"^Fatal Python error: ")
_TIMEOUT = lazy(r"^Timeout \(\d+:\d\d:\d\d(?:\.\d+)?\)!$")
# Of each process the innermost call alone, on one line: behind the launcher's label, or in a table of host, rank and id.
_ROW = lazy(
    r"^(?:(?P<cells>[^|]{1,60}(?:\|[^|]{1,60}){0,3})\| {0,4})?"
    r"(?P<function>[A-Za-z_<][\w.<>]*) \((?P<file>[\w.<>/-]*/[\w.<>-]+\.py):(?P<line>\d+)\)$"
)
_RANK_CELL = lazy(r"(?:^|\|) {0,4}(?i:rank[ =:#]?)?(?P<rank>\d{1,6})(?= |\||$)")
_PID_CELL = lazy(r"\b(?i:pid)[ =:]{0,2}(?P<pid>\d{1,8})\b")
_BARE_FRAME = lazy(
    rb"[A-Za-z_<][\w.<>]* \("
)  # nobody is named in front of it, and a dump has thousands
_FEWEST_ROWS = 3
_MAIN = "MainThread"
_BETWEEN = 3  # lines between two threads of one dump


@dataclass(frozen=True, slots=True)
class Frame:
    """One call; `line` is None for native code."""

    function: str
    file: str
    line: int | None

    def __str__(self) -> str:
        return f"{self.function} ({self.file}{f':{self.line}' if self.line is not None else ''})"


@dataclass(frozen=True, slots=True)
class Stack:
    """The main thread of one process; frames from the innermost on, each with its line of the log."""

    head: LogLine
    pid: int | None
    frames: tuple[Frame, ...]
    lines: tuple[LogLine, ...]


def read_stacks(view: LogView) -> list[Stack]:
    """Return the main threads of all dumps in a file, in order.

    faulthandler names no threads: it prints the main thread last. Dumps of a crash are left out;
    they tell where one process died, not where all of them are.
    """
    found: list[Stack] = []
    pending: dict[str, Stack] = {}  # by label, the last thread of a faulthandler dump so far
    crashed: dict[str, int] = {}  # by label, the last line of a crash
    pids: dict[str, int] = {}
    for number, text, line in _lines(view):
        label = line.label
        if process := _PROCESS.match(text):
            pids[label] = int(process["pid"])
        elif _TIMEOUT.match(text):
            found += [pending.pop(label)] if label in pending else []
        elif _CRASH.match(text):
            crashed[label] = number
        elif thread := _PYSPY.match(text):
            if thread["name"] in (None, _MAIN):
                tid = thread["tid"]
                own = pids.pop(label, None if tid.startswith("0x") else int(tid))
                found += _stack(view, line, own, _PYSPY_FRAME)
        elif _FAULT.match(text):
            if label in crashed and _near(view, label, crashed[label], number):
                lines = _frames(view, line, _FAULT_FRAME)[1]
                crashed[label] = lines[-1].number if lines else number
                continue
            before = pending.pop(label, None)
            read = _stack(view, line, None, _FAULT_FRAME)
            if before and not (read and _near(view, label, before.lines[-1].number, number)):
                found.append(before)
            if read:
                pending[label] = read[0]
    return sorted([*found, *pending.values()], key=lambda one: one.head.number)


def _near(view: LogView, label: str, first: int, last: int) -> bool:
    """Tell whether hardly a line of one process stands between two others of it."""
    if last - first > AT_MOST:
        return False
    own = 0
    for number in view.between(first + 1, last - 1):
        line = view.line(number)
        own += line is not None and line.label == label
        if own >= _BETWEEN:
            return False
    return True


def _lines(view: LogView) -> Iterator[tuple[int, str, LogLine]]:
    for number in view.numbers:
        raw = view.survey.kept[number]
        if not any(word in raw for word in (b"hread", b"Process ", b"Fatal Python", b"Timeout (")):
            continue
        line = view.line(number)
        if line is not None:
            yield number, line.message.strip(), line


def _stack(view: LogView, head: LogLine, pid: int | None, form: re.Pattern[str]) -> list[Stack]:
    frames, lines = _frames(view, head, form)
    return [Stack(head, pid, tuple(frames), tuple(lines))] if frames else []


def _frames(
    view: LogView, head: LogLine, form: re.Pattern[str]
) -> tuple[list[Frame], list[LogLine]]:
    frames: list[Frame] = []
    lines: list[LogLine] = []
    number, own = head.number, 0
    while (line := view.line(number := number + 1)) is not None and number - head.number < AT_MOST:
        if line.label != head.label:
            continue
        own += 1
        if own > FRAMES:
            break
        text = line.message.strip()
        match = form.match(text)
        if match is None:
            # py-spy prints arguments and locals below their frame, deeper indented.
            if frames and re.match(r"(?:Arguments|Locals):$|\w+: ", text):
                continue
            break
        at = match["line"]
        frames.append(Frame(match["function"], match["file"], int(at) if at else None))
        lines.append(line)
    return frames, lines


def read_rows(view: LogView) -> list[Stack]:
    """Return the innermost calls of processes of which a file shows one line each, in order.

    Several lines of one process are a stack, of which there would be a head.
    """
    found: dict[tuple[str, int | None], Stack] = {}
    for number in view.numbers:
        raw = view.survey.kept[number].strip()
        alike = raw.endswith(b")") and b".py:" in raw and not _BARE_FRAME.match(raw)
        line = view.line(number) if alike else None
        match = _ROW.match(line.message.strip()) if line is not None else None
        if line is None or match is None:
            continue
        head, pid = _in_cells(line, match["cells"] or "")
        if head.rank is None:
            continue
        if (key := (head.label, head.rank)) in found:
            return []
        frame = Frame(match["function"], match["file"], int(match["line"]))
        found[key] = Stack(head, pid, (frame,), (line,))
    return list(found.values()) if len(found) >= _FEWEST_ROWS else []


def _in_cells(line: LogLine, cells: str) -> tuple[LogLine, int | None]:
    """Return a line with the rank and the host that stand in front of a call, and the process id there."""
    rank, pid = _RANK_CELL.search(cells), _PID_CELL.search(cells)
    own = replace(line, rank=int(rank["rank"])) if rank is not None and line.rank is None else line
    host = cells.split("|")[0].strip()
    if own.node is None and looks_like_host(host):
        own = replace(own, node=host)
    return own, int(pid["pid"]) if pid is not None else line.pid
