"""Masks the secrets of a log while it is read, before any other reader sees a byte.

It runs on pieces of raw bytes and returns as many lines as it was given. Between pieces it remembers
nothing but which blocks of many lines (private keys) are open and how many lines they may still have,
so memory stays bounded. A compiled set of all kinds proposes lines; `redact_line` masks them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from rerail.cached_yaml import cache_folder
from rerail.kept_patterns import kept_pattern
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.piece import Piece, line_ends, rows_of
from rerail.log_parsers.redaction import (
    MASK,
    SecretKind,
    compiled,
    looks_random,
    redact_line,
    secret_kinds,
)
from rerail.log_parsers.scan import (
    SMALL,
    Scanner,
    Signature,
    compiled_at_hand,
    make_scanner,
    searchable,
)
from rerail.log_parsers.secret_sieve import SecretSieve
from rerail.log_parsers.text import strip_escapes

_MOST_BLOCKS, _MOST_LINES = 8, 400
_ROOM, _ENTRY = 2 << 20, 100  # bytes of lines without secrets that are remembered, and of an entry
_MASK = MASK.encode()
_DIGITS = b"0123456789"
_BEGIN = lazy(
    rb"-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d"
    rb"|---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----"
)
_END = lazy(rb"---- ?END[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?|Private-MAC:")
# Base64 that is all there is behind the label of a line, or in front of a quoted line end.
_BODY = lazy(rb"[ \t]*(?P<v>[A-Za-z0-9+/]{16,}={0,3})(?=[ \t\r]*$|\\[nr]|[\"'])")
_LAST = lazy(rb"[ \t]*(?P<v>=?[A-Za-z0-9+/]{1,15}={0,3})(?=[ \t\r]*$|\\[nr]|[\"'])")
_WORD = lazy(rb"[A-Za-z]{1,11}")
# Base64 anywhere: the label of this line differs from that of the first.
_LONG = lazy(
    rb"(?<![A-Za-z0-9+/=._-])(?P<v>[A-Za-z0-9+][A-Za-z0-9+/]{39,}={0,2})(?![A-Za-z0-9+/=._-])"
)
_INVISIBLE = lazy(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xaf]|\xef\xbb\xbf|\xd8\x9c"
    rb"|\xf3\xa0[\x80-\x81][\x80-\xbf]|\xef\xbf[\xb9-\xbb]"
)  # fmt: skip


@dataclass(slots=True)
class _Block:
    """An open block: what stood in front of its first line, without digits; lines it may have."""

    label: bytes
    left: int = _MOST_LINES
    body: bool = False


class Redactor:
    """Masks one stream of bytes; pieces end with a line wherever there is a line end."""

    def __init__(self) -> None:
        self._open: list[_Block] = []
        self._seen = 0
        # Lines that were looked at and hold no secret: programs print the same ones again.
        self._without: set[bytes] = set()
        self._masked: dict[bytes, bytes] = {}
        self._room = _ROOM

    def feed(self, chunk: bytes) -> bytes:
        """Return the piece with its secrets masked: the same object where there is none."""
        return self.mask(Piece(chunk), 1, tally=False).raw

    def mask(self, piece: Piece, first_line: int, *, tally: bool) -> Piece:
        """Return the piece with its secrets masked; `tally` says that its skeletons are counted anyhow."""
        chunk = piece.raw
        self._seen += len(chunk)
        sieve = _sieve() if tally and chunk.endswith(b"\n") else None
        found, clean = (
            (_rows(_visible(chunk), large=self._seen > SMALL), False)
            if sieve is None
            else _sieved(piece, sieve, sieve.rows(piece.tally(first_line)))
        )
        if not self._open and (clean or not found):
            return piece
        lines = chunk.split(b"\n")
        changed = False
        row = 0
        waiting = iter(sorted(found))
        next_row = next(waiting, None)
        while row < len(lines):
            if not self._open:
                if next_row is None:
                    break
                row = max(row, next_row)
            line = lines[row]
            asked = next_row is not None and row >= next_row
            if asked:
                next_row = next(waiting, None)
            known = not self._open and line in self._without
            masked = line if known else self._known_mask(line) or self._line(line, asked)
            if masked is not line:
                lines[row], changed = masked, True
            row += 1
        if sieve is not None and (without := [row for row in found if lines[row] in self._without]):
            sieve.hold_none(piece, without)
        return Piece(b"\n".join(lines)) if changed else piece

    def _known_mask(self, line: bytes) -> bytes | None:
        """Return what became of such a line before, where no block is open."""
        return None if self._open else self._masked.get(line)

    def _line(self, raw: bytes, asked: bool) -> bytes:
        line, open_before = raw, bool(self._open)
        if b"\x1b" in line or not line.isascii() or b"\x00" in line:
            line = _INVISIBLE.sub(b"", strip_escapes(line))
        seen = line
        if self._open:
            line = self._inside(line)
        begin = _BEGIN.search(line) if asked else None
        if begin is not None and _END.search(line, begin.end()) is None:
            if len(self._open) == _MOST_BLOCKS:
                del self._open[0]
            self._open.append(_Block(line[: begin.start()].translate(None, _DIGITS)))
        if asked:
            line = redact_line(line)
        # A line without a secret stays as it was printed, colours included.
        if line != seen:
            if begin is None and not open_before and self._room > 0:
                self._room -= len(raw) + len(line) + _ENTRY
                self._masked[raw] = line
            return line
        if asked and begin is None and len(raw) < _ROOM and self._room > 0:
            self._room -= len(raw) + _ENTRY
            self._without.add(raw)
        return raw

    def _inside(self, line: bytes) -> bytes:
        """Mask what of a line belongs to an open block, and close the blocks that end."""
        end, begin = _END.search(line), _BEGIN.search(line)
        if end is not None and begin is not None and begin.start() < end.start():
            return line  # a whole key on one line ends no other one
        if end is not None:
            label = line[: end.start()].translate(None, _DIGITS)
            own = [block for block in self._open if block.label == label]
            if not own and len(self._open) == 1:
                own = self._open
            if own:
                self._open.remove(own[0])
            return line
        for block in list(self._open):
            block.left -= 1
            if block.left <= 0:
                self._open.remove(block)
                continue
            start = _behind(line, block.label)
            if start is None:
                continue
            match = _BODY.match(line, start)
            if match is None and block.body:
                match = _LAST.match(line, start)
                if match is not None and _WORD.fullmatch(match["v"]):
                    match = None  # `Killed` is no end of a key
            if match is not None:
                block.body = len(match["v"]) >= 16
                return line[: match.start("v")] + _MASK + line[match.end("v") :]
        return _LONG.sub(lambda m: _MASK if looks_random(m["v"]) else m[0], line)


def _behind(line: bytes, label: bytes) -> int | None:
    """Return where a line goes on behind a label, whatever its digits (a rank, a time); else None."""
    at = place = 0
    while place < len(label):
        if at >= len(line):
            return None
        if line[at] == label[place]:
            at, place = at + 1, place + 1
        elif line[at : at + 1].isdigit():
            at += 1
        else:
            return None
    return at


def _visible(chunk: bytes) -> bytes:
    """Return a piece without what hides the letters of a secret from a search; lines keep their rows."""
    text = searchable(chunk)
    return text if text.isascii() else _INVISIBLE.sub(b"", text)


def _sieved(piece: Piece, sieve: SecretSieve, rows: Any) -> tuple[set[int], bool]:
    """Return the rows that may hold a secret, of those that ask for a look, and whether it is known that none does."""
    if rows is None:
        return set(), True
    return sieve.looked_at(piece, rows, lambda some: _looked_at(piece, some))


def _looked_at(piece: Piece, rows: Any) -> set[int]:
    from rerail.log_parsers.sieve import searchable_lines

    text, stops = searchable_lines(piece, rows)
    if not text.isascii():
        return set(rows.tolist())
    ends = [max(end - 1, 0) for end, _ in _scanner().candidates(text)]
    return set(rows[stops.searchsorted(sorted(set(ends)))].tolist()) if ends else set()


def _rows(text: bytes, *, large: bool) -> set[int]:
    """Return the rows of the lines that may hold a secret."""
    scanner = _scanner_for(large)
    if scanner is None:
        return _rows_by_words(text)
    ends = {max(end - 1, 0) for end, _ in scanner.candidates(text)}
    if not ends:
        return set()
    return set(rows_of(sorted(ends), line_ends(text)))


def _rows_by_words(text: bytes) -> set[int]:
    lower = text.lower()
    ends: set[int] = set()
    for at, kind in enumerate(secret_kinds()):
        if not any(word in lower for word in kind.words):
            continue
        if kind.behind:
            ends.update(_behind_words(lower, kind))
        else:
            ends.update(match.end() for match in compiled(at).finditer(text))
    return set(rows_of(sorted(ends), line_ends(text))) if ends else set()


def _behind_words(lower: bytes, kind: SecretKind) -> Iterator[int]:
    """Yield the ends of words that have behind them what a kind asks for: searches for words are far quicker."""
    behind = _compiled_behind(kind.behind)
    for word in kind.words:
        at = lower.find(word)
        while at >= 0:
            at += len(word)
            if behind.match(lower, at):
                yield at
            at = lower.find(word, at)


@lru_cache(maxsize=16)
def _compiled_behind(pattern: str) -> re.Pattern[bytes]:
    return kept_pattern(pattern.encode(), re.IGNORECASE)


_of_thread = threading.local()  # a scanner's scratch space serves one thread


def _scanner_for(large: bool) -> Scanner | None:
    """Return the compiled set of all kinds; None where compiling would take longer than looking."""
    if (
        not large
        and not _of_thread.__dict__
        and not compiled_at_hand(_signatures(), cache_folder())
    ):
        return None
    return _scanner()


def _scanner() -> Scanner:
    made: Scanner | None = getattr(_of_thread, "made", None)
    if made is None:
        made = _of_thread.made = make_scanner(_signatures(), cache=cache_folder())
    return made


def _sieve() -> SecretSieve | None:
    made: SecretSieve | None = getattr(_of_thread, "sieve", None)
    if made is None:
        patterns = [kind.pattern for kind in secret_kinds()]
        made = _of_thread.sieve = SecretSieve(patterns, _INVISIBLE, cache_folder())
    return made if made.usable else None


@lru_cache(maxsize=1)
def _signatures() -> tuple[Signature, ...]:
    return tuple(Signature(kind.pattern, loose=True) for kind in secret_kinds())


def cut_of(held: bytes, *, near: int = 1 << 16, around: int = 4096) -> int:
    """Return where an endless line may be cut without cutting a secret: behind a blank, if there is one."""
    for _ in range(16):
        at = held.rfind(b" ", max(0, len(held) - near), max(0, len(held) - around)) + 1
        if at == 0:
            break
        left, right = held[max(0, at - around) : at], held[at : at + around]
        if redact_line(left + right) == redact_line(left) + redact_line(right):
            return at
        around = len(held) - at + 1
    return len(held)
