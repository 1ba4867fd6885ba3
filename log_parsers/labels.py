"""The labels in front of lines: read from `labels.yaml`, matched one at a time.

A label is data: its pattern, what its slots mean, and where it counts. This module knows the form of
that data and no launcher.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from rerail.cached_yaml import cache_folder, load_cached
from rerail.errors import RuleError
from rerail.kept_patterns import kept_pattern
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.compiled_cache import words_needed
from rerail.log_parsers.host_names import counted_host, is_counter, is_device
from rerail.log_parsers.label_choice import LabelChoice
from rerail.log_parsers.needed_words import Needed, line_may_match, one_of
from rerail.log_parsers.timestamps import Stamp

PATH = Path(__file__).with_name("labels.yaml")
HOST = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,80}[A-Za-z0-9])?"
_SYSLOG_TIME = lazy(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?Z? ")
_KINDS = frozenset({"own", "collector", "task", "device", "kernel"})
_KEYS = frozenset({
    "id", "kind", "pattern", "source", "matches", "must_not_match", "begins", "ahead", "without", "not_counter", "but",
    "but_at_start", "not_device", "not_first", "behind_syslog_time", "program_host", "own_host",
    "generic",
})  # fmt: skip
_SLOTS = frozenset({"rank", "local", "node", "pid", "actor", "place", "job", "tid", "dev"})
_AHEAD = 200
_SHORT = 500  # characters of a line that is worth to be kept
_NAMED = lazy(r"\(\?P<(\w+)>")
INDUCED = "induced"
"""The name of labels that are made of the words of one log."""


@dataclass(frozen=True)
class Label:
    """One kind of label. `begins` holds the signs that it can begin with; empty for any."""

    id: str
    kind: str
    text: str
    begins: str = ""
    ahead: tuple[str, ...] = ()
    without: str = ""
    not_counter: bool = False
    but: str = ""
    but_at_start: bool = False
    not_device: bool = False
    not_first: bool = False
    behind_syslog_time: bool = False
    generic: bool = False
    """It looks like a label and names no launcher: what the file itself shows of its labels counts for more."""
    program_host: bool = False
    """The host is what the program calls it: inside a container another name than the launcher's."""
    own_host: bool = False
    """The writer says which host it is on: what a label further out calls the host is another name of it."""
    matches: tuple[str, ...] = ()
    must_not_match: tuple[str, ...] = ()

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled when a line first begins as it does: a start compiles what its log needs."""
        return re.compile(self.text) if self.id == INDUCED else kept_pattern(self.text)

    def match(self, text: str, at: int, time_at: int | None) -> re.Match[str] | None:
        """Match the label at an offset of a line whose time begins at `time_at`, where all that it asks for holds."""
        if self.not_first and at == 0:
            return None
        if self.ahead and not any(tag in text[at : at + _AHEAD] for tag in self.ahead):
            return None
        found = self.pattern.match(text, at)
        if found is None or (self.without and self.without in found[0]):
            return None
        if self.behind_syslog_time and not _behind_syslog_time(text, at, time_at):
            return None
        return found if self._is_host(found, at) else None

    def _is_host(self, found: re.Match[str], at: int) -> bool:
        if not (self.not_device or self.not_counter):
            return True
        word = found["node"]
        if self.not_device and is_device(word):
            return False
        if not self.not_counter or not is_counter(word):
            return True
        return (
            bool(self.but)
            and re.match(self.but, word) is not None
            and not (self.but_at_start and at)
        )


def _behind_syslog_time(text: str, at: int, time_at: int | None) -> bool:
    front = _SYSLOG_TIME.match(text, time_at) if time_at is not None else None
    return front is not None and front.end() == at


@lru_cache(maxsize=1)
def labels() -> tuple[Label, ...]:
    """Return all labels in the order in which they are tried.

    Raises:
        RuleError: for a label that is not valid, naming file, label and key.
    """
    return tuple(make_label(raw, PATH.name) for raw in load_cached(PATH)["labels"])


def complaints() -> list[str]:
    """Return what is wrong with patterns, for `rerail kb lint`."""
    found = []
    for label in labels():
        try:
            re.compile(label.text)
            re.compile(label.but)
        except re.error as error:
            found.append(f"{PATH.name}: label {label.id!r}: pattern: {error}")
    return found


_Tried = tuple[Label, tuple[str, ...], Needed]


@lru_cache(maxsize=1)
def _by_first() -> Mapping[str, tuple[list[_Tried], LabelChoice]]:
    """Most labels begin with a bracket; what does not begin so need not be held against them.

    Beside each label stand words of which its line must hold one, and all that its line must hold.
    """
    found = labels()
    needed = words_needed([label.text for label in found], cache_folder())
    needs = {label.id: (one_of(one), one) for label, one in zip(found, needed, strict=True)}
    same: dict[tuple[Label, ...], LabelChoice] = {}
    table = {}
    for sign in ("\0", *sorted({sign for label in found for sign in label.begins})):
        tried = tuple(label for label in found if not label.begins or sign in label.begins)
        choice = same.setdefault(tried, LabelChoice([label.text for label in tried]))
        table[sign] = [(label, *needs[label.id]) for label in tried], choice
    return table


def peel(
    text: str, at: int, outermost: bool, stamp: Stamp | None
) -> tuple[Label, re.Match[str]] | None:
    """Match one label at an offset; srun's bare number counts only as the `outermost` label."""
    if at >= len(text):
        return None
    time_at = None if stamp is None else stamp.start
    if len(text) > _SHORT:
        return _peeled(text, at, outermost, time_at)
    return _peeled_again(text, at, outermost, time_at)


def _peeled(
    text: str, at: int, outermost: bool, time_at: int | None
) -> tuple[Label, re.Match[str]] | None:
    table = _by_first()
    tried, choice = table.get(text[at]) or table["\0"]
    for place in choice.places(text, at):
        label, words, needed = tried[place]
        for word in words:
            if word in text:
                break
        else:
            if words:
                continue
        if label.kind == "task" and not outermost:
            continue
        if "pattern" not in vars(label) and not line_may_match(needed, text):
            continue
        found = label.match(text, at, time_at)
        if found is not None:
            return label, found
    return None


# Of a small log every line is read several times: for its form, for its file, for the verdict.
_peeled_again = lru_cache(maxsize=2048)(_peeled)


def make_label(raw: dict[str, Any], file: str) -> Label:
    """Check one raw label and build it.

    Raises:
        RuleError: naming file, label and key.
    """
    name = raw.get("id") or "?"

    def wrong(text: str) -> RuleError:
        return RuleError(
            f"{file}: label {name!r}: {text}", subject=str(name), hint="rerail kb lint"
        )

    if unknown := set(raw) - _KEYS:
        raise wrong(f"unknown key {sorted(unknown)[0]!r}")
    if raw.get("kind") not in _KINDS:
        raise wrong(f"kind is none of {', '.join(sorted(_KINDS))}")
    text = str(raw.get("pattern", "")).replace("%host%", HOST)
    if odd := {slot.rstrip("0123456789") for slot in _NAMED.findall(text)} - _SLOTS:
        raise wrong(f"unknown slot {sorted(odd)[0]!r}")
    flags = (
        "not_counter",
        "but_at_start",
        "not_device",
        "not_first",
        "behind_syslog_time",
        "program_host",
        "own_host",
        "generic",
    )
    return Label(
        id=name,
        kind=raw["kind"],
        text=text,
        begins=raw.get("begins") or _begins(text),
        ahead=tuple(raw.get("ahead") or ()),
        without=raw.get("without", ""),
        but=str(raw.get("but", "")).replace("%counted%", counted_host()),
        matches=tuple(raw.get("matches") or ()),
        must_not_match=tuple(raw.get("must_not_match") or ()),
        **{key: bool(raw.get(key, False)) for key in flags},
    )  # fmt: skip


def _begins(pattern: str) -> str:
    """Return the sign, or the small letters, that a label begins with, or "" for anything."""
    if pattern.startswith("(?=[a-z])"):
        return "abcdefghijklmnopqrstuvwxyz"
    if pattern.startswith(("- ", "MPICH", "<")):
        return pattern[0]
    return pattern[1] if pattern[:2] in (r"\[", r"\(", r"\{") and pattern[2] != "?" else ""
