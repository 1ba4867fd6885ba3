"""Templates of a whole job: which kinds of line its files print, and which file prints differently.

Files whose names differ in numbers alone form a family (the rank logs of a job, the kernel logs of
its nodes). In a family most files print the same templates equally often; one that lacks a common
template, stops early or prints something alone stands out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field

from rerail.late_dataclass import dataclass
from rerail.log_parsers.masks import is_protected
from rerail.log_parsers.middle import median
from rerail.log_parsers.skeletons import Entry, SkeletonMiner
from rerail.log_parsers.templates import Template, templates_of

_FAMILY = 3  # fewer files say nothing about what is common
_COMMON = 0.5  # share of a family that makes a template common
_LOW, _HIGH = 0.9, 1.25  # a common template printed this much less or more often is worth a word
_ENOUGH = 20  # times a template must be printed before its count is compared


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """One template of the job: where it was first seen, and how often each file prints it."""

    template: Template
    first_file: str
    files: dict[str, int]


@dataclass(frozen=True, slots=True)
class FileDifference:
    """What one file of a family does that most do not."""

    file: str
    lacks: tuple[JobTemplate, ...]
    alone: tuple[JobTemplate, ...]
    counts: tuple[tuple[JobTemplate, int, int], ...]  # template, count here, median of the family


@dataclass(frozen=True, slots=True)
class Family:
    """Files named alike: their frames and the templates that most of them print."""

    files: tuple[str, ...]
    frames: tuple[int, int]
    common: int
    differences: tuple[FileDifference, ...]


@dataclass(slots=True)
class _Row:
    first_file: str
    first_line: int
    sample: bytes
    last_line: int
    files: dict[str, int] = field(default_factory=dict)


class JobTemplates:
    """Collects the miners of a job's files, one at a time, and groups what they hold."""

    def __init__(self, files: Iterable[tuple[str, SkeletonMiner]]) -> None:
        self.frames: dict[str, int] = {}
        self._rows: dict[bytes, _Row] = {}
        for name, miner in files:
            self._add(name, miner)
        self.skeletons = len(self._rows)
        self.templates = self._group()

    def families(self) -> list[Family]:
        """Return the files grouped by name, largest family first."""
        kinds: dict[str, list[str]] = defaultdict(list)
        for name in self.frames:
            kinds[re.sub(r"\d+", "0", name)].append(name)
        found = [self._family(sorted(names, key=natural)) for names in kinds.values()]
        found.sort(key=lambda family: (-len(family.files), natural(family.files[0])))
        return found

    def _add(self, name: str, miner: SkeletonMiner) -> None:
        for entry in miner.entries():
            row = self._rows.get(entry.skeleton)
            if row is None:
                row = self._rows[entry.skeleton] = _Row(
                    name, entry.first_line, entry.sample, entry.last_line
                )
            elif _place(name, entry.first_line) < _place(row.first_file, row.first_line):
                row.first_file, row.first_line = name, entry.first_line
                row.sample = entry.sample
            row.last_line = max(row.last_line, entry.last_line)
            row.files[name] = row.files.get(name, 0) + entry.count
        self.frames[name] = self.frames.get(name, 0) + miner.frames

    def _group(self) -> list[JobTemplate]:
        rows = sorted(self._rows.items(), key=lambda item: item[0])
        entries = [
            Entry(key, sum(row.files.values()), row.first_line, row.last_line, row.sample)
            for key, row in rows
        ]
        # A rare line must not vanish in a frequent one that it resembles: no absorption here.
        templates, owner = templates_of(entries, absorb=False)
        files: list[dict[str, int]] = [{} for _ in templates]
        firsts: list[_Row | None] = [None] * len(templates)
        for (_, row), at in zip(rows, owner, strict=True):
            for name, count in row.files.items():
                files[at][name] = files[at].get(name, 0) + count
            best = firsts[at]
            if best is None or _row_place(row) < _row_place(best):
                firsts[at] = row
        found = []
        for template, own, first in zip(templates, files, firsts, strict=True):
            assert first is not None  # every template has a row
            placed = Template(
                template.text,
                template.count,
                first.first_line,
                template.last_line,
                first.sample,
                template.constant_words,
            )
            found.append(JobTemplate(placed, first.first_file, own))
        found.sort(key=lambda t: (-t.template.count, t.template.text))
        return found

    def _family(self, names: Sequence[str]) -> Family:
        frames = [self.frames[name] for name in names]
        span = (min(frames), max(frames))
        if len(names) < _FAMILY:
            return Family(tuple(names), span, 0, ())
        members = set(names)
        lacks: dict[str, list[JobTemplate]] = defaultdict(list)
        alone: dict[str, list[JobTemplate]] = defaultdict(list)
        counts: dict[str, list[tuple[JobTemplate, int, int]]] = defaultdict(list)
        common = 0
        for job_template in self.templates:
            here = [name for name in job_template.files if name in members]
            if len(here) == 1 and is_protected(job_template.template.text):
                alone[here[0]].append(job_template)
            if len(here) < max(2, len(names) * _COMMON):
                continue
            common += 1
            typical = int(median(job_template.files[name] for name in here))
            if len(here) < len(names):
                for name in members.difference(here):
                    lacks[name].append(job_template)
            if typical >= _ENOUGH:
                for name in here:
                    count = job_template.files[name]
                    if not _LOW * typical <= count <= _HIGH * typical:
                        counts[name].append((job_template, count, typical))
        # What a quarter of the family does is no difference but a second custom.
        few = max(1, len(names) // 4)
        differing = {n for kind in (lacks, alone, counts) if len(kind) <= few for n in kind}
        return Family(
            tuple(names),
            span,
            common,
            tuple(
                FileDifference(name, tuple(lacks[name]), tuple(alone[name]), tuple(counts[name]))
                for name in names
                if name in differing
            ),
        )


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key under which rank_2 stands before rank_10."""
    parts = re.split(r"([0-9]+)", name)
    return tuple((int(p), p) if p.isdecimal() else (-1, p) for p in parts)


def _place(name: str, line: int) -> tuple[tuple[tuple[int, str], ...], int]:
    return natural(name), line


def _row_place(row: _Row) -> tuple[tuple[tuple[int, str], ...], int, bytes]:
    return natural(row.first_file), row.first_line, row.sample
