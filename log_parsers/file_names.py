"""What the path of a log tells about the lines inside, before any of them is read: the forms are `file_names.yaml`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.domain.evidence import Stream
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_pod, looks_like_host
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


def hosts_side_by_side(files: Sequence[tuple[str, Origin]]) -> list[str | None]:
    """Return for each path the host that is told by its folder or its name beside the others, or None.

    Folders are hosts where they come in company, `hx-01/` and `hx-02/`, or around a dmesg; files too, and what is
    called as pods are. A single folder such as `exp7` is where somebody keeps a job, and no host. Where an origin
    tells a node, nothing is added.
    """
    groups: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, origin in files:
        for group, node, _ in _numbered_folders(name):
            groups[group].add(node)
        if origin.rank is None and (file := _file_of_a_host(name)):
            groups[file[0]].add(file[1])
    around = {name.rpartition("/")[0] for name, one in files if one.stream is Stream.KERNEL}
    return [_beside(name, origin, groups, around) for name, origin in files]


def _beside(
    name: str, origin: Origin, groups: dict[tuple[str, str], set[str]], around: set[str]
) -> str | None:
    if origin.node is not None or origin.stream is Stream.SCHEDULER:
        return None
    found = None
    for group, node, folder in _numbered_folders(name):
        in_company = len(groups[group]) > 1 or ("-" in node and folder in around) or is_pod(node)
        if in_company and not is_no_machine(node):
            found = node
    file = _file_of_a_host(name) if origin.rank is None else None
    if found is None and file is not None and len(groups[file[0]]) > 1:
        return file[1]
    return found


def _file_of_a_host(name: str) -> tuple[tuple[str, str], str] | None:
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


def _numbered_folders(name: str) -> Iterator[tuple[tuple[str, str], str, str]]:
    """Yield the numbered folders of a path: place and name without number, name, whole path."""
    for match in named_form("folder").finditer(name):
        stem = match["node"].rstrip("0123456789")
        yield (name[: match.start("node")], stem), match["node"], name[: match.end("node")]


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
