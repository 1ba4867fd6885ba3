"""Raw bytes become text that is safe to show, whatever an attacker wrote into the log."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerail.log_parsers.text import MAX_LINE, clean, strip_escapes


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain line\n", "plain line"),
        (b"dos line\r\n", "dos line"),
        (b"tab\tstays", "tab\tstays"),
        (b"\x1b[31mERROR\x1b[0m: boom", "ERROR: boom"),
        (b"\x1b[1;38;5;208mNCCL\x1b[m WARN", "NCCL WARN"),
        (b"\x1b]0;owned\x07prompt", "prompt"),
        (b"\x1b]8;;http://evil/\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b[2J\x1b[Hcleared", "cleared"),
        (b"\x1b(Bcharset", "charset"),
        (b"nul\x00in\x00side", "nulinside"),
        (b"bell\x07 back\x08space del\x7f", "bell backspace del"),
        (b" 10%|#\r 20%|##\r 30%|###\n", " 10%|#  20%|##  30%|###"),
        ("r\u00e9sum\u00e9 \u2713 \u65e5\u672c".encode(), "r\u00e9sum\u00e9 \u2713 \u65e5\u672c"),
        (b"bad \xff\xfe utf-8", "bad \ufffd\ufffd utf-8"),
        ("node\u202e71\u202c-gpu".encode(), "node71-gpu"),
        ("zero\u200bwidth\u2060joined\ufeff".encode(), "zerowidthjoined"),
        ("line\u2028para\u2029sep".encode(), "lineparasep"),
        ("tag\U000e0041\U000e0042".encode(), "tag"),
        ("c1 \u009b31m csi".encode(), "c1 31m csi"),
        (b"", ""),
    ],
)
def test_clean(raw: bytes, text: str) -> None:
    assert clean(raw) == text


@given(st.binary(max_size=400))
def test_no_control_or_format_character_survives(raw: bytes) -> None:
    text = clean(raw)
    bad = [c for c in text if c != "\t" and unicodedata.category(c) in ("Cc", "Zl", "Zp")]
    assert not bad
    assert not set(text) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u200e\u200f")


def test_a_long_line_keeps_its_head_and_tail() -> None:
    text = clean(b"HEAD " + b"x" * 1_000_000 + b" TAIL\n")
    assert len(text) <= MAX_LINE + 10
    assert text.startswith("HEAD ")
    assert text.endswith(" TAIL")


def test_a_long_line_is_cut_around_the_place_of_interest() -> None:
    raw = b"x" * 500_000 + b"NEEDLE" + b"y" * 500_000
    text = clean(raw, focus=raw.index(b"NEEDLE"))
    assert "NEEDLE" in text
    assert len(text) <= MAX_LINE


def test_stripping_escapes_keeps_every_newline() -> None:
    chunk = b"\x1b[1mone\x1b[0m\n\x1b]0;title\ntwo\x1b[\nthree\n"
    assert strip_escapes(chunk).count(b"\n") == chunk.count(b"\n")


@given(
    st.lists(
        st.sampled_from([b"\x1b", b"[", b"]", b"0;", b"\n", b"m", b"\x07", b"a", b"(", b" "]),
        max_size=40,
    )
)
def test_no_escape_sequence_swallows_a_newline(parts: list[bytes]) -> None:
    chunk = b"".join(parts)
    assert strip_escapes(chunk).count(b"\n") == chunk.count(b"\n")


def test_frames_that_differ_in_numbers_alone_are_told_by_the_first_and_the_last() -> None:
    frames = b"".join(
        b"\r %d%%|## | %d/90 [00:01<00:09, 2.0%s]" % (i, i, b"s/it" if i % 2 else b"it/s")
        for i in range(40)
    )
    assert clean(b"train:" + frames + b"\rwaiting") == (
        "train:  0%|## | 0/90 [00:01<00:09, 2.0it/s] ...  39%|## | 39/90 [00:01<00:09, 2.0s/it] waiting"
    )
    assert clean(b"\r1 of 2\r2 of 2\rdone") == "1 of 2 2 of 2 done"
    assert (
        clean(b"\rloss 1\rloss 2\rloss nan\rloss 3\rloss 4")
        == "loss 1 loss 2 loss nan loss 3 loss 4"
    )
