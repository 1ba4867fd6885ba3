"""A post-mortem as sections that know who wrote them, so that a new draft can keep the edits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256


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
    words_digest: str = ""


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
    """The sections that rules or a model write, as sentences; `by` says who.

    `unchecked` are sentences of a model that code could not check; they stand apart from the facts.
    `model_text` is all that a model wrote, empty where it wrote nothing.
    """

    by: str
    summary: Sequence[Sentence]
    factors: Sequence[Sentence]
    went_well: Sequence[Sentence]
    went_badly: Sequence[Sentence]
    lucky: Sequence[Sentence]
    banner: str = ""
    unchecked: Sequence[str] = ()
    model_text: str = ""

    @property
    def digest(self) -> str:
        """Return what a sign-off of these words remembers; empty for those of the rules."""
        return sha256(self.model_text.encode()).hexdigest()[:16] if self.model_text else ""
