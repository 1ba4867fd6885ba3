"""What the front of a log line says about its origin: rank, node, process, time, program.

Launchers, schedulers and log collectors each put their own label in front, and they stack:
`3: [rank3]:[E1122 06:40:00.5 ProcessGroupNCCL.cpp:607] ...`. Labels are peeled off one by one; an
inner label knows better than an outer one, so `[rank37]:` behind srun's `4: ` wins.
"""

from __future__ import annotations

import re
from dataclasses import field

from rerail.domain.evidence import LogLine, Stream
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_address, is_container_id
from rerail.log_parsers.json_records import Fields, number_of_place, writer_of
from rerail.log_parsers.labels import Label, peel
from rerail.log_parsers.line_stream import stream_of
from rerail.log_parsers.line_tails import Tail
from rerail.log_parsers.timestamps import Stamp, find_stamp

_WORD_IN_FRONT = lazy(r"(?P<node>[A-Za-z][\w.-]{1,80})(?:: | {1,8}\| )")
# A number within two groups at once (`Worker_PP1_TP2`) is no rank.
_INNER_NUMBER = lazy(r"(?<![A-Z]\d_)(?:Worker|rank|Rank|TP|DP)[_-]?(?:TP|DP|R)?(\d+)$")


@dataclass(frozen=True, slots=True)
class Origin:
    """What is known of a file before its lines are read: from its path or its content."""

    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    pid: int | None = None
    place: str | None = None
    """A container, pod or replica whose host other lines may tell."""
    stream: Stream | None = None
    attempt: int | None = None
    hosts: frozenset[str] = frozenset()
    """Words that a launcher puts in front of the lines of this file, and that are hosts by the file's own account."""
    induced: tuple[Label, ...] = ()
    """Labels that no pattern knows and that the lines of this file have in common."""
    collected_from: str | None = None
    """The host or pod that a collector names in front of every line of this file."""
    records: Fields | None = None
    """The fields by which the records of this file, which are JSON, tell who wrote them."""
    above_places: int | None = None
    """By how much the ranks are above the numbers of the pods that write the records, each of which holds one."""
    tail: Tail | None = None
    """What stands around the rank that nearly all lines of this file end with."""
    tasks_hold_ranks: bool = False
    """The numbers in front of the lines count a scheduler's tasks, and a task starts several ranks."""


DEVICE = "g"
"""How a label begins that names a device and no local rank of a launcher."""
TASK = "t"
"""How a label begins that numbers a task of several ranks."""
NOWHERE = Origin()
"""The origin of lines of which only the text is known."""


@dataclass(slots=True)
class _Front:
    """What the labels of one line said so far, the inner over the outer."""

    rank: int | None
    local: int | None
    node: str | None
    pid: int | None
    place: str | None = None
    alias: str | None = None
    names: list[str] = field(default_factory=list)
    launcher_host: bool = False
    kernel: bool = False
    outermost: bool = True

    def take(self, label: Label, found: re.Match[str], *, tasks_hold_ranks: bool = False) -> None:
        """Add what one label says."""
        groups = found.groupdict()
        if label.kind == "task" and tasks_hold_ranks:
            self.names.append(f"{TASK}{int(groups['rank'])}")
            self.outermost = False
            return
        told = groups.get("rank") or groups.get("rank2")
        rank = told or _number_of_actor(groups.get("actor"))
        if rank is not None:
            self.rank = int(rank)
            if told is not None:
                self.names.append(f"r{self.rank}")
        if (local := groups.get("local")) is not None:
            self.local = int(local)
            self.names.append(f"{DEVICE if label.kind == 'device' else 'l'}{self.local}")
        if node := groups.get("node"):
            # A program inside a container calls its host by another name than those who drain it.
            if not (label.program_host and self.launcher_host):
                self._call(node, by_name=label.own_host)
            elif self.node and is_address(self.node) and not is_container_id(node):
                self._call(node, by_name=True)
            self.launcher_host = self.launcher_host or not (label.program_host or _is_pod(label))
            self.names.append(node)
        self.place = groups.get("place") or self.place
        if pid := groups.get("pid") or groups.get("pid2"):
            self.pid = int(pid)
            self.names.append(f"p{self.pid}")
        # What a log collector puts in front says nothing of the program's own labels.
        self.outermost = self.outermost and label.kind == "collector"
        self.kernel = self.kernel or label.kind == "kernel"

    def take_record(self, text: str, fields: Fields, above_places: int | None) -> None:
        """Add what the fields of a record say of its writer, and no label inside or around it does."""
        writer = writer_of(text, fields)
        if writer is None:
            return
        if self.rank is None and writer.rank is not None:
            self.rank = writer.rank
            self.names.append(f"r{writer.rank}")
        elif self.rank is None and self.local is None and writer.local is not None:
            self.local = writer.local
            self.names.append(f"l{writer.local}")
        if self.node is None and self.place in (None, writer.place):
            self.names += [name for name in (writer.node, writer.place) if name]
            self.node, self.place = writer.node, writer.place
        if self.rank is None and self.local is None and None not in (above_places, writer.place):
            number = number_of_place(writer.place or "")
            self.rank = None if number is None else number + (above_places or 0)

    def take_tail(self, text: str, at: int, tail: Tail) -> int:
        """Add the rank at the end of a line whose labels, which end at `at`, tell none; return where its message ends."""
        found = None if self.rank is not None else tail.read(text)
        if found is None or found[1] < at:
            return len(text)
        self.rank = found[0]
        self.names.append(f"r{self.rank}")
        return len(text[: found[1]].rstrip())

    def _call(self, node: str, *, by_name: bool) -> None:
        """Take the inner name of the host, and keep the outer one where both are of one host."""
        if by_name and self.node and self.node != node:
            self.alias = self.node
        self.node = node


def _label_at(
    induced: tuple[Label, ...], text: str, at: int, outermost: bool, stamp: Stamp | None
) -> tuple[Label, re.Match[str]] | None:
    """Match the label of the file itself, or one that is known; what tells nothing gives way to one that may tell."""
    if not induced:
        return peel(text, at, outermost, stamp)
    own = next(((one, found) for one in induced if (found := one.pattern.match(text, at))), None)
    if own is not None and own[1].groupdict() and not own[0].generic:
        return own
    known = peel(text, at, outermost, stamp)
    if own is None or (known is not None and not (own[1].groupdict() and known[0].generic)):
        return known
    return own


def _is_pod(label: Label) -> bool:
    return label.kind == "collector"


def _number_of_actor(actor: str | None) -> str | None:
    inner = _INNER_NUMBER.search(actor) if actor else None
    return inner[1] if inner else None


def parse_line(
    file: str, number: int, text: str, *, origin: Origin = NOWHERE, year: int
) -> LogLine:
    """Return `text`, already cleaned and redacted, as a LogLine with its origin and time."""
    front = _Front(origin.rank, origin.local_rank, origin.node, origin.pid, origin.place)
    at = 0
    stamp = find_stamp(text, year=year)
    if origin.hosts and (word := _WORD_IN_FRONT.match(text)) and word["node"] in origin.hosts:
        front.node, at, front.outermost, front.launcher_host = word["node"], word.end(), False, True
        front.names.append(word["node"])
    for _ in range(8):
        while at < len(text) and (text[at] == " " or (at and text[at] == "\t")):
            at += 1
        # A bracket or a level's letter may stand before the time; srun's `1: ` may not be lost with it.
        if stamp is not None and at <= stamp.start <= at + 3 and ":" not in text[at : stamp.start]:
            at = _behind_stamp(text, stamp.end)
            continue
        found = _label_at(origin.induced, text, at, front.outermost, stamp)
        if found is None:
            break
        front.take(*found, tasks_hold_ranks=origin.tasks_hold_ranks)
        at = found[1].end()
    if origin.records is not None:
        front.take_record(text, origin.records, origin.above_places)
    end = len(text) if origin.tail is None else front.take_tail(text, at, origin.tail)
    return LogLine(
        file=file,
        number=number,
        text=text,
        message=text[at:end],
        rank=front.rank,
        local_rank=front.local,
        node=front.node,
        pid=front.pid,
        time=stamp.seconds if stamp else None,
        clock=stamp.clock if stamp else None,
        stream=origin.stream or (Stream.KERNEL if front.kernel else stream_of(text)),
        label="/".join(front.names),
        place=front.place,
        alias=front.alias,
    )


def _behind_stamp(text: str, end: int) -> int:
    while end < len(text) and text[end] in "]:) ":
        end += 1
    return end + 2 if text.startswith("| ", end) else end
