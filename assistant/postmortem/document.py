"""A post-mortem as sections that know who wrote them, so that a new draft can keep the edits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Author(StrEnum):
    """Who fills a section: the record, the rules or a model, or people alone."""

    FACTS = "facts"
    WORDS = "words"
    PEOPLE = "people"


@dataclass(frozen=True, slots=True)
class Section:
    """One section in Markdown. `id` never changes; the title may."""

    id: str
    title: str
    body: str
    author: Author = Author.FACTS


@dataclass(frozen=True, slots=True)
class Document:
    """A whole post-mortem: title, sections, and charts as (name, SVG)."""

    title: str
    sections: tuple[Section, ...]
    charts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence with the evidence that shows it; without any it is marked."""

    text: str
    evidence: tuple[str, ...] = ()
    needs: bool = False

    def markdown(self) -> str:
        """Return the sentence with its citations, or with the mark that it needs one."""
        from rerail.assistant.postmortem.markup import escaped

        text = escaped(self.text).rstrip(".")
        if self.needs or not self.evidence:
            return f"{text}. \\[needs evidence\\]"
        return f"{text}. \\[{escaped(', '.join(self.evidence))}\\]"


@dataclass(frozen=True, slots=True)
class Words:
    """The sections that rules or a model write, as sentences; `by` says who."""

    by: str
    summary: Sequence[Sentence]
    factors: Sequence[Sentence]
    went_well: Sequence[Sentence]
    went_badly: Sequence[Sentence]
    lucky: Sequence[Sentence]
    banner: str = ""
