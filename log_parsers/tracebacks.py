"""Puts a Python traceback together again, also where the ranks of a job interleave.

A traceback belongs to one label (rank, pod, process). From the line that names the exception it is
followed upwards through lines of the same label; chained exceptions are kept apart but in order.
"""

from __future__ import annotations

from collections.abc import Callable

from rerail.domain.evidence import LogLine
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy

HEADER = "Traceback (most recent call last):"
# Inside an export of JSON lines the quotes carry a backslash.
_FRAME = lazy(r'^\s*File \\?"(?P<file>[^"\\]+)\\?", line (?P<line>\d+), in (?P<function>[^\s\\]+)')
_EXCEPTION = lazy(
    r"^\s*(?:[A-Za-z_][\w.]*\.)?[A-Z_][A-Za-z0-9_]*(?:Error|Exception|Interrupt|Exit|Warning|"
    r"Failure|Timeout|Empty|Full|Fault|Abort|Killed|StopIteration|Died|Resources|Failed|"
    r"OOM)\w*(?:: |:$|$)"
    # Names that are nothing but such a word: plain `Exception`, and any behind its module.
    r"|^\s*(?:Exception|[a-z_][\w.]*\.(?:Error|Exception|Timeout(?:Expired)?|Empty|Full|Again|Closed|error|timeout|gaierror|"
    r"[A-Z]\w*(?:Canceled|Cancelled|Violation|Denied|Closed|Reset|Aborted)))(?:: |:$|$)"
)
_CHAIN = lazy(
    r"During handling of the above exception|The above exception was the direct cause|Original Traceback|"
    r"The above exception was the direct cause of the following"
)
_MARKERS = lazy(r"^[\s~^]*[~^][\s~^]*$")
# What threading and multiprocessing print in front of the traceback of a thread or child of theirs.
_THREAD = lazy(
    r"Exception in thread (?P<thread>[\w-]+)"
    r"|^\s*Process (?P<child>(?:Spawn|Fork|ForkServer)?Process-\d{1,6}(?::\d{1,6})*):\s*$"
)


@dataclass(frozen=True, slots=True)
class Traceback:
    """The lines above one exception line, oldest first, and where in a chain it stands."""

    lines: tuple[LogLine, ...]
    complete: bool
    in_thread: str | None = None
    chained: bool = False

    @property
    def frames(self) -> tuple[str, ...]:
        """Source files of the frames, outermost first."""
        found = []
        for line in self.lines:
            if frame := frame_in(line.message):
                found.append(frame[0])
        return tuple(found)


def looks_like_exception(message: str) -> bool:
    """Tell whether a message is the last line of a traceback: `SomeError: text`."""
    return _EXCEPTION.match(message) is not None


def frame_in(message: str) -> tuple[str, int, str] | None:
    """Return file, line number and function where a message is a frame of a traceback."""
    match = _FRAME.match(message)
    return None if match is None else (match["file"], int(match["line"]), match["function"])


def is_frame(message: str) -> bool:
    """Tell whether a line names file, line and function of a frame."""
    return _FRAME.match(message) is not None


def is_marker(message: str) -> bool:
    """Tell whether a line holds nothing but the `~~^^` with which Python 3.11 points into source."""
    return _MARKERS.match(message) is not None


def is_quoted_source(line: LogLine, get: Callable[[int], LogLine | None]) -> bool:
    """Tell whether a line is the source code that a traceback quotes under one of its frames."""
    if looks_like_exception(line.message) or _FRAME.match(line.message):
        return False
    for number in range(line.number - 1, max(0, line.number - 40), -1):
        above = get(number)
        if above is not None and above.label == line.label:
            return _FRAME.match(above.message) is not None
    return False


def traceback_above(
    line: LogLine, get: Callable[[int], LogLine | None], *, reach: int = 3000, most: int = 80
) -> Traceback:
    """Collect the traceback that ends at `line`.

    Args:
        line: the line that names the exception.
        get: returns a line of the same file by number, or None where it was not kept.
        reach: how many lines to look back at most.
        most: how many lines a traceback may hold.
    """
    collected: list[LogLine] = []
    complete = False
    thread: str | None = None
    chained = False
    misses = 0
    for number in range(line.number - 1, max(0, line.number - reach), -1):
        above = get(number)
        if above is None:
            misses += 1
            if misses > 400:
                break
            continue
        if above.label != line.label:
            if not line.label and not above.label:
                break
            continue
        message = above.message
        if _CHAIN.search(message):
            chained = True
            break
        if looks_like_exception(message) and not _indented(message):
            break
        collected.append(above)
        if HEADER in message:
            complete = True
            before = _previous(above, get)
            match = _THREAD.search(before.message) if before else None
            thread = match["thread"] or match["child"] if match else None
            chained = chained or (before is not None and _CHAIN.search(before.message) is not None)
            break
        if len(collected) >= most:
            break
    if not complete:
        collected = [c for c in collected[:6] if _FRAME.match(c.message)]
    return Traceback(tuple(reversed(collected)), complete, thread, chained)


def _indented(message: str) -> bool:
    return message.startswith((" ", "\t"))


def _previous(line: LogLine, get: Callable[[int], LogLine | None]) -> LogLine | None:
    for number in range(line.number - 1, max(0, line.number - 60), -1):
        above = get(number)
        if above is not None and above.label == line.label and above.message.strip():
            return above
    return None
