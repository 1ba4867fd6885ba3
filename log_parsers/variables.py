"""Lines in which py-spy prints what a variable holds; apart from the stacks, as every hit is asked."""

from __future__ import annotations

from rerail.domain.evidence import LogLine
from rerail.lazy_patterns import lazy
from rerail.log_parsers.view import LogView

FRAMES = 200  # lines of one process below the head of a thread
AT_MOST = 2_000  # lines, those of other processes in between included
_VARIABLE = lazy(r"(?:^|[\]:|>]) {8,}\w+: ")
_VARIABLES = lazy(r"(?:^|[\]:|>]) {4,}(?:Arguments|Locals):$")


def is_variable(view: LogView, line: LogLine) -> bool:
    """Tell whether a line is an argument or a local that py-spy prints below a frame.

    What a variable holds is no event: a loss of NaN, or the words of an error that was handled.
    """
    if not _VARIABLE.search(line.text):
        return False
    own = 0
    for number in range(line.number - 1, max(0, line.number - AT_MOST), -1):
        above = view.line(number)
        if above is None or own > FRAMES:
            return False
        if above.label != line.label:
            continue
        own += 1
        if _VARIABLES.search(above.text):
            return True
        if not _VARIABLE.search(above.text):
            return False
    return False
