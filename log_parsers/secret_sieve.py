"""Looks at each kind of line once for secrets: most lines of a long log need no further look.

As in `sieve`: where the skeleton of a line (the line without digits and lower-case hex letters) could
not come from a line with a secret, none of the lines with that skeleton holds one.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from typing import Any

from rerail.log_parsers.line_tables import LineCodes
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.scan import Scanner, Signature, make_scanner
from rerail.log_parsers.sieve import texts_of
from rerail.log_parsers.skeleton_patterns import skeleton_pattern
from rerail.log_parsers.tallies import Tally

_REMEMBERED, _LINES = 150_000, 50_000  # skeletons, lines
_MAY_HOLD, _HOLDS_NONE = 1, 2  # what is known of a line that is proposed


class SecretSieve:
    """Remembers which skeletons are free of secrets; one serves all files of a process."""

    def __init__(self, patterns: list[str], hidden: re.Pattern[bytes], cache: Any) -> None:
        self._hidden = hidden
        images = [skeleton_pattern(pattern) for pattern in patterns]
        # A kind whose image says nothing would need every line; none of the shipped ones does.
        self.usable = all(images)
        self._scanner: Scanner = make_scanner(
            [Signature(image) for image in images if image], cache=cache
        )
        self._clean: set[bytes] = set()
        self._suspect: set[bytes] = set()
        self._lines, self._proposed = LineCodes(zero=False), array("b")

    def rows(self, tally: Tally) -> Any:
        """Return the rows of the lines that need a look, a numpy array; None where there are none."""
        if len(self._clean) + len(self._suspect) > _REMEMBERED:
            self._clean.clear()
            self._suspect.clear()
        new = set(tally.keys) - self._clean
        if asked := new - self._suspect:
            found = self._suspects(list(asked))
            self._suspect |= found
            self._clean |= asked - found
        suspects = new & self._suspect
        if not suspects:
            return None
        import numpy as np

        wanted = np.fromiter((key in suspects for key in tally.keys), np.bool_, len(tally.keys))
        frames = np.flatnonzero(wanted[tally.codes])
        return frames if tally.lines is None else np.unique(tally.lines[frames])

    def looked_at(
        self, piece: Piece, rows: Any, look: Callable[[Any], set[int]]
    ) -> tuple[set[int], bool]:
        """Return which of some rows may hold a secret, and whether it is known that no line of these does.

        `look` is asked of lines whose text was not seen before.
        """
        import numpy as np

        if len(self._lines) > _LINES:
            self._lines, self._proposed = LineCodes(zero=False), array("b")
        codes, new = self._lines.of(piece, rows)
        if len(new):
            found = look(rows[new])
            here = np.isin(rows[new], np.fromiter(found, np.int64, len(found)))
            self._proposed.frombytes((here * _MAY_HOLD).astype(np.int8).tobytes())
        known = np.frombuffer(self._proposed, np.int8)[codes]
        return set(rows[known != 0].tolist()), not (known == _MAY_HOLD).any()

    def hold_none(self, piece: Piece, rows: list[int]) -> None:
        """Remember that lines which were proposed were looked at, and hold no secret."""
        import numpy as np

        codes, _ = self._lines.of(piece, np.asarray(rows, np.int64))
        for code in codes.tolist():
            self._proposed[code] = _HOLDS_NONE

    def _suspects(self, keys: list[bytes]) -> set[bytes]:
        found: set[bytes] = set()
        asked: list[tuple[bytes, bytes]] = []
        for key in keys:
            texts = texts_of(key)  # a secret may stand among colours
            coloured = b"\x1b" in key
            # What else hides letters goes from a line that is masked, so the skeleton says nothing of it.
            if not texts or (
                (coloured or not key.isascii())
                and self._hidden.search(texts[0] if coloured else key)
            ):
                found.add(key)
            asked += ((key, text if text.endswith(b"\n") else text + b"\n") for text in texts)
        text = b"".join(one for _, one in asked)
        waiting = sorted({end for end, _ in self._scanner.candidates(text)})
        at = place = 0
        for key, one in asked:
            at += len(one)
            while place < len(waiting) and waiting[place] <= at:
                found.add(key)
                place += 1
        return found
