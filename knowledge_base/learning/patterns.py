"""A pattern from lines: what they share stands, what varies becomes a bounded gap."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

from rerail.errors import RuleError
from rerail.lazy_patterns import lazy
from rerail.log_parsers.masks import SLOT, mask
from rerail.log_parsers.prefixes import NOWHERE, parse_line

GAP = 120
LEAST_WORDS, LEAST_LETTERS = 2, 12
_MOST = 240
_WORD = lazy(r"[A-Za-z]{2,}")
# A name with a number in it (ice-041, rank7) is a name of this job as a whole.
_NAMED = lazy(rf"(?<![\w=])[A-Za-z][\w.]*[-_.]?{re.escape(SLOT)}[\w.-]*")
_SLOTS = lazy(rf"(?:\s*{re.escape(SLOT)}\s*)+")


def message_of(text: str) -> str:
    """Return a line without the labels and stamps in front of it."""
    return parse_line("line", 1, text, origin=NOWHERE, year=2000).message


def pattern_from(lines: Sequence[str]) -> str:
    """Return a portable pattern that all lines match.

    Raises:
        RuleError: when they share too little to tell the failure from other lines.
    """
    texts = [_NAMED.sub(SLOT, mask(message_of(line)))[:_MOST] for line in lines]
    if not texts:
        raise RuleError(
            "there is no line to learn from", hint="rerail confirm INCIDENT --line FILE:LINE"
        )
    shared = texts[0]
    for text in texts[1:]:
        shared = _common(shared, text)
    chunks = [chunk.strip() for chunk in _SLOTS.split(shared)]
    kept = [chunk for chunk in chunks if _WORD.search(chunk)]
    words = [word for chunk in kept for word in _WORD.findall(chunk)]
    if len(words) < LEAST_WORDS or sum(map(len, words)) < LEAST_LETTERS:
        raise RuleError(
            f"the lines share too little for a rule: {shared[:80]!r}",
            subject=shared[:80],
            hint="confirm the incident with a more telling line: --line FILE:LINE",
        )
    gap = f".{{0,{GAP}}}"
    return gap.join(" +".join(re.escape(part) for part in chunk.split()) for chunk in kept)


def _common(a: str, b: str) -> str:
    """Return what two masked texts share, word by word, with slots for the rest."""
    left, right = a.split(), b.split()
    found: list[str] = []
    for tag, i1, i2, _, _ in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        found += left[i1:i2] if tag == "equal" else [SLOT]
    return " ".join(found)
