"""Stacks of running processes, as py-spy and Python's faulthandler print them.

Of each process the main thread counts: it is where a training program waits or works.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rerail.domain.evidence import LogLine
from rerail.log_parsers.view import LogView

_PROCESS = re.compile(r"^Process (?P<pid>\d+): ")
_PYSPY = re.compile(
    r'^Thread (?P<tid>0x[0-9A-Fa-f]+|\d+) \((?:active|idle)[^)]*\)(?:: "(?P<name>[^"]*)")?$'
)
_PYSPY_FRAME = re.compile(r"^(?P<function>\S.*?) \((?P<file>[^()]+?)(?::(?P<line>\d+))?\)$")
_FAULT = re.compile(
    r"^(?:Current thread|Thread) 0x[0-9a-fA-F]+(?: \[.{0,40}\])? \(most recent call first\):$"
)
_FAULT_FRAME = re.compile(r'^File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)$')
_CRASH = re.compile(r"^Fatal Python error: ")
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
    pending: Stack | None = None  # the last thread of a faulthandler dump so far
    pid: int | None = None
    crashed_at = -100
    for number, text, line in _lines(view):
        if process := _PROCESS.match(text):
            pid = int(process["pid"])
        elif _CRASH.match(text):
            crashed_at = number
        elif thread := _PYSPY.match(text):
            if thread["name"] in (None, _MAIN):
                tid = thread["tid"]
                own = pid if pid is not None else int(tid, 0) if not tid.startswith("0x") else None
                found += _stack(view, line, own, _PYSPY_FRAME)
                pid = None
        elif _FAULT.match(text):
            if number - crashed_at <= _BETWEEN:
                crashed_at = number + len(_frames(view, line, _FAULT_FRAME)[0]) + 1
                continue
            read = _stack(view, line, None, _FAULT_FRAME)
            if pending is not None and (not read or not _goes_on(pending, read[0])):
                found.append(pending)
            pending = read[0] if read else None
    return sorted(
        [*found, *([pending] if pending is not None else [])], key=lambda one: one.head.number
    )


def _goes_on(before: Stack, after: Stack) -> bool:
    """Tell whether two threads belong to one dump: printed by the same process, without a gap."""
    last = before.lines[-1].number
    return before.head.label == after.head.label and after.head.number - last <= _BETWEEN


def _lines(view: LogView) -> Iterator[tuple[int, str, LogLine]]:
    for number in view.numbers:
        raw = view.survey.kept[number]
        if b"hread" not in raw and b"Process " not in raw and b"Fatal Python" not in raw:
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
    number = head.number
    while (line := view.line(number := number + 1)) is not None and number - head.number < 200:
        if line.label != head.label:
            continue
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
