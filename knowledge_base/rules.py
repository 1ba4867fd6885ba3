"""Rules: what a line means, in which company. Read from `rules/*.yaml` and the catalogues.

The form of a rule is described in `rules/README.md`. This module reads and checks; it does not
know how rules are matched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from operator import not_
from pathlib import Path
from typing import Any

from rerail.cached_yaml import cache_folder, load_cached
from rerail.domain.diagnosis import Action
from rerail.domain.evidence import Blames, Role, Stream, Tier
from rerail.errors import RuleError
from rerail.knowledge_base import catalogues
from rerail.knowledge_base.phrases import FILE as PHRASES
from rerail.knowledge_base.phrases import phrases
from rerail.knowledge_base.prepared_rules import prepared
from rerail.knowledge_base.taxonomy import PATH as TAXONOMY
from rerail.knowledge_base.taxonomy import has, leaves
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.scan import compile_complaints
from rerail.settings import load_settings

FOLDER = Path(__file__).with_name("rules")
LEARNED = "learned-"
"""How the names of learned rules begin."""
MARKS = frozenset({
    "accounted_failed", "activity", "asked_again", "attempt_started", "cancelled", "check_passed", "checked_elsewhere",
    "checkpoint_blocks", "checkpoint_loaded", "checkpoint_perhaps", "checkpoint_saved", "collective_timeout", "crashed",
    "ended_by_itself", "ends_step", "finished_early", "first_rank_prints", "first_to_end", "idle_device", "interrupted",
    "learned", "not_restarted", "of_a_benchmark", "only_over", "orderly_end", "others_run_on", "peer_gone", "pod_assigned",
    "rank_columns", "ras_mismatch", "ras_report", "reports_failure", "run_complete", "run_started", "stack",
    "store_lost", "target_met", "target_missed", "task_lost", "tests_passed", "told_afterwards", "unreached", "waited",
    "waits_for_data", "words_alone", "work_changed",
})  # fmt: skip
"""What an event can mean for the job beyond its role; `rules/README.md` explains each."""
_LOUD = frozenset({Role.BENIGN, Role.SUCCESS})


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, checked; `added` says that it is the site's own."""

    id: str
    pattern: str
    role: Role
    tier: Tier
    file: str = ""
    added: bool = False
    leaf: str | None = None
    unless: str | None = None
    stream: tuple[Stream, ...] = ()
    frames: str | None = None
    not_frames: str | None = None
    nearby: str | None = None
    tells_nearby: bool = False
    not_nearby: str | None = None
    within: int = 40
    direction: str = "both"
    in_log: str | None = None
    not_in_log: str | None = None
    cleared_by: tuple[str, ...] = ()
    min_count: int = 1
    taken_twice: bool = False
    one_device: bool = False
    odd_row: str = ""
    odd_host: str | None = None
    columns: tuple[tuple[str, str], ...] = ()
    column_fields: tuple[tuple[str, str], ...] = ()
    priority: int = 50
    weight: int = 0
    action: Action | None = None
    hint: bool = False
    marks: frozenset[str] = frozenset()
    blames: Blames = Blames.SPEAKER
    safety: str = ""
    source: str = ""
    note: str = ""
    matches: tuple[str, ...] = ()
    must_not_match: tuple[str, ...] = ()

    @property
    def conditions(self) -> int:
        """How many conditions beyond its pattern the rule has; more is more specific."""
        asked = (
            self.unless, self.stream, self.frames, self.not_frames, self.nearby,
            self.not_nearby, self.in_log, self.not_in_log, self.min_count > 1, self.columns,
        )  # fmt: skip
        return len(asked) - sum(map(not_, asked))


_KEYS = {f.name for f in fields(Rule)} - {"file", "added"} | {"unless_says"}
_ROLES = {str(role): role for role in Role}
_TIERS = {str(tier): tier for tier in Tier}
_NOTHING: frozenset[str] = frozenset()


@lru_cache(maxsize=1)
def load_rules() -> tuple[Rule, ...]:
    """Return all rules: those of the package, of the catalogues and of the site's own folder.

    Raises:
        RuleError: for a rule that is not valid, naming file, rule and key.
    """
    rules, broken = usable_rules()
    if broken:
        raise broken[0]
    return rules


@lru_cache(maxsize=1)
def usable_rules() -> tuple[tuple[Rule, ...], tuple[RuleError, ...]]:
    """Return the rules to work with, and what is wrong with files of the site that are left out.

    A diagnosis at night does not wait until somebody has mended a rule file of yesterday.

    Raises:
        RuleError: for a rule of the package itself.
    """
    rules: list[Rule] = []
    broken: list[RuleError] = []
    owner: dict[str, str] = {}
    files = sorted(FOLDER.glob("*.yaml"))
    made_by = Path(__file__), Path(catalogues.__file__)
    sources = (*files, *catalogues.FILES, TAXONOMY, PHRASES, *made_by)
    _add(rules, owner, prepared(Rule, sources, lambda: _shipped(files)))
    settings = load_settings()
    # Rules that people accepted lie in the data folder, see learning/.
    for folder in (settings.rules_dir, settings.data_dir / "rules"):
        try:
            paths = rule_files(folder) if folder is not None else []
        except RuleError as error:
            broken.append(error)
            continue
        for path in paths:
            try:
                found = parse_rules(load_cached(path), path.name)
                _check_patterns(found)
                _add(rules, owner, [_of_site(rule) for rule in found])
            except RuleError as error:
                broken.append(error)
    return tuple(rules), tuple(broken)


def rule_files(folder: Path) -> list[Path]:
    """Return the rule files of a folder, none where there is no such folder.

    Raises:
        RuleError: The folder may not be read, as that of another account.
    """
    folder = folder.expanduser()
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RuleError(
            f"{folder}: {error.strerror}", subject=str(folder), hint=f"ls -ld {folder}"
        ) from None
    return [folder / name for name in sorted(names) if name.endswith(".yaml")]


def _shipped(files: Sequence[Path]) -> list[Rule]:
    rules = [rule for path in files for rule in parse_rules(load_cached(path), path.name)]
    return rules + [make_rule(raw, name) for name, raw in catalogues.rule_sources()]


def _of_site(rule: Rule) -> Rule:
    """A rule that was learned here rests on a few incidents of one site."""
    learned = {"learned"} if rule.id.startswith(LEARNED) else set()
    return replace(rule, added=True, marks=rule.marks | learned)


def _add(rules: list[Rule], owner: dict[str, str], found: Sequence[Rule]) -> None:
    names = dict(owner)
    for rule in found:
        if rule.id in names:
            raise RuleError(
                f"{rule.file}: rule id {rule.id!r} is also used in {names[rule.id]}",
                subject=rule.id,
                hint="rename one of them",
            )
        names[rule.id] = rule.file
    owner.update(names)
    rules += found


def _patterns(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield all patterns of a rule with the keys under which they stand."""
    yield from ((key, pattern) for key in _REGEX_KEYS if (pattern := getattr(rule, key)))
    yield from (("columns", pattern) for pair in rule.columns for pattern in pair)
    yield from (("column_fields", title) for _, title in rule.column_fields)


def _check_patterns(rules: Sequence[Rule]) -> None:
    for rule in rules:
        for key, pattern in _patterns(rule):
            try:
                re.compile(pattern)
            except re.error as error:
                raise RuleError(
                    f"{rule.file}: rule {rule.id!r}: {key}: {error}",
                    subject=rule.id,
                    hint="rerail kb lint",
                ) from None


def parse_rules(content: Any, file: str) -> list[Rule]:
    """Turn the content of one rule file into rules.

    Raises:
        RuleError: naming file, rule and key.
    """
    if not isinstance(content, dict) or not isinstance(content.get("rules"), list):
        raise RuleError(f"{file}: no list named 'rules'", subject=file, hint="see rules/README.md")
    if content.get("schema_version") != 1:
        raise RuleError(
            f"{file}: schema_version must be 1", subject=file, hint="see rules/README.md"
        )
    defaults = content.get("defaults") or {}
    if not isinstance(defaults, dict) or not all(isinstance(raw, dict) for raw in content["rules"]):
        raise RuleError(
            f"{file}: a rule is no mapping of keys", subject=file, hint="see rules/README.md"
        )
    return [make_rule({**defaults, **raw}, file) for raw in content["rules"]]


def make_rule(raw: dict[str, Any], file: str) -> Rule:
    """Check one raw rule and build it.

    Raises:
        RuleError: naming file, rule and key.
    """
    name = raw.get("id") or "?"

    def wrong(text: str) -> RuleError:
        return RuleError(f"{file}: rule {name!r}: {text}", subject=str(name), hint="rerail kb lint")

    if not raw.keys() <= _KEYS:
        raise wrong(f"unknown key {min(raw.keys() - _KEYS)!r}")
    for key in ("id", "pattern", "role", "tier"):
        if key not in raw:
            raise wrong(f"key {key!r} is missing")
    values = dict(raw)
    try:
        values["role"] = _ROLES.get(raw["role"]) or Role(raw["role"])
        values["tier"] = _TIERS.get(raw["tier"]) or Tier(raw["tier"])
        if stream := raw.get("stream"):
            streams = [stream] if isinstance(stream, str) else stream
            values["stream"] = tuple(Stream(s) for s in streams)
        else:
            values["stream"] = ()
        values["blames"] = Blames(raw["blames"]) if raw.get("blames") else _blames(raw.get("leaf"))
        values["action"] = Action(raw["action"]) if raw.get("action") else None
    except ValueError as error:
        raise wrong(str(error)) from None
    complaint = _complaint(raw, values["role"])
    if complaint:
        raise wrong(complaint)
    if named := values.pop("unless_says", None):
        values["unless"] = either((raw.get("unless"), *(phrases()[one].pattern for one in named)))
    marks = raw.get("marks")
    values["marks"] = frozenset(marks) if marks else _NOTHING
    values.setdefault("priority", 80 if values["role"] in _LOUD else 50)
    for key in ("matches", "must_not_match", "cleared_by"):
        values[key] = tuple(map(str, raw.get(key) or ()))
    for key in ("columns", "column_fields"):
        values[key] = tuple((raw.get(key) or {}).items())
    return Rule(file=file, **values)


def either(patterns: Iterable[str | None]) -> str:
    """Return one pattern for all of some; what is said of case in front of one holds for that one alone."""
    return "|".join(
        f"(?i:{one.removeprefix('(?i)')})" if one.startswith("(?i)") else one
        for one in patterns
        if one
    )


@lru_cache(maxsize=256)
def _blames(leaf: str | None) -> Blames:
    """Return whom the failures of a leaf are held against where a rule says nothing else."""
    if has(leaf, "nobodys_node") or has(leaf, "whole_run"):
        return Blames.NOBODY
    if has(leaf, "told_by_peers"):
        return Blames.PEER
    return Blames.HOST if has(leaf, "whole_host") else Blames.SPEAKER


def _complaint(raw: dict[str, Any], role: Role) -> str | None:
    """Return what is wrong with how the keys of a rule go together."""
    leaf = raw.get("leaf")
    if leaf is not None and leaf not in leaves():
        return f"unknown leaf {leaf!r}"
    if (odd := raw.get("odd_host")) is not None and odd not in leaves():
        return f"odd_host: unknown leaf {odd!r}"
    if role is Role.INITIATING and leaf is None:
        return "an initiating rule needs a leaf"
    if (marks := raw.get("marks")) and (unknown := set(marks) - MARKS):
        return f"unknown mark {sorted(unknown)[0]!r}"
    if unknown := set(raw.get("unless_says") or ()) - phrases().keys():
        return f"unless_says: there is no phrase {sorted(unknown)[0]!r}"
    if raw.get("odd_row", "low") not in ("low", "high"):
        return "odd_row is neither low nor high"
    if raw.get("direction", "both") not in ("both", "before", "after"):
        return "direction is none of both, before, after"
    for key in ("hint", "tells_nearby", "taken_twice", "one_device"):
        if not isinstance(raw.get(key, False), bool):
            return f"{key} is neither true nor false"
    if raw.get("tells_nearby") and not raw.get("nearby"):
        return "tells_nearby says that the line of 'nearby' tells most, and there is none"
    return _complaint_of_columns(raw)


def _complaint_of_columns(raw: dict[str, Any]) -> str | None:
    for key in ("columns", "column_fields"):
        pairs = raw.get(key) or {}
        if not isinstance(pairs, dict) or not all(isinstance(one, str) for one in pairs.values()):
            return f"{key} is no mapping of titles and texts"
    if (raw.get("columns") or raw.get("column_fields")) and not raw.get("nearby"):
        return "columns are titled on the line that 'nearby' finds, and there is none"
    return None


_REGEX_KEYS = (
    "pattern",
    "unless",
    "frames",
    "not_frames",
    "nearby",
    "not_nearby",
    "in_log",
    "not_in_log",
)
_FORBIDDEN = lazy(r"\(\?[=!<](?!P)|\(\?<[=!]|\\[1-9]|\(\?P=|\(\?>|[*+?}]\+")


def scanned_patterns(rules: Sequence[Rule]) -> list[str]:
    """Return the patterns that the scan looks for: one per rule, then those of `in_log` and `not_in_log`."""
    anywhere = (p for rule in rules for p in (rule.in_log, rule.not_in_log) if p)
    return [rule.pattern for rule in rules] + list(dict.fromkeys(anywhere))


def lint(rules: tuple[Rule, ...]) -> list[str]:
    """Return every complaint about the form of the rules; empty when all is well."""
    complaints = []
    refused: dict[str, str] = {}
    for added in (False, True):
        # Apart, as the scan compiles them: a new rule of a site compiles nothing but itself.
        part = [rule for rule in rules if rule.added is added]
        refused |= compile_complaints(scanned_patterns(part), cache=cache_folder())
    names = {rule.id for rule in rules}
    for rule in rules:
        where = f"{rule.file}: {rule.id}"
        complaints += [
            f"{where}: cleared_by: there is no rule {name!r}"
            for name in rule.cleared_by
            if name not in names
        ]
        for key, pattern in _patterns(rule):
            try:
                re.compile(pattern)
            except re.error as error:
                complaints.append(f"{where}: {key}: {error}")
                continue
            if key in ("pattern", "in_log", "not_in_log") and pattern in refused:
                complaints.append(f"{where}: {key}: {refused[pattern]}")
            if key in ("pattern", "in_log", "not_in_log") and _FORBIDDEN.search(pattern):
                complaints.append(
                    f"{where}: {key}: look-around, back-reference or possessive repeat"
                )
            if key == "pattern" and pattern.lstrip("(?:i)").startswith("^"):
                complaints.append(
                    f"{where}: pattern is anchored with ^; labels stand in front of lines"
                )
        if not re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", rule.id):
            complaints.append(f"{where}: the id is not kebab-case")
        if rule.role is not Role.BENIGN and not rule.source:
            complaints.append(f"{where}: no source")
        if rule.file.endswith(".yaml") and not rule.matches and "catalogue" not in rule.file:
            complaints.append(f"{where}: no example in 'matches'")
    return complaints
