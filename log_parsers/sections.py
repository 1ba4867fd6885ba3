"""Logs that stand behind each other in one file, each under a heading that says of which host it is.

People paste what they looked at, job scripts print the logs of all nodes one after the other. A line
of such a section carries no label that says where it was written; its heading does. Headings are data
(`sections.yaml`); one that names no host, or two, ends the section before it and begins none.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.file_names import hosts_side_by_side, origin_of
from rerail.log_parsers.host_names import (
    is_counter,
    is_local,
    is_numbered_host,
    looks_like_host,
)
from rerail.log_parsers.named_after_hosts import Told, named_after_hosts
from rerail.log_parsers.prefixes import Origin
from rerail.log_parsers.ranks_of_files import counted_on_each_host
from rerail.log_parsers.shell_loops import AskedHost, asked_host, looped
from rerail.log_parsers.text import ZERO

FILE = Path(__file__).with_name("sections.yaml")
_FIRST = lazy(
    rb"\s?(?:[=#*~+><:-]{2,}|[$#>%+] |ipmitool |kubectl |(?i:std(?:out|err)|standard )|"
    rb"\[[\w.]{2,40}=[^\]]{1,160}\] ?[$#] |[\w.-]{1,60} \| [CSFU]|\[\d{1,6}\] \d\d:\d\d:\d\d \[[SF]|"
    rb"[Ff]ile(?:name)?:|\[?[\w./=-]{1,60}\.(?:log|out|err|txt)[\]:]\s*$|\[?[\w./=-]{60}|"
    rb"(?:\([\w.-]{1,40}\) )?\[?[\w.@-]{2,120}(?:\]|[: ][^\s:]{0,60}\]?)? ?[$#] )"
)
_HEAD, _MOST_OTHERS = 64, 20_000  # bytes of a line; beginnings that are remembered
_FILE_NAME = lazy(r"\.(?:log|err|out|txt)$|^(?:dmesg|kern|journal|syslog)[-.]|/")
_DASHES = lazy(rb"-{5,}")
_ONE_WORD = lazy(r"(?P<word>(?=[\w.-]*\d)[A-Za-z][\w.-]{0,80})(?: \([^()]{0,80}\))?")
_OUTPUT_OF = lazy(
    r"(?:\S*/)?(?:out|err|log|logs|stdout|stderr|output)[._-](?P<word>[A-Za-z][\w.-]{0,80})"
)
_BESIDE = lazy(r"\((?P<word>(?=[\w.-]*\d)[A-Za-z][\w.-]{1,80})\)")
_AT_HOST = lazy(r"^\S+ @ (?=[\w.-]*\d)[A-Za-z][\w.-]{1,100}$")  # a pod, or a rank, at its host
_DIGITS = lazy(r"\d+")
_FOLDED = lazy(r"(?P<stem>[A-Za-z][\w.-]{0,80})\[\d[\d,-]{0,200}\]")
_PARTS = lazy(r"[_/]|\.(?!\d)")
_NUMBERED = lazy(r"(?i)(?:rank|pid|r|p)\d+")
_LEAST_ALIKE = 2
_BOTH = 2  # a single `stdout:` may be anything
_MOST_HEADINGS = 20_000
_WORD = lazy(r"(?<![\w.@/:=-])[A-Za-z0-9][\w.-]{1,100}(?![\w=])")


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of a heading."""

    id: str
    pattern: re.Pattern[str]
    matches: tuple[str, ...]
    framed: bool = False
    """A line of dashes stands above and below."""
    only_telling: bool = False
    """It ends no section where it names no host itself."""
    ends: bool = False
    """It ends the section above, also where no heading of its shape names a host."""
    answers: bool = False
    """Its section is what one command printed, which the next command ends."""
    within: bool = False
    """What stands under it is of the host of the section above."""
    typed: bool = False
    """It is a command that somebody or a script gave to a shell."""
    of_host: bool = False
    """Its title is a host, whatever it looks like."""
    each: bool = False
    """It counts only where there are several, with something below each: else what stands below the last is of all."""


@dataclass(frozen=True, slots=True)
class _Data:
    shapes: tuple[Shape, ...]
    contents: frozenset[str]
    of_files: frozenset[str]
    of_machines: tuple[str, ...]
    says_machine: frozenset[str]
    pods: tuple[re.Pattern[str], ...]
    hosts: tuple[re.Pattern[str], ...]
    no_hosts_by_form: re.Pattern[str]
    rank: re.Pattern[str]


@lru_cache(maxsize=1)
def _data() -> _Data:
    raw = load_cached(FILE)
    shapes = [
        Shape(
            one["id"],
            lazy(one["pattern"]),
            tuple(one["matches"]),
            bool(one.get("framed")),
            bool(one.get("only_telling")),
            bool(one.get("ends")),
            bool(one.get("answers")),
            bool(one.get("within")),
            bool(one.get("typed")),
            bool(one.get("of_host")),
            bool(one.get("each")),
        )
        for one in raw["shapes"]
    ]
    pods = tuple(lazy(text) for text in raw["pods"])
    hosts = tuple(lazy(text) for text in raw["hosts"])
    by_form, rank = lazy(raw["no_hosts_by_form"]), lazy(raw["rank"])
    contents = frozenset(raw["contents"])
    of_files = contents | frozenset(raw["of_files"])
    machines = tuple(raw["of_machines"])
    says = frozenset([*machines, *raw["words_for_machines"]])
    return _Data(tuple(shapes), contents, of_files, machines, says, pods, hosts, by_form, rank)


def shapes() -> tuple[Shape, ...]:
    """Return the shapes of headings of this installation."""
    return _data().shapes


@dataclass(frozen=True, slots=True)
class Heading:
    """What a heading says: where the lines below it were written, as far as it tells; `shape` and its signs."""

    origin: Origin | None
    shape: str
    rule: str = ""
    file: bool = False
    """It names the file whose lines stand below it."""
    title: str = ""
    """All that it says, where that is one word with a number."""
    path: str = ""
    """The file that it names."""
    series: str = ""
    """The hosts of a folded list, with a zero for their numbers."""


@dataclass(frozen=True, slots=True)
class Sections:
    """The headings of one file, in order."""

    starts: tuple[int, ...] = ()
    origins: tuple[Origin | None, ...] = ()

    def origin(self, number: int, default: Origin) -> Origin:
        """Return where a line was written: as its heading says, else as its file does."""
        at = bisect_right(self.starts, number) - 1
        told = self.origins[at] if at >= 0 else None
        if told is None:
            return default
        return replace(
            default,
            node=told.node or (default.node if told.place else None),
            place=told.place,
            rank=told.rank,
            local_rank=told.local_rank,
            attempt=told.attempt,
        )


def heading(text: str, framed: bool = False) -> Heading | None:
    """Return what a line says as a heading, or None where it is none.

    Args:
        text: the line.
        framed: whether lines of dashes stand above and below it.
    """
    data = _data()
    for shape in data.shapes:
        match = shape.pattern.match(text) if shape.framed is framed else None
        if match is None:
            continue
        pod = next((m["pod"] for p in data.pods if (m := p.search(text))), None)
        if pod is not None:
            # The rest of the name stands in a variable of the shell.
            return Heading(None if pod.endswith("-") else Origin(place=pod), shape.id)
        slots = match.groupdict()
        if path := slots.get("path") or slots.get("path2"):
            host, _, of_host = path.partition(":")
            if (
                of_host and not of_host[0].isdigit() and looks_like_host(host)
            ):  # as scp and rsync write the file of a host
                return Heading(replace(origin_of(of_host), node=host), shape.id, path=of_host)
            named = origin_of(path)
            told = {m["host"] for pattern in data.hosts for m in pattern.finditer(path)}
            if named.node is None and len(told) == 1:
                named = replace(named, node=told.pop())
            bare = bool(_ONE_WORD.fullmatch(path)) and looks_like_host(path) and not _files(path)
            return Heading(_known(named), shape.id, title=path if bare else "", path=path)
        if "title" not in slots:
            return Heading(None, shape.id)
        if shape.of_host:
            return Heading(Origin(node=slots["title"] or slots["title2"]), shape.id)
        origin = _of_file(slots["title"], data) if shape.id in ("banner", "command") else None
        host = _host_in(slots["title"], shape, origin, data)
        if host is None and shape.only_telling:
            return None
        if host is not None:
            origin = replace(origin or Origin(), node=host)
            if shape.id == "banner" and len(told := set(data.rank.findall(slots["title"]))) == 1:
                origin = replace(origin, rank=int(told.pop()))
        file = shape.id == "banner" and len(_files(slots["title"])) == 1
        title = slots["title"]
        word = _ONE_WORD.fullmatch(title) or _OUTPUT_OF.fullmatch(title) or _BESIDE.search(title)
        path = _files(title)[0] if file else ""
        folded = _FOLDED.fullmatch(title) if shape.framed else None
        series = _DIGITS.sub("0", f"{folded['stem']}0") if folded else ""
        alone = word["word"] if word else ""
        return Heading(origin, shape.id, slots.get("rule") or "", file, alone, path, series)
    return None


def titled(name: str) -> Origin | None:
    """Return what the name of a file tells where it is a title, as people give what they save: `dmesg -T (gn-12)`."""
    if " " not in name.strip():
        return None
    found, data = heading(f"=== {name} ==="), _data()
    origin = found.origin if found is not None else None
    if origin is None or origin.place is not None:
        return origin
    # What stands in brackets behind anything else may be a try, a model of GPU or a copy.
    words = {word.strip("():").lower() for word in name.split()}
    return origin if data.says_machine & words and not data.no_hosts_by_form.match(name) else None


def _known(origin: Origin) -> Origin | None:
    told = (origin.node, origin.rank, origin.local_rank)
    return origin if any(one is not None for one in told) else None


def _files(title: str) -> list[str]:
    return [word for word in title.split() if _FILE_NAME.search(word)]


def _of_file(title: str, data: _Data) -> Origin | None:
    """Return what the only name of a file in a title tells."""
    files = _files(title)
    if len(files) != 1:
        return None
    origin = origin_of(files[0])
    told = {match["host"] for pattern in data.hosts for match in pattern.finditer(files[0])}
    parts = {
        part
        for part in _parts(files[0])
        if looks_like_host(part) and origin_of(part).local_rank is None
    }
    if origin.node is None and len(told or parts) == 1:
        origin = replace(origin, node=(told or parts).pop())
    return _known(origin)


def _parts(name: str) -> Iterator[str]:
    """Yield what may be a host in the name of a file: what is left without the words around it, else each word.

    A file system's own folder, below the root, is called after none.
    """
    *folders, name = name.split("/")
    for folder in folders[2:] if folders[:1] == [""] else folders:
        yield from map(_without_labels, _PARTS.split(folder))
    for part in _PARTS.split(name):
        bare = _without_labels(part)
        yield from [bare] if bare != part else part.split("-")


def _without_labels(part: str) -> str:
    """Return a part of a file's name without the words around a host: `pyspy-rank19-slr-g3` is of slr-g3."""
    words = part.split("-")
    while words and (count := _labels(words[:2], words[0]) or int(words[0].isdigit())):
        words = words[count:]
    while words and (count := _labels(words[-2:], words[-1])):
        words = words[:-count]
    return "-".join(words)


def _labels(pair: list[str], outer: str) -> int:
    """Return how many words at an end of a name are no part of a host's: the last two, the outer one or none."""
    known = _data().of_files
    if len(pair) == 2 and "-".join(pair).lower() in known:
        return 2
    return int(outer.lower() in known or _NUMBERED.fullmatch(outer) is not None)


def _host_of_file(word: str, data: _Data) -> str | None:
    """Return the host of a file called after it and its content, as in `gpu-7.nvidia-smi.txt`."""
    first, *others = word.rpartition("/")[2].split(".")
    about = any(part.lower().startswith(data.of_machines) for part in others)
    return first if about and looks_like_host(first) else None


def _titled(title: str, data: _Data) -> str | None:
    called = {host for word in title.split() if (host := _host_of_file(word, data))}
    if len(called) == 1:
        return called.pop()
    words = {word.strip("():,'\"[]").lower() for word in title.split()}
    named = words & data.contents or any(
        word.startswith("/") or word.rpartition(".")[2] in data.contents for word in words
    )
    return _host(title, data) if named else None


def _host_in(title: str, shape: Shape, origin: Origin | None, data: _Data) -> str | None:
    """Return the host of a title; in a banner it may stand in brackets behind the name of a process's file."""
    if shape.id != "banner":
        return _host(title, data)
    host = _titled(title, data)
    if host is None and ((origin is not None and _BESIDE.search(title)) or _AT_HOST.search(title)):
        host = _host(title, data)
    return host


def _host(title: str, data: _Data) -> str | None:
    """Return the only host that a title names, or None."""
    for pattern in data.hosts:
        found = {match["host"].rstrip(".:") for match in pattern.finditer(title)}
        if found:
            return found.pop() if len(found) == 1 and not any(map(is_local, found)) else None
    if data.no_hosts_by_form.match(title):
        return None
    words = {word.rstrip(".:,") for word in _WORD.findall(title)}
    hosts = {word for word in words if looks_like_host(word)}
    return hosts.pop() if len(hosts) == 1 else None


def _named_alike(found: list[tuple[int, Heading]]) -> list[tuple[int, Heading]]:
    """Titles of one word each that differ in their numbers alone are names of hosts: what a loop over them prints."""
    alone = [one for _, one in found if one.origin is None and one.title]
    forms = Counter(_DIGITS.sub("0", title) for title in {one.title for one in alone})
    forms.update({one.series for _, one in found if one.series})
    stems = {form.split("-")[0] for form in forms}
    # The pods of one job differ in a word besides: its master and its workers.
    if len(stems) != 1 or max(forms.values(), default=0) < _LEAST_ALIKE:
        return found
    if len(forms) > 1 and any("-" not in form for form in forms):
        return found
    if any(is_counter(one.title) or is_local(one.title) for one in alone):
        return found
    return [
        (n, replace(one, origin=one.origin or Origin(node=one.title)) if one.title else one)
        for n, one in found
    ]


def _of_loop(says: Heading, loop: str, parts: dict[str, Origin]) -> Heading:
    """Give what a loop prints under a part of a name to the pod or host that its command looked at.

    It is the answer of that command, whose shape is `loop`, so that the next command ends it.
    """
    origin = parts.get(says.title) if says.origin is None else None
    return says if origin is None else replace(says, origin=origin, shape=loop, rule="")


def _called_after_hosts(
    found: list[tuple[int, Heading]], told: list[Told]
) -> list[tuple[int, Heading]]:
    """Give the sections whose headings name files that are called after hosts to those hosts."""
    files = [at for at, (_, one) in enumerate(found) if one.path]
    known = {one.origin.node for _, one in found if one.origin and one.origin.node and not one.path}
    names = named_after_hosts(
        [found[at][1].path for at in files], [told[at] for at in files], known
    )
    out = list(found)
    for at, name in zip(files, names, strict=True):
        number, one = found[at]
        guess = one.origin.node if one.origin is not None else None
        if name is not None and (guess is None or name in guess):
            out[at] = (number, replace(one, origin=replace(one.origin or Origin(), node=name)))
    return out


def _side_by_side(found: list[tuple[int, Heading]]) -> list[tuple[int, Heading]]:
    """Give sections of files to the hosts that their folders are called after; numbers that begin anew are local ranks."""
    files = [at for at, (_, one) in enumerate(found) if one.path]
    origins = [found[at][1].origin or Origin() for at in files]
    paths = [found[at][1].path for at in files]
    hosts = hosts_side_by_side(list(zip(paths, origins, strict=True)))
    told = [replace(one, node=one.node or host) for one, host in zip(origins, hosts, strict=True)]
    if counted_on_each_host((one.rank, one.node) for one in told):
        told = [replace(one, rank=None, local_rank=one.rank) if one.node else one for one in told]
    out = list(found)
    for at, origin in zip(files, told, strict=True):
        number, one = found[at]
        out[at] = (number, replace(one, origin=_known(origin) or one.origin))
    return out


def _without_numbers(found: list[tuple[int, Heading]]) -> list[tuple[int, Heading]]:
    """Take the host from headings that only number it (node2.log), where other headings call hosts by names."""
    told = {one.origin.node for _, one in found if one.origin is not None} - {None}
    numbers = {name for name in told if name is not None and is_numbered_host(name)}
    if not numbers or numbers == told:
        return found
    return [
        (n, replace(one, origin=_known(replace(one.origin, node=None))))
        if one.origin is not None and one.origin.node in numbers
        else (n, one)
        for n, one in found
    ]


class _Beginnings:
    """Tells of lines whether they begin as headings do, at one look where others differ from them in digits alone."""

    def __init__(self) -> None:
        self._others: set[bytes] = set()

    def __call__(self, raw: bytes) -> bool:
        head = raw[:_HEAD].translate(ZERO)
        if head in self._others:
            return False
        if _FIRST.match(raw[:_HEAD]):
            return True
        if len(self._others) < _MOST_OTHERS:
            self._others.add(head)
        return False


def _is_line_of_dashes(raw: bytes) -> bool:
    return raw.startswith(b"-") and _DASHES.fullmatch(raw.rstrip()) is not None


def _taken(told: list[Told], raw: bytes) -> None:
    """Give a line to the section in which it stands; above the first heading there is none."""
    if told:
        told[-1].take(raw)


def _uncoloured(line: bytes, clean: Callable[[bytes], str]) -> bytes:
    return clean(line).encode() if line.startswith(b"\x1b") else line


def _launched_for_all(found: list[tuple[int, Heading]]) -> set[str]:
    """Return the shapes of launches on several hosts, where only one is shown, or what they print stands below the last."""
    each = {shape.id for shape in shapes() if shape.each}
    at = [number for number, one in found if one.shape in each]
    return each if len(at) == 1 or any(b - a == 1 for a, b in pairwise(at)) else set()


def sections(lines: Iterable[tuple[int, bytes]], clean: Callable[[bytes], str]) -> Sections:
    """Return the sections of one file.

    Args:
        lines: numbers and bytes of its lines, in order.
        clean: what makes text of a line.

    Where no heading names a host, the file is one section and its name tells where it is from.
    """
    found: list[tuple[int, Heading]] = []
    last = (0, b"")  # the line above
    above = -1  # the line of dashes above that
    told: list[Told] = []  # of each section
    loop = ""  # the shape of the command that was given last
    parts: dict[str, Origin] = {}  # whose the values of its loop are
    asked = AskedHost()  # what tells the host of its answer
    begins = _Beginnings()
    typed = {shape.id for shape in shapes() if shape.typed}
    for number, line in lines:
        raw = _uncoloured(line, clean)
        if len(found) >= _MOST_HEADINGS:
            break
        if _is_line_of_dashes(raw):
            if above == last[0] - 1 and (says := heading(clean(last[1]), framed=True)) is not None:
                found.append((last[0], says))
                told.append(Told())
            above = number
        elif begins(raw) and (says := heading(text := clean(raw))) is not None:
            if says.shape in typed:
                loop, parts, asked = says.shape, looped(text), asked_host(text, number)
            found.append((number, _of_loop(says, loop, parts)))
            told.append(Told())
        elif (host := asked.told(number, raw)) is not None:
            found.append((number, Heading(host, loop)))
            told.append(Told())
        else:
            _taken(told, raw)
        last = (number, raw)
    inner = {shape.id for shape in shapes() if shape.within}
    not_counted = _launched_for_all(found)
    if sum(one.shape in inner for _, one in found) < _BOTH:
        not_counted |= inner
    apart = [at for at, (_, one) in enumerate(found) if one.shape not in not_counted]
    found, told = [found[at] for at in apart], [told[at] for at in apart]
    found = _called_after_hosts(_named_alike(found), told)
    found = _without_numbers(_side_by_side(found))
    telling = {(one.shape, one.rule) for _, one in found if one.origin is not None or one.file}
    ending = {shape.id for shape in shapes() if shape.ends}
    if not telling and all(one.shape not in ending for _, one in found):
        return Sections()
    answers = {shape.id for shape in shapes() if shape.answers}
    kept: list[tuple[int, Origin | None]] = []
    before = ""  # the shape of the heading above
    for n, one in found:
        # A rule of other signs is an ornament of the program, and no heading.
        told_by_shape = (one.shape, one.rule) in telling or one.shape in ending
        if told_by_shape or (one.shape in answers and before in answers):
            within = one.origin is None and one.shape in inner and kept
            kept.append((n, kept[-1][1] if within else one.origin))
            before = one.shape
    return Sections(tuple(n for n, _ in kept), tuple(origin for _, origin in kept))
