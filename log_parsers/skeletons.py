"""Collapses routine lines to counts while they stream by: stage 1 of template mining.

A line's skeleton is the line without digits and lower-case hex letters. Lines that differ in
numbers, pointers and times share one skeleton; deleting bytes is some fifty times cheaper than
masking by regular expression, and on the public 2k sets of 16 systems no two events ever shared
one. Only the few thousand different skeletons are looked at as text, by `templates`.

What a skeleton does not know: a word made of a-f alone (`bad`, `dead`) leaves no trace in it.
Signatures see the raw line, so such words belong there.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from rerail.late_dataclass import dataclass
from rerail.log_parsers.masks import mask_raw, protected_words
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.tallies import (
    DELETED,
    Tally,
    tally_large,
    tally_plain,
    vectors_at_hand,
    vectors_pay,
)

CAP = 120_000
"""Most skeletons kept per miner; beyond it rare ones are re-keyed by their masked text.

A worker that scans, mines and reads steps stays under 256 MB with so many (200,000 took 296 MB).
"""

_SAMPLE_HEAD, _SAMPLE_TAIL = 1_536, 512
_SAMPLE = _SAMPLE_HEAD + _SAMPLE_TAIL
_SAMPLE_BUDGET = 64 << 20  # bytes of samples: long lines reach it long before the cap
_KEY, _KEY_HEAD, _KEY_HASH = 256, 240, 17  # a longer key is cut and told apart by its hash


@dataclass(frozen=True, slots=True)
class Entry:
    """One skeleton: how often, on which first and last line, and the first raw line itself."""

    skeleton: bytes
    count: int
    first_line: int
    last_line: int
    sample: bytes


class SkeletonMiner:
    """Counts the skeletons of one file, whatever the pieces it is fed in.

    Frames of a progress bar (ended by a carriage return) count one by one and share the number of
    their line. Below the cap the result does not depend on where chunks end; above it the counts
    per masked text still do not. It can be pickled to cross a process boundary.
    """

    def __init__(self, *, cap: int = CAP, bulk: bool | None = None) -> None:
        self._frames = 0
        self._cap = cap
        self._bulk = bulk  # None: decide by size
        self._index: dict[bytes, int] = {}
        self._counts = array("q")
        self._firsts = array("q")
        self._lasts = array("q")
        self._samples: list[bytes] = []
        self._sample_bytes = 0
        self._open: _OpenFrame | None = None

    @property
    def frames(self) -> int:
        """Lines and progress frames seen so far."""
        return self._frames + (self._open is not None)

    def __len__(self) -> int:
        self._close()
        return len(self._index)

    def __getstate__(self) -> tuple[Any, ...]:
        self._close()
        keys = list(self._index)  # in the order of the columns: a key comes with its row
        columns = (self._counts, self._firsts, self._lasts, self._samples)
        return (self._frames, self._cap, self._bulk, keys, *columns)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._frames, self._cap, self._bulk, keys, *columns = state
        self._counts, self._firsts, self._lasts, self._samples = columns
        self._index = {key: at for at, key in enumerate(keys)}
        self._sample_bytes = sum(map(len, self._samples))
        self._open = None

    @property
    def between_lines(self) -> bool:
        """Whether the last chunk ended with a line, so that a tally of the next can be added."""
        return self._open is None

    def add(self, tally: Tally) -> None:
        """Count a piece of whole lines that has been tallied; only where `between_lines`."""
        self._add(tally)
        self._limit()

    def feed(self, chunk: bytes, first_line: int, *, bulk: bool | None = None) -> None:
        """Count the frames of `chunk`, whose first byte stands on line `first_line` (from 1).

        A chunk that ends inside a line is continued by the next one. `bulk` is the answer of
        `vectors_pay` where the caller has asked already: it counts what the process reads.
        """
        if self._open is not None:
            end = _first_end(chunk)
            if end < 0:
                self._open.add(chunk)
                return
            self._open.add(chunk[:end])
            self._close()
            first_line += chunk[end] == 10
            chunk = chunk[end + 1 :]
        if not chunk:
            return
        if chunk[-1] != 10:
            cut = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
            if cut < len(chunk):
                self._open = _OpenFrame(first_line + chunk.count(b"\n", 0, cut))
                self._open.add(chunk[cut:])
                chunk = chunk[:cut]
        if chunk:
            self._add(
                tally_large(Piece(chunk), first_line)
                if self._use_bulk(len(chunk), bulk)
                else tally_plain(chunk, first_line)
            )
        self._limit()

    def merge(self, other: SkeletonMiner) -> None:
        """Add what `other` counted, as if its lines had been fed here."""
        self._close()
        other._close()
        self._frames += other.frames
        for e in other.entries():
            at = self._index.get(e.skeleton)
            # Two files may hold a skeleton on the same line: the order of merging must not decide.
            if at is not None and e.first_line == self._firsts[at] and e.sample < self._samples[at]:
                self._replace(at, e.first_line, e.sample)
            self._put(e.skeleton, e.count, e.first_line, e.last_line, e.sample)
        self._limit()

    def entries(self) -> Iterator[Entry]:
        """Yield every skeleton in order of its first line."""
        self._close()
        return self._sorted()

    def _sorted(self) -> Iterator[Entry]:
        order = sorted(self._index.items(), key=lambda item: (self._firsts[item[1]], item[0]))
        for key, at in order:
            yield Entry(key, self._counts[at], self._firsts[at], self._lasts[at], self._samples[at])

    def _use_bulk(self, size: int, pays: bool | None) -> bool:
        if self._bulk is not None:
            return self._bulk and vectors_at_hand()
        return vectors_pay(size) if pays is None else pays

    def _close(self) -> None:
        if self._open is None:
            return
        key, sample = self._open.finish()
        line = self._open.line
        self._open = None
        self._frames += 1
        self._put(key, 1, line, line, sample)

    def _add(self, tally: Tally) -> None:
        self._frames += tally.frames
        index, counts, firsts, lasts = self._index, self._counts, self._firsts, self._lasts
        for key, count, first, last, frame in zip(
            tally.keys, tally.counts, tally.firsts, tally.lasts, tally.places, strict=True
        ):
            if len(key) > _KEY:
                key = _short(key)
            at = index.get(key)
            if at is None:
                self._put(key, count, first, last, _sample(tally.raw(frame)))
                continue
            counts[at] += count
            if last > lasts[at]:
                lasts[at] = last
            if first < firsts[at]:
                self._replace(at, first, _sample(tally.raw(frame)))

    def _put(self, key: bytes, count: int, first: int, last: int, sample: bytes) -> None:
        at = self._index.get(key)
        if at is None:
            self._index[key] = len(self._samples)
            self._counts.append(count)
            self._firsts.append(first)
            self._lasts.append(last)
            self._samples.append(sample)
            self._sample_bytes += len(sample)
            return
        self._counts[at] += count
        self._lasts[at] = max(self._lasts[at], last)
        if first < self._firsts[at]:
            self._replace(at, first, sample)

    def _replace(self, at: int, first: int, sample: bytes) -> None:
        self._firsts[at] = first
        self._sample_bytes += len(sample) - len(self._samples[at])
        self._samples[at] = sample

    def _limit(self) -> None:
        """Re-key rare skeletons by their masked text, then by their severity words, if too many.

        Stage 2 groups by masked text first, so the counts of templates stay exact until the second
        step, which only a file of random words ever needs.
        """
        for most, rekey in (
            (1, _by_mask),
            (8, _by_mask),
            (1 << 62, _by_mask),
            (1 << 62, _by_words),
        ):
            if len(self._index) <= self._cap and self._sample_bytes <= _SAMPLE_BUDGET:
                return
            self._rekey(most, rekey)
            # Leave room, or the next chunk would bring the whole work back.
            if len(self._index) <= self._cap * 3 // 4 and self._sample_bytes <= _SAMPLE_BUDGET // 2:
                return

    def _rekey(self, most: int, rekey: Callable[[bytes, bytes], bytes]) -> None:
        # Columns are walked in place: this runs when memory is shortest.
        keys, counts, firsts = list(self._index), self._counts, self._firsts
        lasts, samples = self._lasts, self._samples
        self._index, self._samples, self._sample_bytes = {}, [], 0
        self._counts, self._firsts, self._lasts = array("q"), array("q"), array("q")
        order = sorted(range(len(keys)), key=keys.__getitem__)
        order.sort(key=firsts.__getitem__)
        for at in order:
            key = rekey(keys[at], samples[at]) if counts[at] <= most else keys[at]
            self._put(key, counts[at], firsts[at], lasts[at], samples[at])
            keys[at] = samples[at] = b""


class _OpenFrame:
    """A frame whose end has not been read yet; bounded, however long the line gets."""

    def __init__(self, line: int) -> None:
        self.line = line
        self._raw = b""
        self._tail: bytes | None = None
        self._skeleton = b""
        self._hash: Any = None

    def add(self, piece: bytes) -> None:
        skeleton = piece.translate(None, DELETED)
        if self._hash is not None:
            self._hash.update(skeleton)
        elif len(self._skeleton) + len(skeleton) > _KEY:
            whole = self._skeleton + skeleton
            self._hash = hashlib.blake2b(whole, digest_size=_KEY_HASH)
            self._skeleton = whole[:_KEY_HEAD]
        else:
            self._skeleton += skeleton
        piece = piece.replace(b"\x00", b"")
        if self._tail is not None:
            self._tail = (self._tail + piece)[-_SAMPLE_TAIL:]
            return
        self._raw += piece
        if len(self._raw) > _SAMPLE:
            self._raw, self._tail = self._raw[:_SAMPLE_HEAD], self._raw[-_SAMPLE_TAIL:]

    def finish(self) -> tuple[bytes, bytes]:
        key = self._skeleton + self._hash.digest() if self._hash is not None else self._skeleton
        return key, self._raw if self._tail is None else self._raw + b" ... " + self._tail


def _short(skeleton: bytes) -> bytes:
    # One byte longer than the longest whole key, so the two kinds never meet.
    return skeleton[:_KEY_HEAD] + hashlib.blake2b(skeleton, digest_size=_KEY_HASH).digest()


def _sample(raw: bytes) -> bytes:
    if b"\x00" in raw:
        raw = raw.replace(b"\x00", b"")
    if len(raw) <= _SAMPLE:
        return raw
    return raw[:_SAMPLE_HEAD] + b" ... " + raw[-_SAMPLE_TAIL:]


def _by_mask(key: bytes, sample: bytes) -> bytes:
    if key.startswith(b"\x00"):  # re-keyed before; no skeleton holds a NUL
        return key
    return b"\x00" + hashlib.blake2b(mask_raw(sample).encode(), digest_size=8).digest()


def _by_words(_key: bytes, sample: bytes) -> bytes:
    text = mask_raw(sample)
    shape = f"{text.count(' ')} {protected_words(text)}"
    number = int.from_bytes(hashlib.blake2b(shape.encode(), digest_size=8).digest(), "big")
    return b"\x00\x00%d" % (number % 4096)


def _first_end(chunk: bytes) -> int:
    lf = chunk.find(b"\n")
    cr = chunk.find(b"\r", 0, lf if lf >= 0 else len(chunk))
    return cr if cr >= 0 else lf
