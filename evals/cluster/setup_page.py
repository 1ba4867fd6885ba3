"""Follows the set-up page: its blocks are run as they stand, in their order."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rerail.errors import UsageError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "setup_slurm.md"
_BLOCK = re.compile(r"^```(?P<kind>[\w.]+) (?P<part>[\w.]+)\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass(frozen=True, slots=True)
class Block:
    """One block of the page: `setup`, `install`, `slurm.conf` or `verify`, and its text."""

    part: str
    text: str


def blocks(page: Path = PAGE) -> list[Block]:
    """Return the blocks that somebody is told to use, in their order."""
    return [Block(one["part"], one["text"]) for one in _BLOCK.finditer(page.read_text("utf-8"))]


def text_of(part: str) -> str:
    """Return the text of all blocks of one part."""
    return "".join(one.text for one in blocks() if one.part == part)


def follow(environment: Mapping[str, str], part: str = "setup", skip: str = "") -> None:
    """Run the blocks of a part; `skip` leaves out those that contain it.

    Raises:
        UsageError: A command of the page failed.
    """
    for one in blocks():
        if one.part != part or (skip and skip in one.text):
            continue
        done = subprocess.run(
            ("sh", "-eu", "-c", one.text),
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd="/",
        )
        if done.returncode:
            raise UsageError(
                f"the set-up page failed: {(done.stderr or done.stdout).strip()[-400:]}",
                subject=str(PAGE),
            )


def install() -> None:
    """Put this installation where the page puts its own: /opt/rerail.

    Raises:
        UsageError: rerail's commands are not installed beside this interpreter.
    """
    for name in ("rerail", "rerail-job-file"):
        if not (Path(sys.prefix) / "bin" / name).is_file():
            raise UsageError(
                f"{sys.prefix}/bin/{name} is not there", subject=name, hint="pip install -e ."
            )
    place = Path("/opt/rerail")
    if not place.exists():
        place.symlink_to(sys.prefix)


def service() -> dict[str, str]:
    """Return the keys of the daemon's unit as the page wrote it: User, ExecStart, EnvironmentFile."""
    text = Path("/etc/systemd/system/rerail.service").read_text(encoding="utf-8")
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def environment_file(path: str) -> dict[str, str]:
    """Return the variables of an environment file of systemd."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)
