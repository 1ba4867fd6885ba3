"""The same evidence gives one answer: in any order of files, under any names, however streams are interleaved."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.assistant.pipeline import diagnose_paths, diagnose_texts
from rerail.domain.diagnosis import Diagnosis

LIBRARY = "2026-03-01 02:00:00 [rank3]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
OOM_KILL = "2026-03-01T02:01:40.000000+00:00 n07 kernel: Out of memory: Killed process 4404 (python3) total-vm:9kB\n"
XID = (
    "2026-03-01T02:03:20.000000+00:00 n07 kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=4404, "
    "GPU has fallen off the bus.\n"
)
# Rivals of every depth, as one line each; `{t}` is their time.
RIVALS = [
    "{t} [rank{r}]: RuntimeError: CUDA error: an illegal memory access was encountered",
    "{t} [rank{r}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
    "{t} [rank{r}]: OSError: [Errno 28] No space left on device",
    "{t} [rank{r}]: KeyError: 'lr'",
    "{t} n0{r} kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=44{r}4, GPU has fallen off the bus.",
    "{t} n0{r} kernel: NVRM: Xid (PCI:0000:9b:00): 48, pid=44{r}4, An uncorrectable double bit error",
    "{t} n0{r} kernel: Out of memory: Killed process 44{r}4 (python3) total-vm:9kB",
    "{t} srun: error: n0{r}: task {r}: Killed",
]


def conclusion(diagnosis: Diagnosis) -> tuple[object, ...]:
    """Cause, place and certainty: what must not depend on how the evidence was handed over."""
    first = diagnosis.first_fault
    return (
        diagnosis.outcome,
        diagnosis.status,
        diagnosis.failure_type,
        first and (first.text, first.rank, first.node),
        diagnosis.suspects.model_dump_json(),
        diagnosis.recovery.action,
    )


def test_three_rivals_give_one_answer_in_every_order_and_as_a_folder(tmp_path: Path) -> None:
    files = {"train.log": LIBRARY, "messages": OOM_KILL, "dmesg.txt": XID}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    answers = {
        conclusion(diagnose_paths(list(paths)).diagnosis)
        for paths in itertools.permutations(tmp_path / name for name in files)
    }
    answers.add(conclusion(diagnose_paths([tmp_path]).diagnosis))
    assert len(answers) == 1, answers


@st.composite
def rivals(draw: Callable[[st.SearchStrategy[object]], object]) -> list[str]:
    count = draw(st.integers(2, 5))
    assert isinstance(count, int)
    # Within a second the place in the file is all that tells; files of their own have not even that.
    seconds = draw(st.lists(st.integers(0, 400), min_size=count, max_size=count, unique=True))
    assert isinstance(seconds, list)
    lines = []
    for rank, second in enumerate(seconds):
        form = draw(st.sampled_from(RIVALS))
        assert isinstance(form, str)
        time = f"2026-03-01T02:{second // 60:02d}:{second % 60:02d}.000000+00:00"
        lines.append(form.format(t=time, r=rank) + "\n")
    return lines


@settings(max_examples=150)
@given(rivals(), st.randoms(use_true_random=False))
def test_rivals_in_files_of_their_own_give_one_answer_whatever_the_files_are_called(
    lines: list[str], chance: random.Random
) -> None:
    names = [f"{letter}.log" for letter in "abcdefgh"[: len(lines)]]
    answers = set()
    for _ in range(4):
        chance.shuffle(names)
        answers.add(conclusion(diagnose_texts(dict(zip(names, lines, strict=True))).diagnosis))
    assert len(answers) == 1, answers


@settings(max_examples=100)
@given(rivals(), st.randoms(use_true_random=False))
def test_streams_of_timed_lines_may_be_interleaved_in_any_way(
    lines: list[str], chance: random.Random
) -> None:
    answers = set()
    for _ in range(4):
        chance.shuffle(lines)
        answers.add(conclusion(diagnose_texts({"train.log": "".join(lines)}).diagnosis))
    assert len(answers) == 1, answers


@pytest.mark.parametrize("newer", ["train.log", "train.log.gz"])
def test_a_rotated_log_is_older_than_the_one_that_goes_on(
    diagnose: Callable[[dict[str, str]], Diagnosis], newer: str
) -> None:
    import gzip

    older = "step 11 loss 2.1\nstep 12 loss 2.0\nKeyError: 'lr'\n"
    younger = "step 13 loss 2.0\nstep 14 loss 1.9\nTraining completed.\n"
    text: str | bytes = gzip.compress(younger.encode()) if newer.endswith(".gz") else younger
    found = diagnose({"train.log.1": older, newer: text})  # type: ignore[dict-item]
    assert found.outcome == "no_failure"
