"""Who wrote a line, where it stands behind the message and not in front of it: `step 40 loss 2.1 (rank=11)`.

Some programs put the fields of their logger behind each message. The forms are data (`tails` in `labels.yaml`); a file
has one of them where nearly all lines of its beginning end so. Of many lines the numbers are read column by column.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.front_table import Writers
from rerail.log_parsers.labels import PATH
from rerail.log_parsers.piece import Piece

_NEARLY_ALL = 0.75
_LEAST_LINES, _LEAST_RANKS = 4, 2
_MOST_DIGITS = 6
_BLANKS, _MOST_BLANKS = " \t\r", 2
_LONGEST = 60  # characters of a tail
_END = 200  # bytes of a line in which its tail is looked for
_SHIFT = 20  # bits that hold a rank at the end of a line
_ESCAPE, _UNSEEN = b"\x1b", bytes(range(33)) + b"\x7f"


@dataclass(frozen=True, slots=True)
class Tail:
    """What stands around the rank at the end of the lines of a file."""

    before: str
    after: str

    def read(self, text: str) -> tuple[int, int] | None:
        """Return the rank that a line ends with and where its tail begins, or None."""
        text = text.rstrip(_BLANKS)
        if not text.endswith(self.after):
            return None
        stop = len(text) - len(self.after)
        start = stop
        while start and stop - start < _MOST_DIGITS and "0" <= text[start - 1] <= "9":
            start -= 1
        begin = start - len(self.before)
        if start == stop or begin < 0 or text[begin:start] != self.before:
            return None
        if begin and text[begin - 1] not in _BLANKS:
            return None
        return int(text[start:stop]), begin

    def write(self, rank: int) -> bytes:
        """Return the tail of the lines of a rank, as it stands behind a message."""
        return f" {self.before}{rank}{self.after}".encode()


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], ...]:
    return tuple(lazy(rf"{one['pattern']}$") for one in load_cached(PATH)["tails"])


def may_end_so(lines: Sequence[bytes]) -> bool:
    """Tell whether nearly all of some lines may end with a rank, before they are cleaned: cheap, and never wrongly not."""
    if any(_ESCAPE in line for line in lines):
        return True
    closing = load_cached(PATH)["tails_close"].encode()
    ends = [line.rstrip(_UNSEEN)[-3:].rstrip(closing) for line in lines if line[:1].strip()]
    return sum(end[-1:].isdigit() for end in ends) >= _NEARLY_ALL * len(ends) > 0


def tail_of(texts: Iterable[str], most_lines: int) -> Tail | None:
    """Return how nearly all of some lines, cleaned, end that are no part of a traceback; None where they do not.

    Args:
        texts: the lines; no more of them are taken than show that there is no such end.
        most_lines: how many there are.
    """
    told: Counter[Tail] = Counter()
    ranks: dict[Tail, set[str]] = {}
    count = others = 0
    for text in texts:
        if not text.strip() or text[0] in _BLANKS:
            continue
        count += 1
        text = text.rstrip(_BLANKS)
        near = max(0, len(text) - _LONGEST)
        found = next((m for one in _patterns() if (m := one.search(text, near)) is not None), None)
        if found is None:
            others += 1
            if others > (1 - _NEARLY_ALL) * most_lines:
                return None
        else:
            start, stop = found.span("rank")
            tail = Tail(text[found.start() : start], text[stop:])
            told[tail] += 1
            ranks.setdefault(tail, set()).add(found["rank"])
    if not told:
        return None
    tail, most = told.most_common(1)[0]
    several = len(ranks[tail]) >= _LEAST_RANKS and most >= _LEAST_LINES
    return tail if several and most >= _NEARLY_ALL * count else None


class TailedWriters:
    """The writers of a file whose lines tell the rank at their ends, beside what stands in front of them."""

    def __init__(self, tail: Tail, fronts: Writers) -> None:
        """Number the writers anew, given those of the fronts of lines."""
        self.writers = Writers()
        self._tail, self._fronts = tail, fronts
        self._ids: dict[int, int] = {0: 0}

    def of_lines(self, lines: Sequence[bytes], fronts: Sequence[int]) -> list[int]:
        """Return the streams of lines, given those of their fronts."""
        found = []
        for line, front in zip(lines, fronts, strict=True):
            told = self._tail.read(line[-_END:].decode("latin-1"))
            found.append(self._id(front, None if told is None else told[0]))
        return found

    def of_piece(self, piece: Piece, fronts: Any) -> Any:
        """Return the same for a piece of whole lines, as numpy arrays."""
        import numpy as np

        ranks = _ranks(piece, len(fronts), self._tail)
        codes = (fronts.astype(np.int64) << _SHIFT) + ranks + 1
        known, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        ids = np.zeros(len(known), np.int32)
        for at in np.argsort(first).tolist():  # streams are numbered in order of appearance
            code = int(known[at])
            found = self._ids.get(code)
            if found is None:
                rank = (code & ((1 << _SHIFT) - 1)) - 1
                found = self._id(code >> _SHIFT, None if rank < 0 else rank)
            ids[at] = found
        return ids[inverse.reshape(-1)]

    def _id(self, front: int, rank: int | None) -> int:
        code = (front << _SHIFT) + (0 if rank is None else rank + 1)
        found = self._ids.get(code)
        if found is None:
            example, end = self._fronts.examples[front], self._fronts.ends[front]
            if rank is None:
                found = self.writers.number(b"\0" + example[:end], example, end)
            else:
                tail = self._tail.write(rank)
                line = example + tail
                found = self.writers.number(example[:end] + tail, line, len(line))
            self._ids[code] = found
        return found


def _ranks(piece: Piece, count: int, tail: Tail) -> Any:
    """Return the rank that each line ends with, -1 where it ends otherwise."""
    import numpy as np

    raw, ends = np.frombuffer(piece.raw, np.uint8), np.asarray(piece.ends)[:count]
    starts = np.zeros(count, np.int64)
    np.add(ends[: count - 1], 1, out=starts[1:])
    at = ends - 1
    for _ in range(_MOST_BLANKS):
        at = at - _is_blank(raw, at)
    digits, at = _behind(raw, at, tail.after)
    values, scale, some = np.zeros(count, np.int64), 1, False
    for _ in range(_MOST_DIGITS):
        here = raw.take(at, mode="clip").astype(np.int64) - ord("0")
        digits = digits & (here >= 0) & (here <= 9)
        some = some | digits
        values += np.where(digits, here * scale, 0)
        at, scale = at - digits, 10 * scale
    fits, at = _behind(raw, at, tail.before)
    fits = fits & some & (at + 1 >= starts) & ((at < starts) | _is_blank(raw, at))
    return np.where(fits, values, -1)


def _is_blank(raw: Any, at: Any) -> Any:
    import numpy as np

    return np.isin(raw.take(at, mode="clip"), np.frombuffer(_BLANKS.encode(), np.uint8))


def _behind(raw: Any, at: Any, text: str) -> tuple[Any, Any]:
    """Tell of which lines the bytes up to a place are a text, and return the place in front of it."""
    import numpy as np

    fits: Any = np.bool_(True)
    for sign in reversed(text.encode()):
        fits = fits & (raw.take(at, mode="clip") == sign)
        at = at - 1
    return fits, at
