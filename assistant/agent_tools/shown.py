"""Keeps what a model was shown: each line under a short handle, quoted so that it stays data.

A citation is a handle. A handle exists only if its line was shown in this run, so a made-up
citation cannot hold. Quoted text stands between delimiters that are drawn anew for every run: text
in a log cannot know them and cannot end the quotation.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from rerail.domain.incident import SnapshotLine

LINE_WIDTH = 320


class Shown:
    """The lines that were shown in one run, by handle (`L1`, `L2`, ...), and how many bytes."""

    def __init__(self, *, nonce: str | None = None) -> None:
        self.nonce = nonce or secrets.token_hex(6)
        self.log_bytes = 0
        self._by_handle: dict[str, SnapshotLine] = {}
        self._handles: dict[tuple[str, int], str] = {}
        self._known: set[str] = set()

    def know(self, incident: str) -> None:
        """Remember that a past incident was shown: what is said by it cites it, not a line."""
        self._known.add(incident)

    def known(self, name: str) -> str | None:
        """Return the id of a past incident that was shown, or None when none has this name."""
        wanted = name.strip().strip("[]").lower()
        return next((one for one in self._known if one.lower() == wanted), None)

    @property
    def opening(self) -> str:
        """The delimiter in front of quoted text."""
        return f"<<{self.nonce} LOG DATA"

    @property
    def closing(self) -> str:
        """The delimiter behind quoted text."""
        return f"END {self.nonce}>>"

    def handle(self, line: SnapshotLine) -> str:
        """Return the handle of a line, a new one when it was not shown before."""
        key = (line.file, line.number)
        if key not in self._handles:
            name = f"L{len(self._handles) + 1}"
            self._handles[key] = name
            self._by_handle[name] = line
        return self._handles[key]

    def find(self, handle: str) -> SnapshotLine | None:
        """Return the line behind a handle, or None when no such line was shown."""
        return self._by_handle.get(handle.strip().strip("[]").upper())

    def handles(self) -> list[str]:
        """Return every handle, in the order of showing."""
        return list(self._by_handle)

    def format(self, line: SnapshotLine) -> str:
        """Return a line as it is shown: handle, place, text on one line."""
        place = f"{line.file}:{line.number}"
        if line.rank is not None:
            place += f" rank {line.rank}"
        if line.node:
            place += f" on {line.node}"
        text = " ".join(line.text.split())
        if len(text) > LINE_WIDTH:
            text = f"{text[: LINE_WIDTH - 85]} ... {text[-80:]}"
        return f"{self.handle(line)} {place} | {text}"

    def quote(self, rows: Iterable[str], *, most_bytes: int) -> str:
        """Return rows of log text between the delimiters, as many as fit."""
        kept = []
        room = most_bytes
        left = 0
        for row in rows:
            size = len(row.encode("utf-8", "replace")) + 1
            if size > room:
                left += 1
                continue
            room -= size
            kept.append(row)
        self.log_bytes += most_bytes - room
        note = [f"({left} more did not fit)"] if left else []
        return "\n".join([self.opening, *kept, self.closing, *note])

    def quote_lines(self, lines: Iterable[SnapshotLine], *, most_bytes: int) -> str:
        """Return lines between the delimiters, as many as fit; only those get a handle."""
        kept = []
        room = most_bytes
        left = 0
        for line in lines:
            # The handle of a line that does not fit must not exist.
            size = len(line.text.encode("utf-8", "replace")) + len(line.file) + 40
            size = min(size, 4 * LINE_WIDTH + len(line.file) + 40)
            if size > room:
                left += 1
                continue
            row = self.format(line)
            room -= len(row.encode("utf-8", "replace")) + 1
            kept.append(row)
        self.log_bytes += most_bytes - room
        note = [f"({left} more lines did not fit)"] if left else []
        return "\n".join([self.opening, *kept, self.closing, *note])
