"""An incident: one failed attempt of one job, with what was seen, said and decided about it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from rerail.domain.diagnosis import Diagnosis
from rerail.domain.job import Allocation, JobRef
from rerail.domain.plain_values import AtLeast
from rerail.domain.record import Record


class EntrySource(StrEnum):
    """Who wrote a timeline entry; only `rules`, `scheduler` and `log` are evidence."""

    LOG = "log"
    RULES = "rules"
    SCHEDULER = "scheduler"
    MODEL = "model"
    HUMAN = "human"
    RECOVERY = "recovery"
    SYSTEM = "system"


class TimelineEntry(Record):
    """One line of the append-only timeline. Times are ISO 8601 in UTC.

    `time` is when it happened, `recorded_at` when it was written down. `key` makes an entry
    idempotent within its incident: a second entry with the same key is not written.
    """

    time: str
    source: EntrySource
    kind: str
    text: str
    actor: str = ""
    evidence: tuple[str, ...] = ()
    data: dict[str, Any] = {}
    key: str | None = None
    number: int | None = None
    recorded_at: str | None = None


class Fingerprint(Record):
    """What makes two incidents alike.

    `root` is stable across jobs and wordings of numbers: leaf and rule, or leaf and the masked text
    of the first fault. `entity` adds the node and GPU; None where nobody is accused.
    """

    root: str
    entity: str | None = None


class SnapshotLine(Record):
    """One kept log line, cleaned and redacted; `number` counts raw newlines from 1."""

    file: str
    number: Annotated[int, AtLeast(1)]
    text: str
    time: str | None = None
    rank: int | None = None
    node: str | None = None
    stream: str = "train"


class SourceFile(Record):
    """One file that was read: its size in bytes as it lies there, and a hash of what it holds.

    `marks` are (line, byte at which it begins) of a large file, at most 128.
    """

    name: str
    size_bytes: int
    lines: int | None = None
    digest: str = ""
    marks: tuple[tuple[int, int], ...] = ()


class SeriesSnapshot(Record):
    """A bounded copy of one series over training steps. NaN and infinity are stored as None.

    `name` is one of `step_time_s`, `relative_step_time`, `loss`, `grad_norm`, `throughput` (any work per second,
    as the job prints it). `time` is when each step was logged, in seconds since the epoch; empty where no line tells.
    """

    name: str
    step: tuple[int, ...]
    value: tuple[float | None, ...]
    rank: int | None = None
    time: tuple[float | None, ...] = ()


class RankFact(Record):
    """What is known of one rank at the end: where it ran, how far it came, its part in the failure.

    `reported` means that it printed the failure of the verdict without being held responsible: what
    fails alike on all ranks has no guilty one. `last_step_at` and `failed_at` (the first line of the
    failure on this rank) are ISO 8601 in UTC, None where its lines carry no time.
    """

    rank: int
    node: str | None = None
    gpu: int | None = None
    last_step: int | None = None
    last_step_at: str | None = None
    failed_at: str | None = None
    part: Literal["suspect", "consequence", "reported", "quiet"] = "quiet"


class TemplateCount(Record):
    """One kind of line with slots, and how often it was printed."""

    text: str
    count: int
    file: str
    first_line: int
    sample: str = ""


class Snapshot(Record):
    """The evidence that stays with the incident when the logs are gone; bounded and redacted."""

    sources: tuple[SourceFile, ...] = ()
    lines: tuple[SnapshotLine, ...] = ()
    templates: tuple[TemplateCount, ...] = ()
    series: tuple[SeriesSnapshot, ...] = ()
    ranks: tuple[RankFact, ...] = ()
    allocation: Allocation = Allocation()
    versions: dict[str, str] = {}


class Confirmation(Record):
    """A person's word on the verdict.

    `verdict` is `right`, `partly` or `wrong`; a correction names the true leaf, and the true first
    fault as `file:line` where it is known, with its text in `line`: the snapshot may lack it.
    """

    verdict: Literal["right", "partly", "wrong"]
    by: str
    time: str
    failure_type: str | None = None
    first_fault: str | None = None
    line: SnapshotLine | None = None
    note: str = ""


class SignOff(Record):
    """A person vouches for the record: from here on it is knowledge and may be retrieved.

    `words_digest` is that of a model's words in the last draft that was written before; what a model
    writes later is not covered.
    """

    by: str
    time: str
    resolution: str = ""
    words_digest: str = ""


class Incident(Record):
    """One incident as it was first recorded; later words are timeline entries, never edits.

    `identity` says what makes it one incident: a job attempt, or the content of its evidence.
    `occurred_at` is the time of the first fault in the logs, `recorded_at` that of the diagnosis.
    """

    schema_version: Literal[1] = 1
    id: str
    identity: str
    cluster: str
    job: JobRef | None = None
    recorded_at: str
    occurred_at: str | None = None
    diagnosis: Diagnosis
    fingerprint: Fingerprint
    snapshot: Snapshot = Snapshot()
    paths: tuple[str, ...] = ()
    rules_version: str = ""


class NodeEvent(Record):
    """One earlier failure on a node: incident, time, leaf and status."""

    incident: str
    node: str
    time: str
    failure_type: str
    status: str
    confirmed: bool = False
