"""Which files are parts of one rotated log, and which are logs of ranks that are numbered alike."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.log_parsers.rotated import joined
from rerail.log_parsers.sources import discover


def is_one(files: dict[str, str], folder: Path) -> bool:
    for name, text in files.items():
        data = text.encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    return [len(one.parts) for one in joined(discover([folder]).sources)] == [len(files)]


def steps(first: int, last: int, front: str = "") -> str:
    return "".join(f"{front}step {n} loss 2.{n % 7}\n" for n in range(first, last))


def stamped(hour: int) -> str:
    return "".join(f"2026-03-01 {hour:02d}:{n:02d}:00 worker says {n}\n" for n in range(60))


ERROR = "ValueError: shapes do not fit\n"
BANNER = "torch 2.9.1+cu128\nloading the configuration of run 7\n"


@pytest.mark.parametrize(
    "files",
    [
        {"train.log.2": steps(1, 40), "train.log.1": steps(40, 60) + ERROR},
        {"train.log.2.gz": steps(1, 40), "train.log.1.gz": steps(40, 60) + ERROR},
        {"train.log.1": steps(1, 40), "train.log.0": steps(40, 60) + ERROR},
        {"train.log.1.gz": stamped(4), "train.log.0.gz": stamped(5)},
        {"train.log.1": stamped(4), "train.log.0": stamped(5)},
        {"train.log.2": "reading shards\n", "train.log.1": ERROR},
        {"train.log-20260301": "reading shards\n", "train.log-20260302": ERROR},
        {"train.log.1": steps(1, 40, "[rank0]: "), "train.log": "[rank1]: " + ERROR * 3},
        # glog writes its own head into each part
        {"train.log.1": BANNER + stamped(4), "train.log": BANNER + stamped(5)},
        {"train.log.2": BANNER + steps(1, 9), "train.log.1": steps(9, 20), "train.log": ERROR},
        # an epoch begins where the log was rotated
        {
            "train.log.1": "".join(f"epoch 1 step {n} loss 2.1\n" for n in range(9)),
            "train.log": "".join(f"epoch 2 step {n} loss 2.1\n" for n in range(9)),
        },
    ],
)
def test_what_goes_on_is_one_log(files: dict[str, str], tmp_path: Path) -> None:
    assert is_one(files, tmp_path)


@pytest.mark.parametrize(
    "files",
    [
        {
            "train.log": steps(1, 40),
            "train.log.1": steps(1, 30) + ERROR,
            "train.log.2": steps(1, 20),
        },
        {"train.log.1": steps(1, 40), "train.log.2": steps(1, 30)},
        {
            f"train.log{end}": f"{BANNER}I am {who}\n"
            for end, who in (("", "first"), (".1", "second"), (".2", "third"))
        },
        {f"train.log.{n}": f"torch 2.9.1\nhost gn-0{n} has 8 GPUs\n{ERROR}" for n in range(1, 4)},
        {"train.log": "[rank0]: starts\n", "train.log.1": f"[rank1]: {ERROR}"},
        {"train.log.1": "[rank1]: starts\n", "train.log.2": f"[rank2]: {ERROR}"},
        {f"train.log.{n}": f"{word}\n" for n, word in enumerate(("one", "two", "three"))},
        {"train.log.0.gz": stamped(4), "train.log.1.gz": stamped(4).replace(":00 ", ":03 ")},
    ],
)
def test_what_begins_anew_is_a_log_of_its_own(files: dict[str, str], tmp_path: Path) -> None:
    assert not is_one(files, tmp_path)


def test_parts_without_the_live_file_are_judged_as_the_joined_file() -> None:
    lost = "NVRM: Xid (PCI:0000:{bus}:00): 79, pid=1, GPU has fallen off the bus.\n"
    texts = [steps(1, 20) + lost.format(bus="3b"), steps(20, 23) + lost.format(bus="1b")]
    parts = diagnose_texts({"train.log.2": texts[0], "train.log.1": texts[1]}).diagnosis
    whole = diagnose_texts({"train.log.1": "".join(texts)}).diagnosis
    assert parts.failure_type == whole.failure_type
    assert [e.text for e in parts.evidence] == [e.text for e in whole.evidence]
    assert parts.suspects == whole.suspects


def test_of_ranks_that_are_numbered_like_parts_each_is_judged_by_itself() -> None:
    files = {
        "train.log": BANNER + steps(1, 30),
        "train.log.1": f"{BANNER}{steps(1, 12)}{ERROR}",
        "train.log.2": BANNER + steps(1, 30),
    }
    first = diagnose_texts(files).diagnosis.first_fault
    assert first is not None
    assert (first.file, first.line) == ("train.log.1", 14)
