"""A model's words made safe to print and to store: plain text, no markup, no link, no control.

A model that was taken over may write an image whose address carries a secret, an escape sequence,
or text that turns the reading direction. None of these survives here, for any sink.
"""

from __future__ import annotations

import re

from rerail.log_parsers.redaction import redact
from rerail.log_parsers.text import clean

_IMAGE_OR_LINK = re.compile(r"!?\[([^\]\n]{0,300})\]\s*(?:\([^)\n]{0,2000}\)|\[[^\]\n]{0,300}\])")
_REFERENCE = re.compile(r"(?m)^\s*\[[^\]\n]{1,100}\]:\s*\S+.*$")
_TAG = re.compile(r"<[/!?]?[A-Za-z][^<>\n]{0,2000}>")
_URL = re.compile(r"(?i)\b(?:[a-z][a-z0-9+.-]{1,15}://|www\.|data:|javascript:)[^\s'\"<>)\]]+")
GONE = "(link removed)"


def plain(text: str, *, most: int = 4_000) -> str:
    """Return text without markup, links, control characters and secrets, of bounded length."""
    text = text[: 4 * most]
    text = _REFERENCE.sub("", text)
    text = _IMAGE_OR_LINK.sub(r"\1", text)
    text = _TAG.sub("", text)
    text = _URL.sub(GONE, text)
    rows = [
        redact(clean(row.encode("utf-8", "replace"))).strip() for row in text.splitlines() or [""]
    ]
    return "\n".join(rows)[:most].strip()


def plain_line(text: str, *, most: int = 600) -> str:
    """Return text as `plain` does, on one line."""
    return " ".join(plain(text, most=most).split())
