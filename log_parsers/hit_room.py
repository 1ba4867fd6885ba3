"""Which hits of a file are kept word for word; all of them are counted in any case."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rerail.log_parsers.candidate_line import CandidateLine, harmless_of, stem
from rerail.log_parsers.room import HITS_PER_WORDING, Room
from rerail.log_parsers.scan import Signature
from rerail.log_parsers.streams import NOBODY

STREAMS_PER_SIGNATURE = 4096
WORDINGS = 20_000

Wording = tuple[int, bytes]
"""A signature, and a line that shows it without what varies from line to line."""


class HitRoom:
    """Decides it line by line, in their order.

    Of a signature the first hits are kept, and beyond them the first ones of each wording and that of each writer.
    Of what is harmless only the first ones of each wording are, and they use up no room of the others: a warning
    printed all day says no more the second time, and who prints it is counted.
    """

    def __init__(self, signatures: Sequence[Signature], room: Room) -> None:
        self._signatures = signatures
        self._room = room
        self._harmless = harmless_of(signatures)
        self._kept: dict[int, int] = {}
        self._wordings: dict[Wording, int] = {}
        self._full: set[Wording] = set()
        self._warned: set[Wording] = set()  # those of them that were so in harmless lines
        self.present: set[int] = set()
        """Signatures of which one line is wanted, and was found."""
        self.returns = False
        """Whether the lines of the file end with a carriage return as well."""
        self.streams: defaultdict[int, set[int]] = defaultdict(set)
        """Where each signature was seen in lines that are not harmless."""

    def kept_of(self, line: CandidateLine, shown: tuple[int, ...]) -> list[tuple[int, bool]]:
        """Return which signatures of those that a line shows are kept, and whether the lines around it are."""
        if all(self._settled(index, line) for index in shown):
            return []
        harmless = self._harmless.of(shown, line)
        kept: list[tuple[int, bool]] = []
        for index in shown:
            wording = index, line.stem
            same = self._wordings.get(wording, 0)
            if harmless:
                if not self._has_room_for_few(wording, same):
                    continue
            else:
                new = index in line.cut or self._is_new(index, line.stream)
                if not self._has_room(wording, same) and not new:
                    continue
                self._kept[index] = self._kept.get(index, 0) + 1
            if same or len(self._wordings) < WORDINGS:
                self._wordings[wording] = same + 1
            wanted = self._signatures[index].wants_context and not harmless
            kept.append((index, wanted and same < self._room.contexts))
        return kept

    def only_counted(self, index: int, text: bytes) -> bool:
        """Tell whether of a signature in lines with this text nothing is kept any more, but of new writers."""
        # A stem is that of the line as its file holds it.
        line = text.removesuffix(b"\n") + (b"\r" if self.returns else b"")
        return (index, stem(line)) in self._full

    def known(self, index: int, line: CandidateLine) -> bool:
        """Tell whether a signature in a line like this one by this writer was kept often enough."""
        wording = index, line.stem
        if wording not in self._full:
            return False
        return line.stream in self.streams[index] or wording in self._warned

    def _settled(self, index: int, line: CandidateLine) -> bool:
        full = (index, line.stem) in self._full
        return full and line.stream in self.streams[index] and index not in line.cut

    def harmless(self, shown: tuple[int, ...], text: bytes) -> bool:
        """Tell whether all lines with this zeroed text that show these signatures are known to be harmless."""
        return self._harmless.of_text(shown, text)

    def _has_room_for_few(self, wording: Wording, same: int) -> bool:
        if same < self._room.harmless and (same or len(self._wordings) < WORDINGS):
            return True
        self._fill(wording)
        if wording in self._full:
            self._warned.add(wording)
        return False

    def _has_room(self, wording: Wording, same: int) -> bool:
        """Tell whether a hit is kept whoever wrote it; once it is not, it never is again."""
        if self._kept.get(wording[0], 0) < self._room.hits:
            return True
        # A warning printed all day must not use up the room of the exception that ends the job,
        # where one broad signature finds both.
        if same < HITS_PER_WORDING and len(self._wordings) < WORDINGS:
            return True
        self._fill(wording)
        return False

    def _fill(self, wording: Wording) -> None:
        if len(self._full) < WORDINGS:
            self._full.add(wording)

    def _is_new(self, index: int, stream: int) -> bool:
        """Tell whether a signature is seen in a stream for the first time; so many streams are kept."""
        streams = self.streams[index]
        if stream in streams:
            return False
        streams.add(stream)
        return stream != NOBODY and len(streams) <= STREAMS_PER_SIGNATURE
