"""The eight read-only tools. Each takes plain arguments and returns at most four kilobytes of text.

What an argument asks for and is not there is said in words ("no line holds ..."), so that absence
of evidence is told apart from an error.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass

from rerail.assistant.agent_tools.facts import JobFacts
from rerail.assistant.agent_tools.lines import MOST_HITS
from rerail.assistant.agent_tools.shown import Shown
from rerail.domain.incident import SeriesSnapshot, SnapshotLine
from rerail.knowledge_base.taxonomy import leaves

MOST_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: its name, what it is for, its arguments with their meaning, and the function."""

    name: str
    about: str
    arguments: dict[str, tuple[type, str]]
    call: Callable[..., str]


class Toolbox:
    """The tools on one incident; every line they show is remembered in `shown`."""

    def __init__(self, facts: JobFacts, shown: Shown) -> None:
        self.facts = facts
        self.shown = shown

    def tools(self) -> list[Tool]:
        """Return the eight tools."""
        return [
            Tool("overview", "Files of the job, ranks, nodes, versions and last step.", {}, self.overview),
            Tool(
                "grep",
                "Log lines that hold all the given words (plain text, any case; no regex).",
                {"text": (str, "words to look for"), "file": (str, "only this file; empty for all")},
                self.grep,
            ),
            Tool(
                "window",
                "The kept log lines around a line.",
                {
                    "line": (str, "a handle such as L3, or FILE:NUMBER"),
                    "before": (int, "lines before it, at most 40"),
                    "after": (int, "lines after it, at most 40"),
                },
                self.window,
            ),
            Tool("ranks", "Table of ranks: node, GPU, last step, part in the failure.", {}, self.ranks),
            Tool(
                "series",
                "A training series and what the detectors say of it.",
                {"name": (str, "step_time_s, loss or grad_norm")},
                self.series,
            ),
            Tool("nodes", "Nodes of the job and their earlier failures on record.", {}, self.nodes),
            Tool("similar", "Signed-off past incidents like this one.", {}, self.similar),
            Tool(
                "runbook",
                "The runbook page of a failure type.",
                {"failure_type": (str, "a failure type of the taxonomy")},
                self.runbook,
            ),
        ]  # fmt: skip

    def overview(self) -> str:
        """Return files, world size, nodes, versions and progress."""
        incident = self.facts.incident
        snapshot = incident.snapshot
        rows = [f"{s.name}: {s.size_bytes} bytes, {s.lines or 0} lines" for s in snapshot.sources]
        if incident.diagnosis.profiles is not None:
            rows.insert(0, incident.diagnosis.profiles.says)
        shares = snapshot.allocation
        known = [
            f"ranks in the job: {shares.world_size or 'not known'}",
            f"nodes named: {len(shares.nodes)}",
            f"last step: {incident.diagnosis.progress.get('last_step', 'not known')}",
            "versions: " + (", ".join(f"{k} {v}" for k, v in snapshot.versions.items()) or "not named"),
        ]  # fmt: skip
        return "\n".join(known) + "\n" + self.shown.quote(rows, most_bytes=MOST_BYTES - 600)

    def grep(self, text: str, file: str = "") -> str:
        """Return the lines that hold every word of `text`."""
        words = text.split()[:8]
        if not words:
            return "give one or more words"
        if file and file not in self.facts.lines.files():
            near = difflib.get_close_matches(file, self.facts.lines.files(), 1)
            return "no such file" + (f"; did you mean {near[0]}?" if near else "")
        found: list[SnapshotLine] = []
        total = 0
        for line in self.facts.lines.search(words, file or None):
            total += 1
            if total <= MOST_HITS:
                found.append(line)
        scope = self.facts.lines.scope()
        limits = f"\n({scope})" if scope else ""
        if not found:
            return f"no line holds {' and '.join(map(repr, words))} (that is no error){limits}"
        # Many equal lines say little: one of each wording, then the rest.
        return f"{total} lines{limits}\n" + self.shown.quote_lines(
            _first_of_each(found), most_bytes=MOST_BYTES
        )

    def window(self, line: str, before: int = 10, after: int = 10) -> str:
        """Return the kept lines around a handle or a FILE:NUMBER."""
        known = self.shown.find(line)
        if known is not None:
            file, number = known.file, known.number
        else:
            file, _, digits = line.rpartition(":")
            if not digits.isdigit() or file not in self.facts.lines.files():
                return "no such line; give a handle that was shown, or FILE:NUMBER"
            number = int(digits)
        lines = self.facts.lines.around(
            file, number, min(max(before, 0), 40), min(max(after, 0), 40)
        )
        if not lines:
            return "no line was kept there"
        return self.shown.quote_lines(lines, most_bytes=MOST_BYTES)

    def ranks(self) -> str:
        """Return the table of ranks, folded where many are alike."""
        facts = self.facts.incident.snapshot.ranks
        if not facts:
            return "the logs name no rank"
        rows = []
        groups: dict[tuple[str, int | None], list[int]] = {}
        for fact in facts:
            groups.setdefault((fact.part, fact.last_step), []).append(fact.rank)
        for (part, step), members in sorted(groups.items(), key=lambda g: len(g[1])):
            reached = "no step seen" if step is None else f"last step {step}"
            rows.append(f"{part}: {reached}: {len(members)} ranks: {_fold(members)}")
        rows += [
            f"rank {f.rank}: node {f.node or '?'}, GPU {'?' if f.gpu is None else f.gpu}"
            for f in facts
            if f.part == "suspect"
        ]
        return self.shown.quote(rows, most_bytes=MOST_BYTES)

    def series(self, name: str) -> str:
        """Return a series in short, with the episodes of the detectors."""
        found = {s.name: s for s in self.facts.incident.snapshot.series}
        one = found.get(name)
        if one is None:
            return f"no series {name!r}; there is: {', '.join(found) or 'none'}"
        return describe_series(one)

    def nodes(self) -> str:
        """Return the nodes of the job and what is on record against them."""
        incident = self.facts.incident
        accused = set(incident.diagnosis.suspects.nodes)
        rows = []
        for share in incident.snapshot.allocation.nodes[:64]:
            mark = " (accused)" if share.node in accused else ""
            rows.append(f"{share.node}{mark}: ranks {_fold(list(share.ranks)) or 'not known'}")
        for event in self.facts.node_events:
            rows.append(f"{event.node}: {event.time[:10]} {event.failure_type} ({event.incident})")
        for history in incident.diagnosis.history:
            rows.append(history.says)
        if not rows:
            return "the logs name no node, and nothing is on record"
        return self.shown.quote(rows, most_bytes=MOST_BYTES)

    def similar(self) -> str:
        """Return past incidents like this one, as quoted data."""
        found = self.facts.similar(self.facts.incident)
        if not found:
            return "unseen: no signed-off incident is like this one"
        for one in found:
            self.shown.know(one.id)
        rows = [f"{k.id} {k.title}: {k.why}: {' '.join(k.text.split())[:600]}" for k in found]
        return self.shown.quote(rows, most_bytes=MOST_BYTES)

    def runbook(self, failure_type: str) -> str:
        """Return the runbook page of a leaf."""
        if failure_type not in leaves():
            near = difflib.get_close_matches(failure_type, leaves(), 3)
            return f"no such failure type; near: {', '.join(near) or 'none'}"
        page = self.facts.runbook(failure_type)
        if not page:
            return f"no runbook page for {failure_type}"
        # Text of other people: data like a log, and no line of this job.
        return self.shown.quote(page.splitlines(), most_bytes=MOST_BYTES)


def describe_series(one: SeriesSnapshot) -> str:
    """Return a few numbers of a series, its last points, and where it broke."""
    values = [v for v in one.value if v is not None and math.isfinite(v)]
    if not values:
        return f"{one.name}: {len(one.step)} points, none of them a number"
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2]
    lines = [
        f"{one.name}: {len(one.step)} points kept, steps {one.step[0]} to {one.step[-1]}, "
        f"median {middle:.6g}, lowest {ordered[0]:.6g}, highest {ordered[-1]:.6g}",
        "last points: "
        + ", ".join(
            f"{s}: {'not a number' if v is None else format(v, '.6g')}"
            for s, v in list(zip(one.step, one.value, strict=True))[-12:]
        ),
    ]
    lines += _detected(one)
    return "\n".join(lines)


def _detected(one: SeriesSnapshot) -> list[str]:
    if len(one.step) < 8 or one.name not in ("step_time_s", "loss"):
        return []
    import numpy as np

    from rerail.domain.series import StepSeries
    from rerail.tools.detectors.detect import detect

    values = np.array([np.nan if v is None else v for v in one.value])
    empty = np.full(len(values), np.nan)
    timed = one.name == "step_time_s"
    series = StepSeries(
        name=one.name,
        step=np.array(one.step),
        step_time_s=values if timed else empty,
        loss=None if timed else values,
    )
    report = detect(series)
    return [f"detector: {event.kind} at step {event.step}" for event in report.events[:8]] or [
        "detector: nothing odd"
    ]


def _first_of_each(lines: list[SnapshotLine]) -> list[SnapshotLine]:
    from rerail.log_parsers.masks import mask

    first: list[SnapshotLine] = []
    rest: list[SnapshotLine] = []
    seen: set[str] = set()
    for line in lines:
        wording = mask(line.text)
        (rest if wording in seen else first).append(line)
        seen.add(wording)
    return first + rest


def _fold(ranks: list[int]) -> str:
    from rerail.log_parsers.number_ranges import ranges

    text = ranges(ranks)
    return text if len(text) <= 120 else text[:117] + "..."
