"""Bytes of a log line into text that is safe to show: decoded, without control characters.

Logs are written by attackers too: an escape sequence could rewrite the engineer's terminal, a
bidirectional override could show a host name backwards. Both are taken out here, once, for every
reader behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from rerail.lazy_patterns import lazy

MAX_LINE = 16_384
"""Longest line kept, in bytes; of a longer one the head and the tail stay."""

# CSI, OSC (ended by BEL or ST), and two-byte escapes, in that order (ECMA-48, 5.4 and 5.6).
_ESCAPES = lazy(
    rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)|\x1b[@-Z\\^_P-X]|\x1b[ -/]+."
)
# C0 without tab, DEL, C1, bidirectional marks and isolates, zero-width characters, line and
# paragraph separators, byte-order mark, interlinear annotations, tag characters.
_UNSAFE = lazy(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)

# What changes from one frame of a progress bar to the next: numbers, the bar, the unit of its rate.
_FRAMES = 3
_SWAPPED = lazy(rb"s/it")
_DRAWN = bytes(i for i in range(256) if not (65 <= i <= 90 or 97 <= i <= 122))

ZERO = bytes(48 if 48 <= i <= 57 else i for i in range(256))
"""For `bytes.translate`: every digit becomes 0, so that lines that differ in numbers alone are equal."""


def without_digits(text: str) -> str:
    """Return a text without its digits: lines that differ in numbers alone are equal so."""
    return "".join(sign for sign in text if not sign.isdigit())


def strip_escapes(raw: bytes) -> bytes:
    """Return `raw`, one line or many, without terminal escape sequences; newlines stay."""
    return _ESCAPES.sub(b"", raw)


def clean(raw: bytes, *, focus: int | None = None) -> str:
    """Return one raw line as safe text.

    Carriage-return frames (progress bars) are joined by a space; of many that differ in nothing but
    numbers the first and the last stay. A line longer than `MAX_LINE`
    bytes is cut: around `focus`, a byte offset, when one is given, else to its head and tail.
    """
    if len(raw) > MAX_LINE:
        raw = _shorten(raw, focus)
    raw = raw.rstrip(b"\r\n")
    if b"\x1b" in raw:
        raw = strip_escapes(raw)
    if b"\r" in raw:
        raw = b" ".join(_told(frame for frame in raw.split(b"\r") if frame))
    text = raw.decode("utf-8", errors="replace")
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub("", text)


def _told(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the frames of a line; of a run of the same letters the first and the last."""
    for _, run in groupby(
        frames, lambda frame: _SWAPPED.sub(b"it/s", frame).translate(None, _DRAWN)
    ):
        same = list(run)
        yield from same if len(same) <= _FRAMES else (same[0], b"...", same[-1])


def _shorten(raw: bytes, focus: int | None) -> bytes:
    half = MAX_LINE // 2
    if focus is None:
        return raw[:half] + b" ... " + raw[-half:]
    start = max(0, focus - half)
    return raw[start : start + MAX_LINE]
