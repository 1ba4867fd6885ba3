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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from rerail.log_parsers.masks import mask_raw, protected_words

CAP = 120_000
"""Most skeletons kept per miner; beyond it rare ones are re-keyed by their masked text.

A worker that scans, mines and reads steps stays under 256 MB with so many (200,000 took 296 MB).
"""

_SAMPLE_HEAD, _SAMPLE_TAIL = 1_536, 512
_SAMPLE = _SAMPLE_HEAD + _SAMPLE_TAIL
_SAMPLE_BUDGET = 64 << 20  # bytes of samples: long lines reach it long before the cap
_KEY, _KEY_HEAD, _KEY_HASH = 256, 240, 17  # a longer key is cut and told apart by its hash

_LF = 10
_DELETE = b"0123456789abcdef\x00"
_CR_TO_LF = bytes.maketrans(b"\r", b"\n")
_NOT_ENDS = bytes(i for i in range(256) if i not in b"\r\n")
_LF_TO_ONE = bytes.maketrans(b"\r\n", b"\x00\x01")

# Arrow is quicker per byte, but importing it costs as much as mining some 50 MB without it.
_ARROW_CHUNK = 1 << 17
_ARROW_AFTER = 48 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One skeleton: how often, on which first and last line, and the first raw line itself."""

    skeleton: bytes
    count: int
    first_line: int
    last_line: int
    sample: bytes


class _Tally(NamedTuple):
    """The distinct skeletons of one chunk: (key, count, first line, last line, first frame)."""

    frames: int
    rows: Iterable[tuple[bytes, int, int, int, int]]
    raw: Callable[[int], bytes]


class SkeletonMiner:
    """Counts the skeletons of one file, whatever the pieces it is fed in.

    Frames of a progress bar (ended by a carriage return) count one by one and share the number of
    their line. Below the cap the result does not depend on where chunks end; above it the counts
    per masked text still do not. It can be pickled to cross a process boundary.
    """

    def __init__(self, *, cap: int = CAP, arrow: bool | None = None) -> None:
        self._frames = 0
        self._cap = cap
        self._arrow = arrow  # None: decide by size
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
        return (self._frames, self._cap, self._arrow, keys, *columns)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._frames, self._cap, self._arrow, keys, *columns = state
        self._counts, self._firsts, self._lasts, self._samples = columns
        self._index = {key: at for at, key in enumerate(keys)}
        self._sample_bytes = sum(map(len, self._samples))
        self._open = None

    def feed(self, chunk: bytes, first_line: int) -> None:
        """Count the frames of `chunk`, whose first byte stands on line `first_line` (from 1).

        A chunk that ends inside a line is continued by the next one.
        """
        if self._open is not None:
            end = _first_end(chunk)
            if end < 0:
                self._open.add(chunk)
                return
            self._open.add(chunk[:end])
            self._close()
            first_line += chunk[end] == _LF
            chunk = chunk[end + 1 :]
        if not chunk:
            return
        if chunk[-1] != _LF:
            cut = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
            if cut < len(chunk):
                self._open = _OpenFrame(first_line + chunk.count(b"\n", 0, cut))
                self._open.add(chunk[cut:])
                chunk = chunk[:cut]
        if chunk:
            self._add(
                _tally_arrow(chunk, first_line)
                if self._use_arrow(len(chunk))
                else _tally_plain(chunk, first_line)
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

    def _use_arrow(self, size: int) -> bool:
        if self._arrow is not None:
            return self._arrow and _modules() is not None
        return size >= _ARROW_CHUNK and _arrow_pays(size)

    def _close(self) -> None:
        if self._open is None:
            return
        key, sample = self._open.finish()
        line = self._open.line
        self._open = None
        self._frames += 1
        self._put(key, 1, line, line, sample)

    def _add(self, tally: _Tally) -> None:
        self._frames += tally.frames
        index, counts, firsts, lasts = self._index, self._counts, self._firsts, self._lasts
        for key, count, first, last, frame in tally.rows:
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
        skeleton = piece.translate(None, _DELETE)
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


def _line_numbers(chunk: bytes, first_line: int) -> list[int] | None:
    """Return the line of each frame, or None where every frame is a line."""
    if b"\r" not in chunk:
        return None
    steps = chunk.translate(_LF_TO_ONE, _NOT_ENDS)
    return list(accumulate(steps[:-1], initial=first_line))


def _tally_plain(chunk: bytes, first_line: int) -> _Tally:
    """Count the skeletons of whole frames with the standard library alone."""
    frames = chunk.translate(_CR_TO_LF, _DELETE).split(b"\n")
    frames.pop()
    total = len(frames)
    last = dict(zip(frames, range(total), strict=True))
    first = dict(zip(reversed(frames), range(total - 1, -1, -1), strict=True))
    numbers = _line_numbers(chunk, first_line)
    raws: list[bytes] = []

    def raw(frame: int) -> bytes:
        if not raws:
            raws.extend(chunk.translate(_CR_TO_LF).split(b"\n"))
        return raws[frame]

    def rows() -> Iterator[tuple[bytes, int, int, int, int]]:
        for key, count in Counter(frames).items():
            a, b = first[key], last[key]
            if numbers is None:
                yield key, count, first_line + a, first_line + b, a
            else:
                yield key, count, numbers[a], numbers[b], a

    return _Tally(total, rows(), raw)


def _tally_arrow(chunk: bytes, first_line: int) -> _Tally:
    """Count the skeletons of whole frames with numpy and pyarrow, several times as fast."""
    modules = _modules()
    assert modules is not None
    np, pa = modules
    skeletons = chunk.translate(_CR_TO_LF, _DELETE)
    ends = np.flatnonzero(np.frombuffer(skeletons, np.uint8) == _LF)
    total = len(ends)
    offsets = np.empty(total + 1, np.int32)
    offsets[0] = 0
    np.add(ends, 1, out=offsets[1:], casting="unsafe")  # each value ends with its line feed
    values = pa.Array.from_buffers(
        pa.binary(), total, [None, pa.py_buffer(offsets), pa.py_buffer(skeletons)]
    )
    codes = values.dictionary_encode().indices.to_numpy()
    # Codes are given in order of appearance: a code above all before it is a first occurrence.
    highest = np.maximum.accumulate(codes)
    first = np.flatnonzero(np.diff(highest, prepend=-1))
    counts = np.bincount(codes, minlength=len(first))
    last = np.empty(len(first), np.int64)
    last[codes] = np.arange(total)
    starts, stops = offsets[first].tolist(), ends[first].tolist()
    keys = [skeletons[a:b] for a, b in zip(starts, stops, strict=True)]
    frame_list = first.tolist()
    if b"\r" in chunk:
        steps = np.frombuffer(chunk.translate(_LF_TO_ONE, _NOT_ENDS), np.uint8)
        numbers = np.cumsum(steps, dtype=np.int64) - steps + first_line
        first_numbers, last_numbers = numbers[first].tolist(), numbers[last].tolist()
    else:
        first_numbers, last_numbers = (first + first_line).tolist(), (last + first_line).tolist()
    ends_of_raw: list[Any] = []

    def raw(frame: int) -> bytes:
        if not ends_of_raw:
            whole = np.frombuffer(chunk, np.uint8)
            is_end = whole == _LF
            if b"\r" in chunk:
                is_end |= whole == 13
            ends_of_raw.append(np.flatnonzero(is_end))
        at = ends_of_raw[0]
        return chunk[at[frame - 1] + 1 if frame else 0 : at[frame]]

    rows = zip(keys, counts.tolist(), first_numbers, last_numbers, frame_list, strict=True)
    return _Tally(total, rows, raw)


_seen_bytes = 0
_loaded: Sequence[tuple[Any, Any] | None] = ()


def _arrow_pays(size: int) -> bool:
    """Return whether this process has mined enough bytes to earn the import."""
    global _seen_bytes
    _seen_bytes += size
    return _seen_bytes > _ARROW_AFTER and _modules() is not None


def _modules() -> tuple[Any, Any] | None:
    global _loaded
    if not _loaded:
        try:
            import numpy
            import pyarrow
        except ImportError:
            _loaded = (None,)
        else:
            _loaded = ((numpy, pyarrow),)
    return _loaded[0]
