"""Every failure type has a sentence that is filled from its rules' own examples, in a person's words."""

import re

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.domain.diagnosis import Outcome
from rerail.knowledge_base.coded_leaves import CODED_LEAVES
from rerail.knowledge_base.headline.templates import fill, is_complete, templates
from rerail.knowledge_base.rules import load_rules
from rerail.knowledge_base.taxonomy import leaves

INSIDE = re.compile(r"\b(cascade|leaf|tier|joins|errno|ENOSPC|None)\b|[{}\[\]]")


def headline(text: str) -> str:
    return diagnose_texts({"train.log": text}).diagnosis.headline


def test_every_failure_type_has_a_sentence_and_no_other_has() -> None:
    assert set(templates()) == set(leaves())


@pytest.mark.parametrize("leaf", sorted(set(leaves()) - CODED_LEAVES))
def test_the_sentence_is_made_from_an_example_of_the_type(leaf: str) -> None:
    told = []
    for rule in load_rules():
        for example in rule.matches if rule.leaf == leaf and rule.role == "initiating" else ():
            found = diagnose_texts({"train.log": example}).diagnosis
            if found.outcome is Outcome.FAILURE and found.failure_type == leaf:
                told.append(found.headline)
        if len(told) > 3:
            break
    for sentence in told:
        # What the job itself printed stands behind a colon; everything before it is ours.
        assert not INSIDE.search(sentence.split(": ")[0]), sentence
        assert leaf not in sentence and leaves()[leaf].meaning not in sentence
        assert len(sentence) < 300 and sentence == sentence.strip()


def test_it_says_who_what_where_and_what_it_did_to_the_others() -> None:
    lines = ["2026-03-01 02:00:00 [rank2] Traceback (most recent call last):",
             '2026-03-01 02:00:00 [rank2]   File "/home/me/train.py", line 88, in step',
             '2026-03-01 02:00:00 [rank2]   File "/opt/venv/lib/python3.11/site-packages/torch/x.py", line 3, in f',
             "2026-03-01 02:00:00 [rank2] ValueError: bad label 17"]  # fmt: skip
    lines += [f"2026-03-01 02:00:05 [rank{r}] RuntimeError: [/gloo/transport/tcp/pair.cc:534] "
              "Connection closed by peer [10.0.0.2]:1234" for r in (0, 1, 3)]  # fmt: skip
    said = headline("\n".join(lines) + "\n")
    assert said.startswith("Rank 2 raised ValueError: bad label 17, at train.py:88 in step")
    assert "at 02:00:00 UTC" in said
    assert said.endswith("the 3 other ranks only lost the connection or waited in vain")


def test_what_is_not_known_is_left_out() -> None:
    assert fill("{who} ran out of space[ at {path}]", {}, {"who": "a process"}) == (
        "a process ran out of space"
    )
    assert fill("x[ at {path}]", {"path": "/a"}, {}) == "x at /a"
    assert not is_complete("{who} x", {}) and is_complete("x[ {who}]", {})
    assert headline("OSError: [Errno 28] No space left on device: '/scratch/ckpt'\n") == (
        "A process ran out of disk space or quota while writing /scratch/ckpt"
    )


def test_the_time_belongs_to_what_happened_and_not_to_the_words_behind_it() -> None:
    stamp = "2026-03-01 02:00:00 [rank2] "
    assert headline(stamp + "ModuleNotFoundError: No module named 'einops'\n") == (
        "Rank 2 could not import a Python module at 02:00:00 UTC: "
        "ModuleNotFoundError: No module named 'einops'"
    )
    for leaf, said in templates().items():
        for one in said:
            body, when, rest = one.partition("{when}")
            # Without the slot the time stands at the end: no colon or clause may come before it.
            if not when and not {"{times_forecast}", "{unlike_good}"} & set(
                re.findall(r"\{\w+\}", one)
            ):
                assert not re.search(r"\[?: |, and |, or could|, or did", body), (leaf, one)
            assert not rest or rest.startswith((",", ":", "[", " ")), (leaf, one)


def test_a_sentence_that_names_nobody_says_nothing_of_others() -> None:
    lines = [f"2026-03-01 02:00:00 [rank{r}]:[E301 02:00:00.1 ProcessGroupNCCL.cpp:632] [Rank {r}] Watchdog caught "
             f"collective operation timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
             f"Timeout(ms)=600000) ran for 600001 milliseconds before timing out." for r in range(4)]  # fmt: skip
    said = headline("\n".join(lines) + "\n")
    assert said.startswith("Not proven: Ranks timed out in a collective at 02:00:00 UTC, and")
    assert "other" not in said


def test_no_image_is_a_path_and_no_step_is_below_zero() -> None:
    full = "write registry.local/llm/pytorch:24.07: OSError: [Errno 28] No space left on device: 'registry.local/llm/pytorch:24.07'\n"
    assert headline(full) == "A process ran out of disk space or quota"
    assert "-1" not in headline("[rank0] step -1: loss is nan, stopping training\n[rank0] Loss is nan, stopping training\n")  # fmt: skip
