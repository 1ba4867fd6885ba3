"""The rules of the house that a program can check."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def tracked():
    out = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if out.returncode:
        pytest.skip("not a git checkout: the list of files is not to be had")
    return [ROOT / name for name in out.stdout.split("\0") if name]


def test_no_file_is_too_long():
    long = [
        str(p)
        for p in tracked()
        if p.suffix == ".py"
        and p.is_file()
        and "tests" not in p.parts
        and len(p.read_text().splitlines()) > 600
    ]
    assert long == []


def test_no_file_is_called_after_nothing():
    assert [
        p for p in tracked() if re.fullmatch(r"(utils?|helpers?|common|misc)(\.py)?", p.name)
    ] == []


def test_import_layers_hold():
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_nothing_is_left_to_do():
    words = re.compile("TO" + "DO|FIX" + "ME|NotImplemented" + "Error")
    assert [
        str(p)
        for p in tracked()
        if p.suffix == ".py" and p.is_file() and words.search(p.read_text())
    ] == []


def test_the_wings_are_links():
    for wing in ("log_parsers", "tools", "knowledge_base", "recovery", "assistant", "evals"):
        assert (ROOT / "src" / "rerail" / wing).is_symlink()
