"""The ways in which log files come damaged; each is made of a file's bytes and one source of randomness.

Some lose nothing that a reader could not find again: behind those the diagnosis must be what it was.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
from collections.abc import Callable
from dataclasses import dataclass

Make = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True, slots=True)
class Damage:
    """One way: its name, what it makes of a file, and whether all that was readable still is.

    `meanwhile` damages happen when the file is opened, as those of a job that still runs do.
    """

    name: str
    make: Make
    lossless: bool = False
    meanwhile: bool = False


def _line_ends(data: bytes, rng: random.Random) -> bytes:
    return (
        b"".join(
            line + (b"\r\n" if rng.random() < 0.5 else b"\n") for line in data.split(b"\n")[:-1]
        )
        or data
    )


def _between(data: bytes, rng: random.Random, piece: bytes) -> bytes:
    """Put something on a line of its own at the end, where no traceback is cut in two."""
    del rng
    return data + (b"" if data.endswith(b"\n") or not data else b"\n") + piece + b"\n"


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _without_head(data: bytes, rng: random.Random) -> bytes:
    return data[rng.randrange(len(data) + 1) :]


def _without_middle(data: bytes, rng: random.Random) -> bytes:
    a, b = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    return data[:a] + data[b:]


def _flip(data: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 10, 1_000)) if damaged else 0):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _zero(data: bytes, rng: random.Random) -> bytes:
    a = rng.randrange(len(data) + 1)
    return data[:a] + b"\0" * rng.choice((1, 4_096, 200_000)) + data[a + rng.choice((0, 4_096)) :]


def _noise(data: bytes, rng: random.Random) -> bytes:
    a = rng.randrange(len(data) + 1)
    return data[:a] + rng.randbytes(rng.choice((16, 4_096, 100_000))) + data[a:]


def _one_line(data: bytes, rng: random.Random) -> bytes:
    return data.replace(b"\n", rng.choice((b" ", b"\r", b"\0")))


def _shuffled(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


def _recoded(data: bytes, rng: random.Random) -> bytes:
    return data.decode("utf-8", "replace").encode(
        rng.choice(("utf-16", "utf-32-le", "cp037", "utf-7")), "replace"
    )


def _torn_pack(data: bytes, rng: random.Random) -> bytes:
    packed = rng.choice((gzip.compress, lzma.compress, bz2.compress))(data)
    return _flip(packed, rng) if rng.random() < 0.5 else _cut(packed, rng)


DAMAGES = (
    Damage("a hole in front", lambda d, r: b"\0" * r.choice((1, 4_096, 5_000, 70_000)) + d, lossless=True),
    Damage("mixed line ends", _line_ends, lossless=True),
    Damage("a byte-order mark", lambda d, _: b"\xef\xbb\xbf" + d, lossless=True),
    Damage("packed", lambda d, r: r.choice((gzip.compress, lzma.compress, bz2.compress))(d), lossless=True),
    Damage("bytes of no encoding", lambda d, r: _between(d, r, bytes(range(128, 256)) * 4), lossless=True),
    Damage("a huge line", lambda d, r: _between(d, r, b"x" * r.choice((20_000, 1 << 20, 9 << 20))), lossless=True),
    Damage("colours", lambda d, _: d.replace(b"\n", b"\x1b[0m\n"), lossless=True),
    Damage("empty lines", lambda d, r: _between(d, r, b"\n" * 2_000), lossless=True),
    Damage("cut", _cut),
    Damage("without its head", _without_head),
    Damage("without its middle", _without_middle),
    Damage("bit flips", _flip),
    Damage("zeroed", _zero),
    Damage("noise", _noise),
    Damage("one line", _one_line),
    Damage("shuffled", _shuffled),
    Damage("recoded", _recoded),
    Damage("a torn pack", _torn_pack),
    Damage("nothing but noise", lambda d, r: r.randbytes(min(len(d), 50_000))),
    Damage("emptied", lambda _d, _r: b""),
    Damage("repeated", lambda d, r: d * r.randrange(2, 5)),
    Damage("truncated while it is read", _cut, meanwhile=True),
    Damage("grown while it is read", lambda d, r: d + _noise(d[:2_000], r), meanwhile=True),
)  # fmt: skip
VANISHED = "vanished while it is read"
