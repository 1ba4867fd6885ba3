"""The forms of step lines and what the numbers on them are called: `step_lines.yaml`, compiled where they are asked for."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy

PATH = Path(__file__).with_name("step_lines.yaml")
NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+)"
VALUE = rf"(?:{NUMBER}|[-+]?(?:nan|inf)(?:inity)?)"


@dataclass(frozen=True, slots=True)
class Followed:
    """What must stand behind a form on its line: one of the words, which are soon found, and the exact form."""

    words: tuple[bytes, ...]
    form: re.Pattern[bytes]


@dataclass(frozen=True, slots=True)
class StepForm:
    """One form of step line; a `guard` must stand right in front of what the pattern finds."""

    name: str
    pattern: re.Pattern[bytes]
    guard: re.Pattern[bytes] | None
    follows: Followed | None


@lru_cache(maxsize=1)
def forms() -> tuple[StepForm, ...]:
    """Return all forms, the surest first."""
    data = load_cached(PATH)
    follows = {
        name: Followed(tuple(word.encode() for word in one["words"]), lazy(one["form"].encode()))
        for name, one in data["follows"].items()
    }
    return tuple(
        StepForm(
            one["form"],
            lazy(_filled(one["pattern"])),
            lazy(_filled(rf"(?:{one['guard']})\Z")) if "guard" in one else None,
            follows.get(one.get("follows", "")),
        )
        for one in data["forms"]
    )


@lru_cache(maxsize=8)
def marked(mark: str) -> frozenset[str]:
    """Return the names of the forms with a mark."""
    return frozenset(
        one["form"] for one in load_cached(PATH)["forms"] if mark in one.get("marks", ())
    )


@lru_cache(maxsize=1)
def step_behind() -> dict[str, re.Pattern[bytes]]:
    """Return by form where the step stands, if the form begins with another number than the step."""
    key = rf"{step_key().pattern.decode()}(\d+)(?:\.0+)?(?![\d.])"
    keyed = lazy(key.encode())
    found: dict[str, Any] = {one["form"]: one.get("step_at") for one in load_cached(PATH)["forms"]}
    return {form: keyed if at == "key" else lazy(at.encode()) for form, at in found.items() if at}


@lru_cache(maxsize=1)
def keyed_forms() -> frozenset[str]:
    """Return the forms whose step stands behind one of several keys."""
    return frozenset(
        one["form"] for one in load_cached(PATH)["forms"] if one.get("step_at") == "key"
    )


@lru_cache(maxsize=1)
def step_key() -> re.Pattern[bytes]:
    """Return the pattern of the keys behind which the step of a record stands."""
    return numbers()["step_key"]


@lru_cache(maxsize=1)
def numbers() -> dict[str, re.Pattern[bytes]]:
    """Return by name the patterns of the other numbers of a step line."""
    return {
        name: lazy(_filled(one["pattern"])) for name, one in load_cached(PATH)["numbers"].items()
    }


@lru_cache(maxsize=1)
def rates() -> tuple[bytes, ...]:
    """Return words of which one is part of every name of a rate, in small letters."""
    return tuple(word.encode() for word in load_cached(PATH)["rates"])


@lru_cache(maxsize=1)
def losses() -> tuple[bytes, ...]:
    """Return words of which one is part of every name of a loss that does not hold the word, in small letters."""
    return tuple(word.encode() for word in load_cached(PATH)["losses"])


@lru_cache(maxsize=1)
def rank_in_front() -> re.Pattern[bytes]:
    """Return the pattern of the label of a line that tells a rank."""
    return lazy(load_cached(PATH)["rank"].encode())


def _filled(pattern: str) -> bytes:
    said = load_cached(PATH)["is_loss"]
    whole = pattern.replace("%is_loss%", said).replace("%value%", VALUE).replace("%number%", NUMBER)
    return whole.encode()
