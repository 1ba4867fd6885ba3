"""A new draft over an edited one: three sides, section by section, and people always win.

Each section carries the hash of what was generated. A section whose text still has that hash was
not edited and takes the new text. An edited section stays as it is; when the facts behind it have
changed, the new ones are added below it under a heading of their own, once. What people wrote
between or behind the sections stays where it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from rerail.assistant.postmortem.document import Document, Section
from rerail.assistant.postmortem.markup import escaped

_MARK = re.compile(r"^<!-- rerail:(?P<id>[a-z-]+) (?P<hash>[0-9a-f]{12}) -->$", re.MULTILINE)
_TITLE = re.compile(
    r"^# (?P<title>.*)\n<!-- rerail:title (?P<hash>[0-9a-f]{12}) -->$", re.MULTILINE
)
_END = "<!-- rerail:end -->"
_NEWER = "#### New in the record since this section was edited"


@dataclass(frozen=True, slots=True)
class Merged:
    """The text to write, and which sections kept a person's words."""

    text: str
    kept: tuple[str, ...] = ()
    changed_below: tuple[str, ...] = ()


def render(document: Document, charts: str = "") -> str:
    """Return a document as Markdown with the marks that a later draft needs."""
    parts = [_head(document)]
    for section in document.sections:
        body = section.body + (charts if section.id == "impact" else "")
        parts.append(_block(section, body, _hash(body)))
    return "\n".join(parts)


def _head(document: Document) -> str:
    # A title names nodes and jobs: they were chosen by others and may not become markup.
    title = escaped(document.title)
    return f"# {title}\n<!-- rerail:title {_hash(title)} -->\n"


def _block(section: Section, body: str, stamp: str) -> str:
    return f"<!-- rerail:{section.id} {stamp} -->\n## {section.title}\n\n{body.strip()}\n\n{_END}\n"


def merge(document: Document, existing: str, charts: str = "") -> Merged:
    """Return the new draft with every edit of `existing` in it."""
    old = _parse(existing)
    if not old:
        # Not a draft of ours, or its marks are gone: all of it is a person's text and stays.
        return Merged(existing.rstrip() + "\n\n" + render(document, charts), kept=("everything",))
    text = existing
    head = _TITLE.search(existing)
    if head is not None and _hash(head["title"]) == head["hash"]:
        text = text.replace(head[0], _head(document).rstrip("\n"), 1)
    kept = []
    below = []
    missing = []
    for section in document.sections:
        body = section.body + (charts if section.id == "impact" else "")
        fresh = _hash(body)
        if section.id not in old:
            missing.append(_block(section, body, fresh))
            continue
        stamp, inner, whole = old[section.id]
        if section.id == "status":
            # There is one status, whoever edited it: the record fills its rows, people theirs.
            merged = _one_status(body, _body(inner))
            kept += [section.id] if merged != body else []
            text = text.replace(whole, _block(section, merged, _hash(merged)).rstrip("\n"), 1)
            continue
        if _hash(_body(inner)) == stamp:
            text = text.replace(whole, _block(section, body, fresh).rstrip("\n"), 1)
            continue
        kept.append(section.id)
        if fresh != stamp:
            below.append(section.id)
            mine = inner.split(_NEWER)[0].rstrip()
            added = f"{mine}\n\n{_NEWER}\n\n{body.strip()}\n"
            # The stamp is that of the new facts: they are not added a second time.
            block = f"<!-- rerail:{section.id} {fresh} -->\n{added}\n{_END}"
            text = text.replace(whole, block, 1)
    if missing:
        text = text.rstrip() + "\n\n" + "\n".join(missing)
    return Merged(text.rstrip() + "\n", tuple(kept), tuple(below))


_OF_THE_RECORD = ("State", "Verdict of the rules", "Words of summary, factors and lessons", "Note")
_ROW = re.compile(r"^- (?P<key>[^:\n]{1,60}): ?(?P<value>.*)$")


def _one_status(fresh: str, edited: str) -> str:
    """Return the fresh status with the rows and lines in it that people wrote."""
    theirs: dict[str, str] = {}
    others = []
    for line in edited.split(_NEWER)[0].splitlines():
        row = _ROW.match(line)
        if row is None:
            others += [line] if line.strip() else []
        elif row["key"] not in _OF_THE_RECORD:
            theirs[row["key"]] = line
    rows = []
    for line in fresh.splitlines():
        row = _ROW.match(line)
        rows.append(theirs.pop(row["key"], line) if row else line)
    return "\n".join([*rows, *theirs.values(), *(["", *others] if others else [])])


def _parse(text: str) -> dict[str, tuple[str, str, str]]:
    """Return hash, inner text and whole block of each section."""
    found: dict[str, tuple[str, str, str]] = {}
    for mark in _MARK.finditer(text):
        end = text.find(_END, mark.end())
        following = _MARK.search(text, mark.end())
        if end < 0 or (following is not None and following.start() < end):
            continue
        whole = text[mark.start() : end + len(_END)]
        found[mark["id"]] = (mark["hash"], text[mark.end() : end].strip("\n"), whole)
    return found


def _body(inner: str) -> str:
    """Return a section without its heading."""
    lines = inner.splitlines()
    if lines and lines[0].startswith("## "):
        lines = lines[1:]
    return "\n".join(lines)


def _hash(body: str) -> str:
    text = "\n".join(line.rstrip() for line in body.strip().splitlines())
    return sha256(text.encode()).hexdigest()[:12]
