"""Compiled patterns: made once whoever asks, whole or not at all, and said where somebody waits for them."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from rerail.cached_yaml import write_whole
from rerail.log_parsers import scan, skeleton_patterns
from rerail.log_parsers.compiled_cache import (
    only_one,
    skeleton_images,
    tell,
    told,
    word_index,
)
from rerail.log_parsers.scan import Signature, make_scanner
from rerail.log_parsers.skeleton_patterns import skeleton_pattern

PATTERNS = ["needle in the hay", r"Xid \(PCI:(?P<pci>[0-9a-f:]+)\)", r"\d+"]


def test_images_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [skeleton_pattern(one) for one in PATTERNS]
    assert skeleton_images(PATTERNS, tmp_path) == expected
    monkeypatch.setattr(skeleton_patterns, "skeleton_pattern", lambda _: pytest.fail("made again"))
    assert skeleton_images(PATTERNS, tmp_path) == expected


@pytest.mark.parametrize("torn", [b"", b"{}", b"[1, 2, 3]", b'["a"]', b"\xff"])
def test_a_torn_file_of_images_is_made_again(torn: bytes, tmp_path: Path) -> None:
    expected = skeleton_images(PATTERNS, tmp_path)
    (path,) = tmp_path.glob("images-*")
    path.write_bytes(torn)
    assert skeleton_images(PATTERNS, tmp_path) == expected


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        whole(path, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert not write_whole(tmp_path / "signatures-x.hsdb", b"compiled patterns")
    make_scanner([Signature(one) for one in PATTERNS], cache=tmp_path, engine="hyperscan")
    assert [path.name for path in tmp_path.iterdir()] == ["compiling.lock"]


def _hold(cache: Path, held: object, release: object) -> None:
    with only_one(cache):
        held.set()  # type: ignore[attr-defined]
        release.wait()  # type: ignore[attr-defined]


def test_who_waits_for_another_process_is_told(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(tmp_path, held, release))
    process.start()
    held.wait()
    said: list[str] = []

    def note(text: str) -> None:
        said.append(text)
        release.set()  # now the other one lets go

    with told(note), only_one(tmp_path):
        pass
    process.join()
    assert len(said) == 1 and "another process compiles" in said[0]


def compiled_meanwhile(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[Signature]:
    """Return signatures whose database another process writes while this one waits for its turn."""
    signatures = [Signature(one) for one in PATTERNS]
    make_scanner(signatures, cache=cache, engine="hyperscan")
    (path,) = cache.glob("signatures-*.hsdb")
    data = path.read_bytes()
    path.unlink()

    class Meanwhile:
        def __enter__(self) -> None:
            path.write_bytes(data)

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(scan, "only_one", lambda _: Meanwhile())
    return signatures


def test_what_was_compiled_meanwhile_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waited finds the database of the other one, and does not compile it again."""
    signatures = compiled_meanwhile(tmp_path, monkeypatch)
    import hyperscan

    monkeypatch.setattr(hyperscan, "dumpb", lambda _: pytest.fail("compiled again"))
    scanner = make_scanner(signatures, cache=tmp_path, engine="hyperscan")
    assert scanner.candidates(b"a needle in the hay\n")


def test_who_waits_for_the_rules_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_TOLD", 2)
    said: list[str] = []
    with told(said.append):
        make_scanner([Signature(one) for one in PATTERNS], cache=tmp_path, engine="hyperscan")
        make_scanner([Signature(one) for one in PATTERNS], cache=tmp_path, engine="hyperscan")
    assert len(said) == 1 and "compiling the rules" in said[0]


@pytest.mark.parametrize(("most", "lines"), [(None, ["wait", "compile"]), (1, ["wait"])])
def test_who_waits_is_told_each_sentence_once(most: int | None, lines: list[str]) -> None:
    said: list[str] = []
    with told(said.append, most=most):
        for text in ("wait", "compile", "wait", "wait", "compile"):
            tell(text)
    tell("wait")
    assert said == lines


def test_what_another_process_compiled_meanwhile_is_not_said_to_be_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_TOLD", 2)
    signatures = compiled_meanwhile(tmp_path, monkeypatch)
    said: list[str] = []
    with told(said.append):
        make_scanner(signatures, cache=tmp_path, engine="hyperscan")
    assert said == []


@pytest.mark.parametrize("torn", [b"", b"[]", b"[[]]", b'[["a"], 1, 2, 3, 4, 5]', b"{}"])
def test_an_index_of_words_that_was_kept_finds_what_the_first_one_found(
    torn: bytes, tmp_path: Path
) -> None:
    patterns = [r"alpha \d+ beta", r"(?i)gamma", r"x|y", r"(?:delta|epsilon) zeta"]
    texts = (b"alpha 3 beta", b"GAMMA", b"x", b"epsilon zeta", b"nothing", b"")
    first = [word_index(patterns, tmp_path).may_match(text) for text in texts]
    (kept,) = tmp_path.glob("index-*.json")
    assert [word_index(patterns, tmp_path).may_match(text) for text in texts] == first
    assert [word_index(patterns, None).may_match(text) for text in texts] == first
    kept.write_bytes(torn)
    assert [word_index(patterns, tmp_path).may_match(text) for text in texts] == first
    assert word_index(patterns[:2], tmp_path).may_match(texts[0]) == [0]
