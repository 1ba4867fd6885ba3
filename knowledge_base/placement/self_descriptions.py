"""Lines on which a process gives its own rank, host and process id as key and value, in any order.

All three must stand side by side on one line: a sentence with two of them is often about two processes.
"""

from __future__ import annotations

from collections.abc import Iterator

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase
from rerail.knowledge_base.placement.processes import Identity
from rerail.lazy_patterns import lazy
from rerail.log_parsers.view import LogView

_PAIR = r"['\"]?[\w.-]{1,40}['\"]?\s?[:=]\s?['\"]?[^\s,|;'\"]{1,100}['\"]?"
_PAIRS = lazy(rf"(?:{_PAIR}[\s,|;]{{1,4}}){{2,12}}{_PAIR}")


def described(case: Case, view: LogView) -> Iterator[tuple[LogLine, Identity]]:
    """Yield the lines of a file on which a process describes itself, and the process."""
    for number in case.lines_with(view, "host-key"):
        who = describes(view.text(number) or "")
        line = view.line(number) if who is not None else None
        if who is not None and line is not None:
            yield line, who


def describes(text: str) -> Identity | None:
    """Return the process that a line describes, or None."""
    rank, host, pid = (phrase(key).search(text) for key in ("rank-key", "host-key", "pid-key"))
    if rank is None or host is None or pid is None:
        return None
    found = (rank, host, pid)
    between = text[min(match.start() for match in found) : max(match.end() for match in found)]
    if not _PAIRS.fullmatch(between):
        return None  # a sentence, in which one process may speak of another
    return Identity(rank=int(rank["value"]), node=host["value"], pid=int(pid["value"]))
