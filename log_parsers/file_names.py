"""What the path of a log tells about the lines inside, before any of them is read: the forms are `file_names.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.domain.evidence import Stream
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import looks_like_host
from rerail.log_parsers.prefixes import Origin

PATH = Path(__file__).with_name("file_names.yaml")
_ENDINGS = frozenset({"log", "txt"})
_DIGITS = lazy(r"\d+")


@dataclass(frozen=True, slots=True)
class _Form:
    pattern: re.Pattern[str]
    stream: Stream | None = None
    alone: bool = False
    """Where the form names no node, no other part of the path does."""
    host_like: bool = False


@lru_cache(maxsize=4)
def _forms(key: str) -> tuple[_Form, ...]:
    entries: list[dict[str, Any]] = load_cached(PATH)[key]
    return tuple(
        _Form(
            lazy(one["pattern"]),
            Stream(one["stream"]) if "stream" in one else None,
            one.get("alone", False),
            one.get("host_like", False),
        )
        for one in entries
    )


@lru_cache(maxsize=16)
def named_form(key: str) -> re.Pattern[str]:
    """Return one of the single patterns of `file_names.yaml`."""
    return lazy(load_cached(PATH)[key])


@lru_cache(maxsize=16)
def named_form_in_bytes(key: str) -> re.Pattern[bytes]:
    """Return the same for lines that are not decoded."""
    return lazy(str(load_cached(PATH)[key]).encode())


def origin_of(name: str) -> Origin:
    """Return what a path tells about the lines inside."""
    for form in _forms("kinds"):
        match = form.pattern.search(name)
        if match is None:
            continue
        told = match.groupdict()
        rank, local, attempt, pid = (
            _number(told.get(key)) for key in ("rank", "local", "attempt", "pid")
        )
        node = next((told[key] for key in ("node", "node2", "node3") if told.get(key)), None)
        if node is None or node in _ENDINGS or is_no_machine(node):
            node = None if form.alone else node_in(name)
        return Origin(rank, local, node, pid=pid, attempt=attempt, stream=form.stream)
    return Origin(node=node_in(name))


def node_in(name: str) -> str | None:
    """Return the part of a path that is called like a host, of folders the deepest."""
    for form in _forms("nodes"):
        match = form.pattern.search(name)
        if match is not None and (not form.host_like or looks_like_host(match["node"])):
            return match["node"]
    folders = [match["node"] for match in named_form("folder").finditer(name)]
    like = named_form("folder_of_a_host")
    return next((folder for folder in reversed(folders) if like.match(folder)), None)


def is_no_machine(name: str) -> bool:
    """Tell whether a numbered name is of a run, a version or a counter."""
    return named_form("no_machine").match(name) is not None


def file_of_a_host(name: str) -> tuple[tuple[str, str], str] | None:
    """Return place and form of a file that is called like a machine, and the machine."""
    match = named_form("file_of_a_host").search(name)
    if (
        match is None
        or is_no_machine(match["node"])
        or not named_form("machine").fullmatch(match["node"])
    ):
        return None
    form = _DIGITS.sub("0", name[match.start("node") :])
    return (name[: match.start("node")], form), match["node"]


def numbered_folders(name: str) -> Iterator[tuple[tuple[str, str], str, str]]:
    """Yield the numbered folders of a path: place and name without number, name, whole path."""
    for match in named_form("folder").finditer(name):
        stem = match["node"].rstrip("0123456789")
        yield (name[: match.start("node")], stem), match["node"], name[: match.end("node")]


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
