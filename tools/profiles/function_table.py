"""What kind of work a function does and which resource bounds it (`functions.yaml`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rerail.errors import ConfigError
from rerail.tools.profiles.trace import (
    ANNOTATION,
    COPY,
    CPU_OP,
    KERNEL,
    PYTHON,
    RUNTIME,
    Group,
)  # fmt: skip

FILE = Path(__file__).with_name("functions.yaml")
DEVICE_COMPUTE = ("compute", "matmul", "attention")
_EVENT = {
    KERNEL: ("kernel",), COPY: ("copy",), CPU_OP: ("host",), RUNTIME: ("host",),
    ANNOTATION: ("annotation", "host"), PYTHON: ("host",),
}  # fmt: skip
_COMM = re.compile(
    r"(all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|broadcast|send_?recv|reduce|send|recv"
    r"|gather|scatter|barrier)",
    re.IGNORECASE,
)
# A Python frame as the profiler writes it; the line is that of the call and differs from run to run.
_FRAME = re.compile(r"^(?:.*/)?([^/]+/[^/]+\.py|[^/]+\.py)\(\d+\): (.+)$")
_LONGEST_NAME = 120


@dataclass(frozen=True)
class FunctionKind:
    """Class and bound resource of a function."""

    work: str
    resource: str


@dataclass(frozen=True)
class _Row:
    work: str
    kind: str
    name: re.Pattern[str]
    resource: str


@cache
def _rows(path: Path) -> tuple[_Row, ...]:
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return tuple(
            _Row(str(row["class"]), str(row["kind"]), re.compile(str(row["name"])), str(row["resource"]))
            for row in content["functions"]
        )  # fmt: skip
    except (OSError, yaml.YAMLError, KeyError, TypeError, re.error) as error:
        raise ConfigError(
            f"{path}: not a table of functions ({error})", subject=str(path),
            hint="each entry has class, kind, name and resource",
        ) from None  # fmt: skip


def classify(name: str, kind: int, path: Path = FILE) -> FunctionKind | None:
    """Return the class of an event of this kind and name, or None for what is no function."""
    for row in _rows(path):
        if row.kind in _EVENT.get(kind, ()) and row.name.search(name):
            return FunctionKind(row.work, row.resource)
    return None


def short_name(name: str) -> str:
    """Return a function's name without result, arguments and deep template arguments."""
    frame = _FRAME.match(name)
    if frame:
        return f"{frame.group(1)}: {frame.group(2)}"[:_LONGEST_NAME]
    text = name.strip().removeprefix("void ")
    text = text.replace("(anonymous namespace)::", "").replace("{anonymous}::", "")
    depth = 0
    out: list[str] = []
    for letter in text:
        if letter == "<":
            depth += 1
        if depth < 2 and not (
            letter == "(" and depth == 0 and out and "::" in text and ">" in text
        ):
            out.append(letter)
        elif letter == "(" and depth == 0:
            break
        if letter == ">":
            depth -= 1
    short = "".join(out)
    if "Kernel" in short or "kernel" in short:
        short = short.split("(", 1)[0]
    return short[:_LONGEST_NAME].strip() or name[:_LONGEST_NAME]


def collective_name(name: str, collective: str, group: Group | None) -> str:
    """Return what a collective is called: the operation and what its process group is for."""
    found = _COMM.search(collective or name)
    operation = found.group(1).lower().replace("_", "") if found else name.split("(")[0]
    if group is None or not (group.kind != "other" or group.size):
        return operation
    size = f" of {group.size}" if group.size else ""
    return f"{operation} [{group.kind}{size}]"
