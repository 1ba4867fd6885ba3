"""Logs that are called after the hosts that wrote them: names of files or headings, borne out by what stands in the logs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import (
    counted_host,
    is_local,
    is_no_host_as_a_file,
    looks_like_host,
    says_host,
    series_of,
)

FILE = Path(__file__).with_name("sections.yaml")
_STEM = lazy(
    r"(?:.*/)?(?P<stem>[^/]+?)(?:\.(?:log|out|err|txt|stdout|stderr|output|gz|zst|xz|bz2))*$"
)
_MACHINE = lazy(r"(?P<what>[a-z][a-z-]{2,14}?)[-_.](?P<host>[A-Za-z][\w-]{2,80})")
_WORD = lazy(r"(?<=[-_.])(?:[a-z]{2,6}-[a-z]{3,5}|[a-z]{3,15})(?=[-_.]|$)")
# Behind the command may stand an option of it or when it was asked: dmesg_T, nvidia-smi-q, ibstat_after
_BEHIND = lazy(r"(?:[-_.][A-Za-z]\w{0,11}){0,2}")
_NAME = lazy(r"[A-Za-z][\w-]{1,80}")
_NODE_RANK = lazy(rb"(?i)(?<![a-z])(?:node|machine)[_-]rank ?[=: ]{1,2}(?P<number>\d{1,5})\b")
_LINES, _WIDTH = 400, 400


@dataclass(slots=True)
class Told:
    """What the first lines of one log tell of hosts: those that it names as hosts, and the number of its own node."""

    hosts: set[str] = field(default_factory=set)
    node_ranks: set[int] = field(default_factory=set)
    read: int = 0

    def take(self, raw: bytes) -> None:
        """Read one more line; those behind the first few hundred are passed over."""
        if self.read >= _LINES:
            return
        self.read += 1
        head = raw[:_WIDTH]
        self.hosts |= says_host(head)
        if b"ank" in head or b"ANK" in head:
            self.node_ranks |= {int(match["number"]) for match in _NODE_RANK.finditer(head)}


def told_by(lines: Iterable[bytes]) -> Told:
    """Return what the lines of a log tell of hosts."""
    found = Told()
    for line in lines:
        found.take(line)
    return found


def named_after_hosts(
    names: Sequence[str], told: Sequence[Told], known: Collection[str] = ()
) -> list[str | None]:
    """Return for each log the host that it is called after, or None.

    A log is called after a host where one stands in its name that some log names as a host. Logs side by side whose
    names differ in a number, or in one letter, are called after hosts where that is so of one of them, or where nothing
    else is called a host and two or more tell the number of their node, each one of its own. What only a machine has,
    such as `dmesg.osprey` and `dmesg.wren`, is called after machines where there are several; `gn-12_nvidia-smi-q` is
    where the machine carries a number.

    Args:
        names: paths or titles.
        told: what each log tells.
        known: further hosts.
    """
    hosts = {host for one in told for host in one.hosts} | set(known)
    stems = [stem_of(name) for name in names]
    found = [_held(stem, hosts) or _in_front(stem) for stem in stems]
    machines = [_of_machine(stem) for stem in stems]
    if len(set(machines) - {None}) > 1:
        found = [one or machine for one, machine in zip(found, machines, strict=True)]
    series: dict[str, list[int]] = defaultdict(list)
    for at, stem in enumerate(stems):
        series[series_of(stem)].append(at)
    for members in series.values():
        if len({stems[at] for at in members}) < 2:
            continue
        front = _front(members, stems, found, told, hosts)
        alike = {series_of(host) for at in members if (host := found[at]) is not None}
        for at in members if front is not None else ():
            name = stems[at].removeprefix(front or "")
            if found[at] is None and (may_be_one(name) or series_of(name) in alike):
                found[at] = name
    return found


def _in_front(stem: str) -> str | None:
    """Return what stands in front of the word of a machine's own log (`gpu-7.nvidia-smi`), where it looks like a host."""
    machines = load_cached(FILE)["of_machines"]
    for word in _WORD.finditer(stem):
        host = stem[: word.start() - 1]
        if word[0] in machines and _BEHIND.fullmatch(stem, word.end()) and may_be_one(host):
            return host if looks_like_host(host) else None
    return None


def _of_machine(stem: str) -> str | None:
    """Return the word behind that of a machine's own log, without which the name says nothing."""
    what, machines = _MACHINE.fullmatch(stem), load_cached(FILE)
    if what is None or what["what"].lower() not in machines["of_machines"]:
        return None
    word = what["host"]
    plain = word.lower() in (*machines["contents"], *machines["of_files"])
    return None if plain or is_no_host_as_a_file(word) else word


def _front(
    members: Sequence[int],
    stems: Sequence[str],
    found: Sequence[str | None],
    told: Sequence[Told],
    hosts: Collection[str],
) -> str | None:
    """Return what stands in front of the host in the names of one series; None where they are not called after hosts."""
    fronts = {
        stems[at].removesuffix(host)
        for at in members
        if (host := found[at]) is not None and stems[at].endswith(host)
    }
    if fronts:
        return fronts.pop() if len(fronts) == 1 else None
    numbers = [told[at].node_ranks for at in members if told[at].node_ranks]
    alone = len(numbers) > 1 and all(len(one) == 1 for one in numbers)
    if hosts or not alone or len(set.union(*numbers)) < len(numbers):
        return None
    return ""


def stem_of(name: str) -> str:
    """Return the name of a log without its folders and endings."""
    match = _STEM.match(name)
    return match["stem"] if match else name


def _held(stem: str, hosts: Collection[str]) -> str | None:
    """Return the longest host that stands in a name between its dashes and dots, or None where two do."""
    held = {host for host in hosts if _stands_in(host, stem)}
    longest = {host for host in held if not any(host != other and host in other for other in held)}
    return longest.pop() if len(longest) == 1 else None


def _stands_in(host: str, stem: str) -> bool:
    at = stem.find(host)
    # What a line says to be a host and what counts hosts in other jobs as well is one, gpu041 for example.
    if at < 0 or not (may_be_one(host) or _counts_hosts(host)):
        return False
    before, behind = stem[at - 1 : at], stem[at + len(host) : at + len(host) + 1]
    return before in ("", "-", "_", ".") and behind in ("", "-", "_", ".")


def _counts_hosts(name: str) -> bool:
    return re.fullmatch(counted_host(), name) is not None and not is_local(name)


def may_be_one(name: str) -> bool:
    """Tell whether a host may be called so."""
    return (
        _NAME.fullmatch(name) is not None and not is_no_host_as_a_file(name) and not is_local(name)
    )
