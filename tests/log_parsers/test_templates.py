"""Stage 2 of template mining: grouping is deterministic and never hides a failure."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.log_parsers.masks import SLOT, mask
from rerail.log_parsers.skeletons import SkeletonMiner
from rerail.log_parsers.templates import Template, mine_templates

_USERS = ["anna", "bert", "carla", "dora", "emil", "fritz", "gina"]


def mine(lines: list[str]) -> list[Template]:
    miner = SkeletonMiner()
    miner.feed("".join(line + "\n" for line in lines).encode(), 1)
    return mine_templates(miner)


def texts(lines: list[str]) -> dict[str, int]:
    return {t.text: t.count for t in mine(lines)}


def test_numbers_hex_paths_and_times_become_slots() -> None:
    assert mask("2026-03-01 12:00:01,123 saved /data/ckpt/step_100 in 3.5 s (12.5 GB)") == (
        "<*> saved <*> in <*>"
    )
    assert mask("opCount 1f3b sendbuff 0x7f00ab12 size=4096") == (
        "opCount <*> sendbuff <*> size=<*>"
    )


def test_a_word_with_five_variants_is_a_slot_and_one_with_two_is_not() -> None:
    found = texts([f"user {user} logged in" for user in _USERS] + ["mode is on", "mode is off"])
    assert found == {f"user {SLOT} logged in": 7, "mode is on": 1, "mode is off": 1}


def test_severity_words_and_errors_are_never_slots() -> None:
    words = ["ValueError", "KeyError", "OSError", "TypeError", "ImportError", "EOFError"]
    assert len(texts([f"worker raised {word} in step" for word in words])) == 6
    routine = [f"step {i} loss 0.{i} status fine" for i in range(50)]
    assert "step <*> loss nan status fine" in texts([*routine, "step 7 loss nan status fine"])
    assert "step <*> loss <*> status failed" in texts([*routine, "step 8 loss 0.1 status failed"])


def test_a_rare_text_joins_a_large_neighbour_only_when_asked() -> None:
    from rerail.log_parsers.templates import templates_of

    miner = SkeletonMiner()
    lines = ["link to host opened"] * 20 + ["link to host closed"]
    miner.feed("\n".join(lines).encode(), 1)
    assert [t.count for t in templates_of(list(miner.entries()))[0]] == [21]
    assert [t.count for t in templates_of(list(miner.entries()), absorb=False)[0]] == [20, 1]


def test_a_template_says_where_it_was_seen() -> None:
    found = mine(["one 1", "two 1", "one 2", "one 3"])[0]
    assert (found.text, found.count, found.first_line, found.last_line) == ("one <*>", 3, 1, 4)
    assert (found.sample, found.constant_words) == (b"one 1", ("one",))


lines = st.lists(
    # No digits and no a-f in free text: an empty line and a line "0" share a skeleton.
    st.one_of(
        st.builds(
            "user {} logged in from {}".format, st.sampled_from(_USERS), st.sampled_from(_USERS)
        ),
        st.builds("iter {} loss {}".format, st.integers(), st.floats()),
        st.text(
            st.characters(codec="utf-8", exclude_characters="\n\r\x000123456789abcdef"),
            max_size=30,
        ),
        st.sampled_from(
            ["a <*> b", "<*>", "[rank3]: RuntimeError: x", "\x1b[31mred\x1b[0m", "\t "]
        ),
    ),
    max_size=40,
)


@given(lines, st.integers())
@settings(max_examples=150, deadline=None)
def test_counts_add_up_whatever_the_order(given_lines: list[str], seed: int) -> None:
    shuffled = list(given_lines)
    random.Random(seed).shuffle(shuffled)
    assert texts(given_lines) == texts(shuffled)
    assert sum(texts(given_lines).values()) == len(given_lines)


def test_a_very_long_line_is_grouped_in_bounded_time() -> None:
    found = mine([" ".join(f"word{chr(97 + i % 26)}" for i in range(5_000)), "short"])
    assert all(len(t.text) < 3_000 for t in found)
