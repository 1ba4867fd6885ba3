"""Which of many patterns occur in a piece at all: one pass of the scan engine instead of one search for each."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence

from rerail.cached_yaml import cache_folder
from rerail.log_parsers.scan import Scanner, Signature, compiled_at_hand, make_scanner

_LARGE = 1 << 17  # bytes of a piece for which it pays


class Presence:
    """Tells which patterns are worth a search in a piece; one serves all files of a process."""

    def __init__(self, patterns: Sequence[re.Pattern[bytes]]) -> None:
        self._signatures = [
            Signature(pattern.pattern.decode("ascii"), presence=True, loose=True)
            for pattern in patterns
        ]
        self._of_thread = threading.local()  # a scanner's scratch space serves one thread

    def places(self, chunk: bytes) -> set[int] | None:
        """Return the places of the patterns that may occur; None where it is not worth the question."""
        scanner: Scanner | None = getattr(self._of_thread, "scanner", None)
        if scanner is None:
            if len(chunk) < _LARGE and not compiled_at_hand(self._signatures, cache_folder()):
                return None
            scanner = make_scanner(self._signatures, cache=cache_folder())
            self._of_thread.scanner = scanner
        return {place for _, place in scanner.candidates(chunk)}
