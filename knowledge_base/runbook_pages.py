"""Runbook pages: one Markdown file per family of failures, one section per failure type.

A site adds pages in a folder of its own; a section there replaces the one shipped for that type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rerail.knowledge_base.retrieval.documents import RUNBOOK, Document
from rerail.knowledge_base.taxonomy import leaves
from rerail.lazy_patterns import lazy
from rerail.settings import load_settings

FOLDER = Path(__file__).with_name("runbooks")
_HEADING = lazy(r"^## +`?(?P<leaf>[a-z0-9_]+)`?.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RunbookPage:
    """The section of one failure type and the file it stands in."""

    leaf: str
    text: str
    file: str


@lru_cache(maxsize=1)
def runbook_pages() -> dict[str, RunbookPage]:
    """Return every section by failure type; the site's own folder wins."""
    folders = [FOLDER]
    site = load_settings().runbooks_dir
    if site is not None:
        folders.append(site.expanduser())
    found: dict[str, RunbookPage] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.md")):
            for page in sections(path.read_text(encoding="utf-8", errors="replace"), path.name):
                found[page.leaf] = page
    return found


def sections(text: str, file: str) -> list[RunbookPage]:
    """Return the sections of one page whose headings name a failure type."""
    marks = list(_HEADING.finditer(text))
    pages = []
    for index, mark in enumerate(marks):
        end = marks[index + 1].start() if index + 1 < len(marks) else len(text)
        if mark["leaf"] in leaves():
            pages.append(RunbookPage(mark["leaf"], text[mark.start() : end].strip(), file))
    return pages


def runbook_documents() -> list[Document]:
    """Return the sections as documents that can be found."""
    return [
        Document(
            id=f"runbook:{page.leaf}",
            kind=RUNBOOK,
            title=f"{page.leaf}: {leaves()[page.leaf].meaning}",
            text=page.text,
            leaf=page.leaf,
        )
        for page in runbook_pages().values()
    ]
