"""Holds the rules against surveyed files: which rule wins on which line, and why not another.

The scan has proposed (line, rule) pairs; here the company of the line is checked - the traceback
above it, the lines around it, the rest of the evidence - and one rule wins each line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache

from rerail.domain.evidence import LogLine, Observation, Role, Tier
from rerail.kept_patterns import kept_pattern
from rerail.knowledge_base.named_columns import by_title
from rerail.knowledge_base.odd_row import without_like_rows
from rerail.knowledge_base.one_device import of_one_device
from rerail.knowledge_base.phrases import says
from rerail.knowledge_base.rules import Rule
from rerail.knowledge_base.taken_twice import without_single
from rerail.late_dataclass import dataclass
from rerail.log_parsers.scan import Signature
from rerail.log_parsers.tracebacks import (
    Traceback,
    is_quoted_source,
    looks_like_exception,
    traceback_above,
)
from rerail.log_parsers.variables import is_variable
from rerail.log_parsers.view import LogView

_CONTEXT_ROLES = frozenset({Role.INITIATING})
_MAX_TRACEBACKS_PER_RULE = 200
_RAISED_WITHIN = 60


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules with the signatures that the scan looks for, and which signature serves what."""

    rules: tuple[Rule, ...]
    signatures: tuple[Signature, ...]
    anywhere: dict[str, int]

    @property
    def ids(self) -> list[str]:
        """The ids of the rules, in the order of their signatures."""
        return [rule.id for rule in self.rules]


@dataclass(slots=True)
class MatchResult:
    """Observations in evidence order, and what else the matcher learned."""

    observations: list[Observation] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def rule_set(rules: Sequence[Rule]) -> RuleSet:
    """Lay out the signatures: one per rule, then one per `in_log`/`not_in_log` pattern."""
    place = {rule.id: at for at, rule in enumerate(sorted(rules, key=_ranking))}
    signatures = [
        Signature(
            rule.pattern,
            rule.role in _CONTEXT_ROLES,
            added=rule.added,
            harmless=rule.role is Role.BENIGN and rule.conditions == bool(rule.unless),
            unless=rule.unless or "",
            order=place[rule.id],
        )
        for rule in rules
    ]
    anywhere: dict[str, int] = {}
    shipped = {p for r in rules if not r.added for p in (r.in_log, r.not_in_log)}
    for rule in rules:
        for pattern in (rule.in_log, rule.not_in_log):
            if pattern and pattern not in anywhere:
                anywhere[pattern] = len(signatures)
                own = pattern not in shipped
                signatures.append(Signature(pattern, presence=True, added=own))
    return RuleSet(tuple(rules), tuple(signatures), anywhere)


@lru_cache(maxsize=8192)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern once."""
    return kept_pattern(pattern)


def match(views: Sequence[LogView], rules: RuleSet) -> MatchResult:
    """Return one observation per line on which a rule wins."""
    result = MatchResult()
    present = {
        pattern
        for pattern, index in rules.anywhere.items()
        if any(view.survey.counts.get(index, 0) > 0 for view in views)
    }
    of_several = {
        rule.id
        for at, rule in enumerate(rules.rules)
        if rule.one_device and not of_one_device(views, at, compiled(rule.pattern))
    }
    matcher = _Matcher(rules, present, of_several)
    order = 0
    for view in views:
        by_line: dict[int, list[int]] = defaultdict(list)
        found: list[Observation] = []
        for hit in view.survey.hits:
            if hit.signature < len(rules.rules):
                by_line[hit.line].append(hit.signature)
        for number in sorted(by_line):
            line = view.line(number)
            if line is None or is_variable(view, line):
                continue
            order += 1
            observation = matcher.win(view, line, by_line[number], view.index * 10_000_000 + order)
            if observation is not None:
                found.append(observation)
        result.observations += _without_quoted_source(view, found)
        for index, count in view.survey.counts.items():
            if index < len(rules.rules):
                name = rules.rules[index].id
                result.counts[name] = result.counts.get(name, 0) + count
    announcing = {rule.id for rule in rules.rules if rule.taken_twice}
    result.observations = without_single(result.observations, announcing)
    in_tables = {rule.id: rule.odd_row for rule in rules.rules if rule.odd_row}
    result.observations = without_like_rows(result.observations, in_tables)
    return result


def _without_quoted_source(view: LogView, found: list[Observation]) -> list[Observation]:
    """Leave out source lines that a traceback quotes when a rule knows the exception below them.

    `raise TimeoutError(...)` under a frame says what could be raised; the exception says what was.
    """
    known = {
        o.line.number: o
        for o in found
        if o.role is Role.INITIATING and o.tier is not Tier.GENERIC and o.leaf
    }
    return [
        o
        for o in found
        if o.role is not Role.INITIATING
        or not is_quoted_source(o.line, view.line)
        or _raised_below(view, o.line) not in known
    ]


def _raised_below(view: LogView, line: LogLine) -> int | None:
    for number in view.between(line.number + 1, line.number + _RAISED_WITHIN):
        below = view.line(number)
        if below is None or below.label != line.label:
            continue
        if looks_like_exception(below.message):
            return number
    return None


def _ranking(rule: Rule) -> tuple[int, int, int, str]:
    """Which of several rules on one line comes first."""
    return -rule.priority, -rule.conditions, -len(rule.pattern), rule.id


def _says_why(rule: Rule) -> bool:
    return rule.role is Role.INITIATING and rule.tier in (Tier.LIBRARY, Tier.APPLICATION)


class _Matcher:
    def __init__(self, rules: RuleSet, present: set[str], of_several: Collection[str] = ()) -> None:
        self._rules = rules.rules
        self._present = present
        self._of_several = of_several
        self._tracebacks: dict[tuple[int, int], Traceback] = {}
        self._rows: dict[tuple[str, int, int], Mapping[str, str]] = {}
        self._traceback_count: dict[str, int] = defaultdict(int)

    def win(
        self, view: LogView, line: LogLine, candidates: list[int], order: int
    ) -> Observation | None:
        ranked = sorted((self._rules[i] for i in candidates), key=_ranking)
        firing = (rule for rule in ranked if self.fires(rule, view, line) is None)
        best = next(firing, None)
        if best is not None and best.tier is Tier.EXIT and best.role is Role.CONTEXT:
            # Who reports an exit may quote what the process said last, and that says why.
            best = next(filter(_says_why, firing), best)
        return None if best is None else self._observe(best, view, line, order)

    def fires(self, rule: Rule, view: LogView, line: LogLine) -> str | None:
        """Return None when the rule fires, else the condition that fails."""
        if rule.stream and line.stream not in rule.stream:
            return f"the line is from {line.stream}, not from {', '.join(rule.stream)}"
        if rule.unless and compiled(rule.unless).search(line.whole):
            return "its 'unless' matches"
        if (
            rule.min_count > 1
            and view.survey.counts.get(self._rules.index(rule), 0) < rule.min_count
        ):
            return f"fewer than {rule.min_count} hits"
        if rule.id in self._of_several:
            return "its lines are of several devices, or of one peer"
        if rule.in_log and rule.in_log not in self._present:
            return "nothing in the evidence matches 'in_log'"
        if rule.not_in_log and rule.not_in_log in self._present:
            return "something in the evidence matches 'not_in_log'"
        return self._denied_around(rule, view, line)

    def _denied_around(self, rule: Rule, view: LogView, line: LogLine) -> str | None:
        """Return the condition on the lines around that fails, or None."""
        if rule.frames or rule.not_frames:
            above = self.traceback(view, line)
            text = "\n".join(x.message for x in above.lines)
            if rule.frames and not compiled(rule.frames).search(text):
                return "no frame of the traceback matches 'frames'"
            if rule.not_frames and compiled(rule.not_frames).search(text):
                return "a frame of the traceback matches 'not_frames'"
        if rule.columns:
            if not self._has_in_columns(rule, view, line):
                return "no column of its row, titled by 'nearby', is as 'columns' say"
        elif rule.nearby and not self._near(rule.nearby, rule, view, line):
            return "no line around it matches 'nearby'"
        if rule.not_nearby and self._near(rule.not_nearby, rule, view, line):
            return "a line around it matches 'not_nearby'"
        return None

    def _near(self, pattern: str, rule: Rule, view: LogView, line: LogLine) -> bool:
        search = compiled(pattern).search
        return any(
            number != line.number and search(view.text(number) or "")
            for number in self._around(rule, view, line)
        )

    def _row(self, rule: Rule, view: LogView, line: LogLine) -> Mapping[str, str]:
        """Return the values of a row by title, from the nearest line that lists titles."""
        key = (rule.id, view.index, line.number)
        found = self._rows.get(key)
        if found is None:
            titles = self._nearest(rule.nearby or "", rule, view, line)
            found = by_title(view.text(titles) or "", line.whole) if titles is not None else {}
            self._rows[key] = found
        return found

    def _has_in_columns(self, rule: Rule, view: LogView, line: LogLine) -> bool:
        row = self._row(rule, view, line)
        return any(
            compiled(title).search(name) and compiled(value).fullmatch(row[name])
            for title, value in rule.columns
            for name in row
        )

    def _around(self, rule: Rule, view: LogView, line: LogLine) -> Iterator[int]:
        first = line.number - (0 if rule.direction == "after" else rule.within)
        last = line.number + (0 if rule.direction == "before" else rule.within)
        return view.between(first, last)

    def _nearest(self, pattern: str, rule: Rule, view: LogView, line: LogLine) -> int | None:
        """Return the number of the nearest line that a pattern finds, of the same label if one is."""
        search = compiled(pattern).search
        found = [
            number
            for number in self._around(rule, view, line)
            if number != line.number and search(view.text(number) or "")
        ]

        def far(number: int) -> tuple[bool, int]:
            other = view.line(number)
            return other is None or other.label != line.label, abs(number - line.number)

        return min(found, key=far, default=None)

    def traceback(self, view: LogView, line: LogLine) -> Traceback:
        key = (view.index, line.number)
        found = self._tracebacks.get(key)
        if found is None:
            found = self._tracebacks[key] = traceback_above(line, view.line)
        return found

    def _logged_by(self, view: LogView, line: LogLine) -> LogLine:
        """Return an exception's line with the rank of the record above its traceback: a logger prints both at once."""
        above = self.traceback(view, line)
        if not above.complete or line.label or above.chained:
            return line
        if any(says("frame-of-a-launcher", one.message) for one in above.lines):
            return line
        record = view.line(above.lines[0].number - 1)
        if record is None or record.rank is None or not says("record-of-an-error", record.text):
            return line
        return replace(line, rank=record.rank, local_rank=record.local_rank)

    def _observe(self, rule: Rule, view: LogView, line: LogLine, order: int) -> Observation:
        found = compiled(rule.pattern).search(line.whole)
        groups = {k: v for k, v in found.groupdict().items() if v is not None} if found else {}
        lines: tuple[LogLine, ...] = ()
        if line.rank is None and looks_like_exception(line.message):
            line = self._logged_by(view, line)
        if rule.role is Role.INITIATING and looks_like_exception(line.message):
            self._traceback_count[rule.id] += 1
            if self._traceback_count[rule.id] <= _MAX_TRACEBACKS_PER_RULE:
                above = self.traceback(view, line)
                lines = above.lines
                if above.in_thread:
                    groups["thread"] = above.in_thread
                if above.chained:
                    groups["chained"] = "yes"
        if rule.column_fields:
            row = self._row(rule, view, line)
            groups |= {
                key: row[name]
                for key, title in rule.column_fields
                for name in row
                if compiled(title).search(name)
            }
        if rule.tells_nearby and rule.nearby:
            number = self._nearest(rule.nearby, rule, view, line)
            line = (view.line(number) if number is not None else None) or line
            told = compiled(rule.nearby).search(line.whole)
            groups |= {k: v for k, v in (told.groupdict() if told else {}).items() if v}
        return Observation(
            rule_id=rule.id,
            leaf=rule.leaf,
            role=rule.role,
            tier=rule.tier,
            line=line,
            order=order,
            fields=groups,
            lines=lines,
            action=str(rule.action) if rule.action else None,
            attempt=view.origin.attempt or 0,
            marks=rule.marks,
            blames=rule.blames,
        )
