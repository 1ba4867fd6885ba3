"""The words of every face, read from `words.yaml`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.domain.diagnosis import Diagnosis, Outcome

PATH = Path(__file__).with_name("words.yaml")


@lru_cache(maxsize=1)
def _words() -> dict[str, dict[str, str]]:
    return {name: part for name, part in load_cached(PATH).items() if isinstance(part, dict)}


def status_word(diagnosis: Diagnosis) -> str:
    """Return how firmly the verdict stands, in capitals: ESTABLISHED, ..., or what else was concluded."""
    if diagnosis.outcome is Outcome.FAILURE:
        return _words()["status"][diagnosis.status]
    return _words()["outcome"][diagnosis.outcome]


def role_word(role: str, *, by_another: bool = False, undecided: bool = False) -> str:
    """Return what a cited line is in the story.

    `by_another` where not the rank at fault prints it, `undecided` where there is no verdict.
    """
    known = _words()["roles"]
    word: str = known.get(role, role)
    if undecided and f"{role}_undecided" in known:
        return known[f"{role}_undecided"]
    return known.get(f"{role}_by_another", word) if by_another else word


def action_words(action: str) -> str:
    """Return a recommended action as a sentence part."""
    return _words()["actions"].get(action, action.replace("_", " "))


def type_words(failure_type: str | None) -> str:
    """Return a failure type, or the name of a rule, in plain words."""
    name = failure_type or "cause not known"
    return _words()["types"].get(name) or name.replace("_", " ").replace("-", " ")


def part_words(part: str) -> tuple[str, str]:
    """Return what a rank was in the failure: the word, and a mark that needs no colour."""
    found: dict[str, str] = load_cached(PATH)["parts"][part]
    return found["word"], found["mark"]


def source_word(source: str) -> str:
    """Return who wrote an entry of the timeline."""
    return _words()["sources"].get(source, source)
