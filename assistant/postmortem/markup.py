"""Log text inside Markdown: nothing in it may become markup, a link, an image or HTML."""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+!|~$&])")
# Renderers turn a bare address into a link; a zero-width space is invisible and stops that.
_ADDRESS = re.compile(r"(?i)\b(https?|ftp|www|mailto|data|javascript)([:.])")


def escaped(text: str) -> str:
    """Return text for a paragraph or a table cell, on one line."""
    flat = " ".join(text.split())
    return _ADDRESS.sub("\\1\\\\\\2", _SPECIAL.sub(r"\\\1", flat))


def code(text: str) -> str:
    """Return text as inline code, on one line, whatever backticks it holds."""
    flat = " ".join(text.split()).replace("|", "\u2502")
    if not flat:
        return ""
    longest = max((len(run) for run in re.findall("`+", flat)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat}{pad}{fence}"
