"""Finds the files that were asked for and opens them, whatever their compression.

A source that cannot be read is never an exception here: it becomes a `Problem`, is reported as
missing evidence, and the rest is diagnosed.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import field, replace
from itertools import repeat
from pathlib import Path
from stat import S_ISCHR, S_ISFIFO, S_ISSOCK
from typing import Protocol

from rerail.domain.evidence import Stream
from rerail.errors import EvidenceError
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.file_names import hosts_side_by_side, origin_of
from rerail.log_parsers.prefixes import NOWHERE, Origin
from rerail.log_parsers.redaction import redact
from rerail.log_parsers.redactor import cut_of
from rerail.log_parsers.text import clean

STDIN = "<stdin>"
STDIN_HINT = "`rerail diagnose -` reads what is piped into it"
_SKIP_DIRS = frozenset({".git", ".hydra", "__pycache__", ".venv", "node_modules"})
_SKIP_SUFFIXES = (
    ".pt", ".pth", ".ckpt", ".safetensors", ".bin", ".npy", ".npz", ".so", ".pyc", ".whl", ".png",
    ".jpg", ".svg", ".pdf", ".tar", ".zip", ".db", ".sqlite", ".parquet", ".arrow", ".distcp", ".metadata",
    ".wandb",
)  # fmt: skip

# Traces of the PyTorch profiler and rerail's summaries of them: no log, and long to read as one.
PROFILE_SUFFIXES = (
    ".profile.json", ".profile.json.gz", ".profiles.jsonl.gz", ".pt.trace.json", ".pt.trace.json.gz",
)  # fmt: skip

# What `rerail scan --logs` wrote: logs that were read elsewhere.
SCANNED_SUFFIX = ".logs.jsonl.gz"

# logrotate's `train.log.3` and `train.log-20260101` (dateext), Python's `train.log.2026-01-01_04`, `train.log.old`;
# also packed. `rank.0` and `stdout.12` without a suffix before are no rotation.
_ROTATED = lazy(
    r"(?P<stem>.*\.(?:log|out|err|txt|output|messages)|(?:.*/)?(?:messages|syslog|kern|dmesg))"
    r"(?:\.(?P<count>\d{1,3})|[.-](?P<date>(?:19|20)\d{2}-?\d{2}-?\d{2}(?:[-_T]?\d{2}(?:[-_:]?\d{2}){0,2}|-\d{10})?)|\.(?P<old>old|bak))"
    r"(?:\.(?:gz|zst|xz|bz2))?$"
)
# logrotate's `extension .log`: `train.3.log` beside `train.log`. Without the live file these are logs of ranks, or of nodes.
_ROTATED_IN_FRONT = lazy(
    r"(?P<stem>.*[^./])\.(?P<count>\d{1,3})(?P<ending>\.(?:log|out|err|txt|output))(?:\.(?:gz|zst|xz|bz2))?$"
)
_PACKED = lazy(r"(?P<stem>.*)\.(?:gz|zst|xz|bz2)$")
_NUMBERS = lazy(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Problem:
    """Evidence that could not be read in full: which, why, and what would help."""

    subject: str
    why: str
    hint: str = ""
    cut: bool = False
    """What came behind a point was not read."""
    unread: bool = False
    """It is a log, or seems to be one, of which nothing was read."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read: where it is, how it is called in reports, what its path tells.

    A rotated log is one source with its `parts`, the oldest first; path and name are those of the newest.
    """

    path: Path | None
    name: str
    origin: Origin = NOWHERE
    size: int = 0
    parts: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class RotatedName:
    """What the name of a file tells of a rotated log: the log, its number there, 0 of the `live` file, and how old it is.

    `age` is 0 of the live file and lower for an older part.
    """

    log: object
    number: int | None
    live: bool
    age: int


@dataclass(slots=True)
class Discovery:
    """All sources found, what stood in the way, and what is no log: profiles beside them, scanned shards."""

    sources: list[Source] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    profiles: list[Path] = field(default_factory=list)
    scanned: list[Path] = field(default_factory=list)


def discover(arguments: Iterable[str | Path]) -> Discovery:
    """Resolve files, folders, globs and `-` to sources, in a stable order.

    Raises:
        EvidenceError: when an argument names nothing at all.
    """
    found = Discovery()
    seen: set[tuple[int, int]] = set()
    for argument in arguments:
        text = str(argument)
        if text == "-":
            found.sources.append(Source(None, STDIN))
            continue
        if not text.strip():
            raise EvidenceError(
                "an empty path was given", subject="''", hint="rerail diagnose PATH_TO_LOGS"
            )
        paths = _expand(text)
        for path in paths:
            _add(path, found, seen, folder=None)
    found.sources = _with_nodes(found.sources)
    return found


def source_at(path: Path, name: str, node: str | None, stream: Stream | None) -> Source:
    """Return a file that lies at `path` and is called `name`; node and stream where they are known."""
    origin = origin_of(name)
    origin = replace(origin, node=node or origin.node, stream=stream or origin.stream)
    return Source(path, redact(clean(os.fsencode(name))), origin, path.stat().st_size)


def named_sources(names: Iterable[str]) -> list[Source]:
    """Return texts in memory as if they were the files of one job that are called so."""
    return _with_nodes([Source(None, name, origin_of(name)) for name in names])


def join(first: Discovery, second: Discovery) -> Discovery:
    """Return what two searches found, as one job."""
    return Discovery(
        _with_nodes([*first.sources, *second.sources]), [*first.problems, *second.problems],
        [*first.profiles, *second.profiles], [*first.scanned, *second.scanned],
    )  # fmt: skip


def reading_order(name: str) -> tuple[tuple[tuple[int, int, str], ...], int, str]:
    """Return the sort key of a file among the others of a job: numbers by value, rotated logs oldest first.

    The key holds nothing of how the files were named on the command line, so that a verdict does not
    depend on the order of the arguments.
    """
    stem, rotation = name, 0
    rotated = _ROTATED.match(name)
    if rotated:
        stem, rotation = rotated["stem"], _age(rotated)
    elif packed := _PACKED.match(name):
        stem = packed["stem"]
    parts = tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part)
        for part in _NUMBERS.split(stem)
        if part
    )
    return parts, rotation, name


def rotated_parts(names: Collection[str]) -> dict[str, RotatedName]:
    """Return of each part of a rotated log, by the files' names, which log it is of; logs of ranks may be called so too."""
    rotated = {name: match for name in names if (match := _ROTATED.match(name))}
    logs: dict[object, list[str]] = defaultdict(list)
    for name in names if rotated else ():
        logs[reading_order(name)[0]].append(name)
    found = {
        name: RotatedName(
            log, _number(rotated.get(name)), name not in rotated, reading_order(name)[1]
        )
        for log, parts in logs.items()
        if len(parts) > 1 and not rotated.keys().isdisjoint(parts)
        for name in parts
    }
    known = set(names)
    for name in names:
        match = _ROTATED_IN_FRONT.match(name)
        if match is None or (live := match["stem"] + match["ending"]) not in known:
            continue
        counted_from_0 = f"{match['stem']}.0{match['ending']}" in known
        if counted_from_0:
            continue  # as ranks are; old logs are counted from 1
        log, number = reading_order(live)[0], int(match["count"])
        found.setdefault(live, RotatedName(log, 0, live=True, age=0))
        found[name] = RotatedName(log, number, live=False, age=-1 - number)
    return found


def _number(rotated: re.Match[str] | None) -> int | None:
    if rotated is None:
        return 0
    return int(rotated["count"]) if rotated["count"] else None


def _age(rotated: re.Match[str]) -> int:
    """Return a number that is below 0, which the live file has, and lower for an older part."""
    if rotated["count"]:
        return -1 - int(rotated["count"])
    if rotated["old"]:
        return -1
    digits = "".join(filter(str.isdigit, rotated["date"]))
    return int(digits[:18].ljust(18, "0")) - 10**19


def _expand(text: str) -> list[Path]:
    path = Path(text).expanduser()
    if _exists(path):
        return [path]
    if any(ch in text for ch in "*?["):
        from glob import glob

        hits = sorted(glob(str(path), recursive=True))
        if hits:
            return [Path(hit) for hit in hits]
        raise EvidenceError(f"no file matches {text!r}", subject=text, hint=f"ls {_nearest(path)}")
    raise EvidenceError(
        f"no such file or folder: {text!r}", subject=text, hint=f"ls {_nearest(path)}"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists() or path.is_symlink()
    except OSError:
        return False


def _nearest(path: Path) -> str:
    for parent in path.parents:
        if _exists(parent):
            return str(parent)
    return "."


def _add(path: Path, found: Discovery, seen: set[tuple[int, int]], folder: Path | None) -> None:
    try:
        stat = path.stat()
    except OSError as error:
        shown = _shown(path.relative_to(folder) if folder else path)
        why, hint = f"cannot be read: {error.strerror}", f"ls -l {_shown(path)}"
        found.problems.append(Problem(shown, why, hint, unread=True))
        return
    key = (stat.st_dev, stat.st_ino)
    if key in seen:
        return
    seen.add(key)
    if path.is_dir():
        _walk(path, found, seen, folder or path)
        return
    # A pipe that was named is read; one that lies in a folder would be waited for, for ever.
    if not path.is_file() and (folder is not None or not path.is_fifo()):
        shown, why = _shown(path), _no_file(stat.st_mode)
        hint = f"name it by itself: rerail diagnose {shown}; {STDIN_HINT}"
        found.problems.append(Problem(shown, why, hint if path.is_fifo() else "name the log file"))
        return
    name = _shown(path.relative_to(folder) if folder else path)
    if folder and path.name.lower().endswith(_SKIP_SUFFIXES):
        return
    if path.name.endswith(SCANNED_SUFFIX):
        found.scanned.append(path)
        return
    if folder and path.name.lower().endswith(PROFILE_SUFFIXES):
        found.profiles.append(path)
        return
    if stat.st_size == 0 and path.is_file():
        if _PACKED.fullmatch(
            path.name
        ):  # a packed file holds some bytes, even that of an empty log
            why, hint = "a packed file without a byte: what it held is lost", "copy it again"
            found.problems.append(Problem(name, why, hint, unread=True))
        elif not folder:
            found.problems.append(
                Problem(name, "the file is empty", "check that the job wrote to it")
            )
        return
    found.sources.append(Source(path, name, origin_of(name), stat.st_size))


def _no_file(mode: int) -> str:
    """Return what lies there in place of a file."""
    if S_ISFIFO(mode):
        return "a pipe, which a folder's logs are not read from"
    if S_ISSOCK(mode):
        return "a socket, and no file"
    return f"a {'character' if S_ISCHR(mode) else 'block'} device, and no file"


def _shown(path: Path) -> str:
    """Return a path as reports show it: a job may give its files any name, escape codes included."""
    return redact(clean(os.fsencode(path)))


def _walk(folder: Path, found: Discovery, seen: set[tuple[int, int]], root: Path) -> None:
    try:
        entries = sorted(os.scandir(folder), key=lambda e: _natural(e.name))
    except OSError as error:
        found.problems.append(
            Problem(
                _shown(folder),
                f"folder cannot be read: {error.strerror}",
                f"ls -ld {_shown(folder)}",
                unread=True,
            )
        )
        return
    names = {entry.name for entry in entries}
    for entry in entries:
        if entry.name in _SKIP_DIRS:
            continue
        if entry.name == "error.json" and names & {"stderr.log", "stdout.log"}:
            # torchrun's copy of the exception that the rank's own log holds in full.
            continue
        path = Path(entry.path)
        if entry.is_symlink() and leads_astray(path):
            why = "a link of one account to a file of another is not followed"
            found.problems.append(
                Problem(_shown(path.relative_to(root)), why, f"ls -l {_shown(path)}", unread=True)
            )
            continue
        _add(path, found, seen, root)


def leads_astray(link: Path) -> bool:
    """Tell whether somebody's link leads to a file that is not theirs.

    Who writes a job's folder could show others what only the reader may read, root for one. Links of one's own
    account and of root are followed (as Linux does with fs.protected_symlinks, proc_sys_fs(5)).
    """
    try:
        made_by, end = link.lstat().st_uid, link.stat()
    except OSError:
        return False  # it cannot be read in any case, and that is told
    return made_by not in (0, os.geteuid()) and made_by != end.st_uid


def _natural(name: str) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", name)
    return [(int(p), "") if p.isdigit() else (-1, p) for p in parts]


def _with_nodes(sources: list[Source]) -> list[Source]:
    """Give sources to the hosts that their folders, or they themselves, are called after."""
    hosts = hosts_side_by_side([(source.name, source.origin) for source in sources])
    return [
        source if host is None else replace(source, origin=replace(source.origin, node=host))
        for source, host in zip(sources, hosts, strict=True)
    ]


class Readable(Protocol):
    """What can be read piece by piece."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes, none only at the end."""
        ...


def iter_chunks(
    stream: Readable, sizes: int | Iterator[int] = 1 << 18, *, first: bytes = b""
) -> Iterator[bytes]:
    """Yield the stream in pieces that end at a newline wherever one is to be had; `first` was read already.

    `sizes` is that of all pieces in bytes, or those of one after the other, without end.

    The holes of a file that was truncated while its writer went on are left out: they read as NUL bytes.

    A line longer than 8 MiB is split by force, so that memory stays bounded; the reader counts
    newlines, so line numbers are right all the same. No secret is cut in two by that.
    """
    carry = b""
    limit = 8 << 20
    each = repeat(sizes) if isinstance(sizes, int) else sizes
    while True:
        block = first or stream.read(next(each))
        first = b""
        if b"\0" in block:
            block = block.replace(b"\0", b"")
            if not block:
                continue
        if not block:
            if carry:
                yield carry
            return
        cut = block.rfind(b"\n") + 1
        if cut == 0:
            carry += block
            if len(carry) >= limit:
                cut = cut_of(carry)
                yield carry[:cut]
                carry = carry[cut:]
            continue
        yield b"".join((carry, memoryview(block)[:cut])) if carry or cut < len(block) else block
        carry = block[cut:]
