"""How much of a log is kept word for word; what is counted of its lines is exact in any case."""

from __future__ import annotations

from dataclasses import replace

from rerail.late_dataclass import dataclass
from rerail.log_parsers.metrics import MAX_ROWS
from rerail.log_parsers.nearby_lines import TAIL_LINES

WHOLE_FILE = 2 << 20
KEEP_BYTES = 6 << 20
HITS_PER_SIGNATURE = 400
CONTEXTS_PER_WORDING = 40
HITS_PER_WORDING = 16
LAST_HITS = 16
FIRST_LINES = 4_096
HEAD_LINES = 150
# The most of all files together, and the least of each: what is kept is judged line by line.
_ALL_STEP_ROWS, _LEAST_STEP_ROWS = 1_000_000, 2_000
_ALL_KEPT, _LEAST_KEPT = 1 << 30, 32 << 10
_ALL_WHOLE, _LEAST_WHOLE = 8 << 20, 32 << 10
_ALL_HITS, _LEAST_HITS = 12_800, 48
_ALL_CONTEXTS, _LEAST_CONTEXTS = 640, 6
_ALL_HARMLESS, _LEAST_HARMLESS = 512, 1
_ALL_LAST, _LEAST_LAST = 2_048, 4
_ALL_WRITERS, _LEAST_WRITERS = 131_072, 256
_ALL_HEADS, _LEAST_HEAD = 19_200, 50
_ALL_TAILS, _LEAST_TAIL = 38_400, 100


@dataclass(frozen=True, slots=True)
class Room:
    """What is kept of one file.

    `step_rows` are step lines, `keep` bytes of lines around what was found, `whole` the bytes up to which a file is
    kept as it is. Of a signature `hits` are kept, besides the first of each wording and of each writer and the
    `last` ones; of a wording of harmless lines `harmless`; of any wording `contexts`, the lines around a hit; the first
    line of so many `writers`; and of a file that is not kept as it is the first lines (`head`) and the last ones (`tail`).
    """

    step_rows: int = MAX_ROWS
    keep: int = KEEP_BYTES
    whole: int = WHOLE_FILE
    hits: int = HITS_PER_SIGNATURE
    contexts: int = CONTEXTS_PER_WORDING
    harmless: int = HITS_PER_WORDING
    last: int = LAST_HITS
    writers: int = FIRST_LINES
    head: int = HEAD_LINES
    tail: int = TAIL_LINES

    def among(self, files: int) -> Room:
        """Return the room of each of so many files: what is kept of all of them together stays bounded.

        Hundreds of rank files say the same steps and warnings, and of tens of thousands not megabytes each can be held.
        """
        count = max(files, 1)
        return replace(
            self,
            step_rows=min(self.step_rows, max(_LEAST_STEP_ROWS, _ALL_STEP_ROWS // count)),
            keep=min(self.keep, max(_LEAST_KEPT, _ALL_KEPT // count)),
            whole=min(self.whole, max(_LEAST_WHOLE, _ALL_WHOLE // count)),
            hits=min(self.hits, max(_LEAST_HITS, _ALL_HITS // count)),
            contexts=min(self.contexts, max(_LEAST_CONTEXTS, _ALL_CONTEXTS // count)),
            last=min(self.last, max(_LEAST_LAST, _ALL_LAST // count)),
            writers=min(self.writers, max(_LEAST_WRITERS, _ALL_WRITERS // count)),
            head=min(self.head, max(_LEAST_HEAD, _ALL_HEADS // count)),
            tail=min(self.tail, max(_LEAST_TAIL, _ALL_TAILS // count)),
            harmless=min(self.harmless, max(_LEAST_HARMLESS, _ALL_HARMLESS // count)),
        )
