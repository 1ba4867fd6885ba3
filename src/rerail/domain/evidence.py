"""What was read: log lines with their origin, and the observations made on them."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from rerail.late_dataclass import dataclass


class Stream(StrEnum):
    """Which kind of program wrote a line."""

    TRAIN = "train"
    AGENT = "agent"
    KERNEL = "kernel"
    SCHEDULER = "scheduler"
    CONTAINER = "container"
    FABRIC = "fabric"
    TOOL = "tool"


class Role(StrEnum):
    """The causal role of an observation, in place of a severity level.

    `initiating` can be the first fault, `cascade` is what a fault does to others, `teardown` is
    what stopping a job prints, `context` supports or places a finding, `benign` looks bad and is
    not, `success` says that the work was completed.
    """

    INITIATING = "initiating"
    CASCADE = "cascade"
    TEARDOWN = "teardown"
    CONTEXT = "context"
    BENIGN = "benign"
    SUCCESS = "success"


class Blames(StrEnum):
    """Whom an event is held against: who prints it, the other end, whom it names, a host as a whole, or nobody."""

    SPEAKER = "speaker"
    PEER = "peer"
    SUBJECT = "subject"
    HOST = "host"
    NOBODY = "nobody"


class Tier(StrEnum):
    """How deep in the machine an observation was made; deeper explains shallower."""

    HARDWARE = "hardware"
    SCHEDULER = "scheduler"
    HOST = "host"
    LIBRARY = "library"
    APPLICATION = "application"
    GENERIC = "generic"
    EXIT = "exit"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of one file, cleaned for people, with everything its prefix says.

    `number` counts raw newlines from 1, as grep does. `text` is the line without control
    characters and with secrets masked, behind a `front` that all lines of its file share; `message`
    is the part behind the prefixes. `time` is in
    seconds since the epoch, or None; `clock` says which clock the time was read from. `place` is
    the container or replica that a collector names where it does not name a host. `alias` is what an
    outer label calls the host that `node` names. `stands` is set where the parts of a rotated log are
    one: file and number are then those of the whole log, and it tells where the line lies.
    """

    file: str
    number: int
    text: str
    message: str
    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    pid: int | None = None
    time: float | None = None
    clock: str | None = None
    stream: Stream = Stream.TRAIN
    label: str = ""
    place: str | None = None
    alias: str | None = None
    front: str = ""
    stands: tuple[str, int] | None = None

    @property
    def lies(self) -> tuple[str, int]:
        """The file in which the line lies, and its number there."""
        return self.stands or (self.file, self.number)

    @property
    def whole(self) -> str:
        """The line as it stands in its file."""
        return self.front + self.text


@dataclass(frozen=True, slots=True)
class Observation:
    """One signature seen on one line.

    `fields` holds the named groups of the signature (pci, xid, exitcode, peer, ...). `lines` are
    further lines that belong to the same event, the traceback above an exception for example.
    `marks` are those of its rule: what the event means for the job, beyond its role.
    """

    rule_id: str
    leaf: str | None
    role: Role
    tier: Tier
    line: LogLine
    order: int
    fields: dict[str, str] = field(default_factory=dict)
    lines: tuple[LogLine, ...] = ()
    action: str | None = None
    attempt: int = 0
    marks: frozenset[str] = frozenset()
    blames: Blames = Blames.SPEAKER
