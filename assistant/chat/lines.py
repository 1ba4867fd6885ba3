"""What chat prints: plain lines with a style; the terminal and the tests read the same ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output. `style` is empty, `dim` or `bold`; the text is never markup."""

    text: str
    style: str = ""
