"""What is shipped is whole, and nothing in the tree knows the machine it was written on."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib import resources
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def tracked() -> list[Path]:
    out = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if out.returncode:
        pytest.skip("not a git checkout: the list of files is not to be had")
    return [path for name in out.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_folder_of_the_machine_it_was_written_on() -> None:
    # Put together here, so that this file is no finding.
    machine = re.compile("/wo" + r"rk/(?:main|shared|\.\w)")
    found = [
        str(path.relative_to(ROOT))
        for path in tracked()
        if not path.is_relative_to(ROOT / "tests" / "data")
        and not path.is_symlink()
        and machine.search(path.read_text(encoding="utf-8", errors="ignore"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("package", "names"),
    [
        ("rerail", ["py.typed"]),
        ("rerail.knowledge_base", ["taxonomy.yaml"]),
        ("rerail.knowledge_base.rules", ["cuda.yaml", "nccl.yaml", "README.md"]),
        (
            "rerail.knowledge_base.catalogues",
            ["xid.yaml", "sxid.yaml", "ib_status.yaml", "exit_codes.yaml"],
        ),
    ],
)
def test_package_data_is_found_where_the_package_is(package: str, names: list[str]) -> None:
    folder = resources.files("rerail").joinpath(*package.split(".")[1:])
    assert [name for name in names if not folder.joinpath(name).is_file()] == []


def test_every_data_file_of_a_wing_is_listed_as_package_data() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-data"
    ]
    lost = []
    for wing in ("log_parsers", "tools", "knowledge_base", "recovery", "assistant"):
        globs = listed.get(f"rerail.{wing}", [])
        for path in tracked():
            if not path.is_relative_to(ROOT / wing) or path.suffix in (".py", ".md"):
                continue
            inside = path.relative_to(ROOT / wing)
            if not any(inside.match(g) for g in globs):
                lost.append(str(inside))
    assert lost == []


def test_every_folder_of_code_is_a_package() -> None:
    bare = {
        str(path.parent.relative_to(ROOT))
        for path in tracked()
        if path.suffix == ".py"
        and path.relative_to(ROOT).parts[0]
        in ("log_parsers", "tools", "knowledge_base", "recovery", "assistant", "evals")
        and not (path.parent / "__init__.py").is_file()
    }
    assert bare == set()


def test_tests_are_no_package() -> None:
    assert [
        p for p in tracked() if p.name == "__init__.py" and p.is_relative_to(ROOT / "tests")
    ] == []
