"""Patterns as the scan engines get them: looser at their ends, never stricter.

The engines only propose lines; the full pattern confirms. What a pattern says of its end, or of
what follows the last byte that matters, costs an engine much and proposes no line less.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

FORM = sha256(Path(__file__).read_bytes()).hexdigest()
"""Changes with the code below: what was compiled from patterns of another form is of no use."""


def relaxed(pattern: str) -> str:
    """Drop what follows the last byte that matters: it only multiplies end offsets.

    A trailing `.*` makes hyperscan report every later byte of the line (5 million callbacks on
    20 MB measured); the confirmation uses the full pattern.
    """
    pattern = _loose_end_anchors(pattern)
    while True:
        cut = re.sub(
            r"(?<!\\)(\\[dDwWsS.]|\.|\[(?:\\.|[^\]\\])+\]|[A-Za-z0-9_ ])(?:\*|\{0,\d*\})\??(\)*)$",
            r"\2",
            pattern,
        )
        cut = re.sub(
            r"(?<!\\)(\\[dDwWsS]|\.|\[(?:\\.|[^\]\\])+\])(?:\+|\{1,\d*\})\??(\)*)$", r"\1\2", cut
        )
        if cut == pattern or not cut or _balanced(cut) is False:
            return pattern
        pattern = cut


def _loose_end_anchors(pattern: str) -> str:
    # An end anchor holds at the end of a line, which stands inside a chunk, maybe behind control
    # characters that cleaning takes out. Dropping the anchor instead would propose every line
    # that holds `: 1` for a pattern like `: [1-7]\\s*$`: 8,000 candidates per megabyte measured.
    return re.sub(r"(\\.|\[(?:\\.|[^\]\\])*\])|\$", lambda m: m[1] or "(?:[^ -~]|$)", pattern)


def _balanced(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True
