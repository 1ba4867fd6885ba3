"""Lines of a long log are looked at once for their kind; no secret gets past that."""

from __future__ import annotations

import random

import pytest

from rerail.cached_yaml import load_cached
from rerail.log_parsers import line_tables, redactor
from rerail.log_parsers.piece import Piece
from rerail.log_parsers.redaction import KINDS_FILE, without_cuts
from rerail.log_parsers.redactor import Redactor

pytestmark = pytest.mark.skipif(
    line_tables.compiled() is None, reason="no compiler was there when rerail was installed"
)
COLOURS = [b"\x1b[31m", b"\x1b[0m", b"\x1b[1;36m", b"\x1b[K", b"\x1b[", b"\x07", b"\xe2\x80\x8b"]


def lines() -> list[bytes]:
    """Every kind of secret, as it is and with colours anywhere in it, among lines without one."""
    examples = [
        without_cuts(kind["hides"][0]).encode() for kind in load_cached(KINDS_FILE)["kinds"]
    ]
    drawn = random.Random(3)
    found = []
    for example in examples:
        found.append(b"[rank3]: " + example)
        for _ in range(4):
            line = b"[titan] \x1b[32mloss: 2.0 " + example + b" \x1b[39mtps: 1"
            for _ in range(drawn.choice((1, 1, 3))):
                at = drawn.randrange(len(line))
                line = line[:at] + drawn.choice(COLOURS) + line[at:]
            found.append(line.replace(b"\n", b""))
    found += [b"[titan] \x1b[32mloss: %d.5 \x1b[39mtps: %d" % (n, 7 * n) for n in range(400)]
    drawn.shuffle(found)
    return found


def test_no_secret_gets_past_the_kinds_of_lines() -> None:
    text = b"\n".join(lines()) + b"\n"
    known = Redactor().mask(Piece(text), 1, tally=True).raw
    assert known == Redactor().mask(Piece(text), 1, tally=False).raw
    assert known.count(b"[redacted]") > 100


def test_coloured_lines_without_secrets_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    look = redactor._looked_at
    monkeypatch.setattr(
        redactor, "_looked_at", lambda piece, rows: (looked.extend(rows), look(piece, rows))[1]
    )
    text = b"".join(
        b"[titan] \x1b[32mloss: %d.5 \x1b[39mtps: %d\n" % (n, 7 * n) for n in range(4_000)
    )
    assert Redactor().mask(Piece(text), 1, tally=True).raw == text
    assert not looked
