"""Patterns kept between starts are those that `re` compiles, whatever the file that keeps them holds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from rerail import kept_patterns
from rerail.kept_patterns import Keeper
from rerail.knowledge_base.phrases import phrases
from rerail.knowledge_base.rules import load_rules
from rerail.log_parsers.digit_blind import zero_image

PATTERNS: list[tuple[str | bytes, int]] = [
    (r"Xid \(PCI:(?P<pci>[0-9a-f:]+)\): (?P<xid>\d+)", 0),
    (r"(?i)\brank[ =:]*(\d+)\b(?!\.)", 0),
    (rb"\[rank(?P<rank>\d+)\]:", re.IGNORECASE),
    ("a  b # spaces and this are left out", re.VERBOSE),
    ("[à-ÿ]+|\U0001f600", 0),
]


def again(file_of: Path) -> Keeper:
    return Keeper(lambda: file_of)


def content(file: Path) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(file.read_bytes().partition(b"\n")[2])
    return kept


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    whole = kept_patterns._compiled

    def compiled(pattern: Any, flags: int, change: Callable[[Any], None] | None) -> Any:
        calls.append(pattern)
        return whole(pattern, flags, change)

    monkeypatch.setattr(kept_patterns, "_compiled", compiled)
    return calls


def test_a_second_start_has_the_same_patterns_and_compiles_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = [(one.pattern, 0) for one in [*phrases().values(), *load_rules()]]
    asked = PATTERNS + shipped
    monkeypatch.setattr(kept_patterns, "_MOST", len(asked))
    first = again(tmp_path)
    for pattern, flags in asked:
        first.compiled(pattern, flags, None)
    first.save()
    calls = counted(monkeypatch)
    second = again(tmp_path)
    for pattern, flags in asked:
        kept: re.Pattern[Any] = second.compiled(pattern, flags, None)
        whole: re.Pattern[Any] = re.compile(pattern, flags)
        # Two patterns are equal where text, flags and all steps are; names are not looked at.
        assert kept == whole, pattern
        assert (kept.groupindex, kept.groups) == (whole.groupindex, whole.groups)
    assert not calls


def test_a_changed_pattern_is_kept_beside_its_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "rank 00 of 00"
    for start in range(2):
        keeper = again(tmp_path)
        monkeypatch.setattr(kept_patterns, "_keeper", keeper)
        image, plain = (
            zero_image(r"rank [1-9]\d of"),
            kept_patterns.kept_pattern(r"rank [1-9]\d of"),
        )
        assert image is not None and image.search(line), start
        assert not plain.search(line)
        keeper.save()
        if start == 0:
            calls = counted(monkeypatch)
    assert not calls


def test_what_was_kept_by_two_processes_is_all_there(tmp_path: Path) -> None:
    one, other = again(tmp_path), again(tmp_path)
    one.compiled("one", 0, None)
    other.compiled("other", 0, None)
    one.save()
    other.save()
    (file,) = tmp_path.iterdir()
    assert sorted(content(file)) == ["0|'one'", "0|'other'"]


def test_those_that_were_asked_for_longest_ago_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_patterns, "_MOST", 3)
    for start in ("abc", "ad", "e"):
        keeper = again(tmp_path)
        for pattern in start:
            keeper.compiled(pattern, 0, None)
        keeper.save()
    (file,) = tmp_path.iterdir()
    assert list(content(file)) == ["0|'a'", "0|'d'", "0|'e'"]


@pytest.mark.parametrize(
    "torn",
    [
        b"",
        b"[]",
        b"\xff",
        b"{\"0|'needle'\": null}",
        b'{"0|\'needle\'": [32, "", 0, {}]}',
        b'{"0|\'needle\'": [32, "AAAA", 0, {}]}',
        b'{"0|\'needle\'": [32, "/////////////////////w==", 0, {}]}',
        b'{"0|\'needle\'": [32, "no base64", "x", []]}',
        b'{"0|\'needle\'": [32, "", -1, {"name": 7}]}',
    ],
)
def test_a_torn_file_costs_time_and_no_match(torn: bytes, tmp_path: Path) -> None:
    first = again(tmp_path)
    first.compiled("needle", 0, None)
    first.save()
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"%08x\n" % crc32(torn) + torn)
    assert again(tmp_path).compiled("needle", 0, None) == re.compile("needle")


def test_a_flipped_bit_finds_what_it_always_found(tmp_path: Path) -> None:
    first = again(tmp_path)
    first.compiled("needle", 0, None)
    first.save()
    (file,) = tmp_path.iterdir()
    kept = file.read_bytes()
    for at in range(len(kept)):
        file.write_bytes(kept[:at] + bytes([kept[at] ^ 1]) + kept[at + 1 :])
        assert again(tmp_path).compiled("needle", 0, None) == re.compile("needle"), at


def test_a_wrong_pattern_is_told_as_re_tells_it(tmp_path: Path) -> None:
    with pytest.raises(re.error, match="unterminated"):
        again(tmp_path).compiled("(?P<open", 0, None)


def test_a_folder_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    keeper = again(tmp_path / "file" / "cache")
    assert keeper.compiled("needle", 0, None).search("a needle")
    keeper.save()


def diagnosed(path: Path, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Run the command on a log or a folder, with its cache and its store in a folder."""
    env = os.environ | {
        "RERAIL_CACHE_DIR": str(folder / "cache"),
        "RERAIL_DATA_DIR": str(folder),
    }
    call = [sys.executable, "-c", "from rerail.assistant.entry import main; main()"]
    return subprocess.run([*call, "diagnose", str(path)], env=env, capture_output=True, check=False)


def test_the_command_keeps_its_patterns(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    )
    said = [diagnosed(log, tmp_path) for _ in range(2)]
    assert said[0].returncode == said[1].returncode == 0, said[1].stderr
    (kept,) = (tmp_path / "cache").glob("patterns-*.json")
    assert len(content(kept)) > 50


def test_what_is_made_of_the_words_of_a_log_is_not_kept(tmp_path: Path) -> None:
    """The file outlives the log, and nobody looks for the names of hosts in it."""
    steps = [
        f"quaggahost-{n % 3} <{n}> elapsed_{n % 3}: alpha {n} beta {2.5 - n / 99:.4f} ibexes 0.{n}5 s"
        for n in range(60)
    ]
    records = [
        json.dumps({"zebrafield": "x", "okapigroup": {"rank": n % 4}, "message": f"step {n}"})
        for n in range(60)
    ]
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    job = tmp_path / "job"
    job.mkdir()
    (job / "steps.log").write_text("\n".join([*steps, f"quaggahost-1 <60> {oom}", ""]))
    (job / "records.log").write_text("\n".join([*records, ""]))
    said = diagnosed(job, tmp_path)
    assert b"quaggahost-1" in said.stdout, said.stderr
    (kept,) = (tmp_path / "cache").glob("patterns-*.json")
    assert not re.search(b"quagga|zebra|okapi|ibexes", kept.read_bytes())


def test_who_asks_for_more_than_are_kept_keeps_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_patterns, "_MOST", 2)
    keeper = again(tmp_path)
    for pattern in "abc":
        keeper.compiled(pattern, 0, None)
    keeper.save()
    assert not list(tmp_path.iterdir())
