"""One name for each host: what labels call it, and what those who drain it call it.

A collector may put an address, a number or a pod in front of a host's lines. Where a line with that label
says the host's own name, or a line lists both, the host goes by its own name everywhere.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import field

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.phrases import phrase, says
from rerail.knowledge_base.placement.names import same_host, short
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_address, is_counter, is_local
from rerail.log_parsers.view import LogView

_MOST_LABELS = 512
_LEAST_PAIRS = 2
_MOST_LINES, _FRONT = 4_000, 400
_NAMES_APART = bytes(
    code if bytes([code]).isalnum() or code in b"._-" else ord(" ") for code in range(256)
)
"""Leaves of a line what may be part of a name."""
_PAIR = lazy(
    r"(?<![\w.=/-])(?P<label>[A-Za-z0-9][\w.-]{0,80})=(?P<host>(?=[\w.-]*[A-Za-z])[\w.-]{2,100}\w)"
)


@dataclass(slots=True)
class HostAliases:
    """What the lines say of which label stands for which host."""

    _hosts: dict[str, dict[str, LogLine]] = field(default_factory=lambda: defaultdict(dict))
    _names: dict[str, str] = field(default_factory=dict)

    def told(
        self, label: str | None, host: str | None, line: LogLine, *, surely: bool = False
    ) -> None:
        """Add that a line under a label names a host as its own.

        Args:
            label: what stands in front of the line, or None.
            host: the name that the line has for its own host, or None.
            line: the line.
            surely: the line says that it is the name of the machine; else the name counts only where the
                label is an address or merely counts, since a container has a name of its own as well.
        """
        if not label or not host or same_host(label, host) or _says_nothing(host):
            return
        if is_counter(host) and not is_address(label):
            return
        if surely or is_address(label) or is_counter(label) or phrase("node-is").search(line.text):
            self._hosts[label].setdefault(short(host), line)
            self._names.setdefault(short(host), host)

    def listed(self, view: LogView, labels: set[str]) -> None:
        """Add what lines say that set several labels equal to names, `w-0=tpu-vm-0 w-1=tpu-vm-1`."""
        if not _LEAST_PAIRS <= len(labels) <= _MOST_LABELS:
            return
        kept = view.survey.kept
        for number in view.numbers[:_MOST_LINES]:
            if kept[number].count(b"=") < _LEAST_PAIRS or b"=" not in kept[number][:_FRONT]:
                continue
            text = view.text(number) or ""
            pairs = {m["label"]: m["host"] for m in _PAIR.finditer(text) if m["label"] in labels}
            if len(pairs) < _LEAST_PAIRS or len(set(pairs.values())) < len(pairs):
                continue
            if (line := view.line(number)) is not None:
                for label, host in pairs.items():
                    self.told(label, host, line, surely=True)

    def agreed(self) -> Iterator[tuple[str, str, LogLine]]:
        """Yield label, host and line where a label has one host, which no other label has."""
        labels: dict[str, set[str]] = defaultdict(set)
        for label, hosts in self._hosts.items():
            for host in hosts:
                labels[host].add(label)
        for label, hosts in self._hosts.items():
            host, line = next(iter(hosts.items()))
            if len(hosts) == 1 and len(labels[host]) == 1 and host not in self._hosts:
                yield label, self._names[host], line


def without_domain(names: set[str], labels: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the names with a domain that labels have without it, where no two hosts share what is left."""
    longer = {name for name in names if short(name) != name} - labels
    shorts = Counter(short(name) for name in longer)
    for name in sorted(longer):
        if short(name) in labels and shorts[short(name)] == 1:
            yield name, short(name)


def standing_alone(case: Case, names: set[str]) -> set[str]:
    """Return the names by which some line calls a host, without a domain or anything else behind it."""
    left = {name.encode() for name in names}
    for view in case.views:
        for number in view.numbers[:_MOST_LINES]:
            if not left:
                return names
            left.difference_update(view.survey.kept[number].translate(_NAMES_APART).split())
    return names - {name.decode() for name in left}


def _says_nothing(host: str) -> bool:
    return is_local(host) or is_address(host) or says("container-id", host)
