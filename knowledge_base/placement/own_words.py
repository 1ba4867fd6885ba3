"""The rank, host or GPU that a line names in its own words, where it names one and not several."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from rerail.knowledge_base.statements import Form, all_forms
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_local, looks_like_host

_POD = lazy(r"(?<![\w.-])[a-z0-9](?:[a-z0-9.-]{0,120}[a-z0-9])?(?![\w-])")
_TRAILING = lazy(r"[.,;:\-]+$")


@lru_cache(maxsize=1)
def _forms() -> tuple[Form, ...]:
    return tuple(form for form in all_forms() if "own_words" in form.tells)


def node_in(text: str, known: Collection[str] = ()) -> str | None:
    """Return the only host that a text names, by the surest of its words, or None.

    Args:
        text: the message of a line, its label stripped.
        known: hosts that other lines name; they need not look like hosts.
    """
    for form in _forms():
        if "(?P<node>" not in form.texts[0] or "own_pod" in form.tells:
            continue
        found = {_TRAILING.sub("", slots["node"]) for slots in form.slots(text)}
        found = {
            word
            for word in found
            if word and not is_local(word)
            and (word in known or (not form.known and _may_be(form, word)))
        }  # fmt: skip
        if len(found) == 1:
            return found.pop()
        if found:
            return None  # of several hosts none is the one
    return None


def own_pod(text: str) -> str | None:
    """Return the pod whose event or state a line tells, or None."""
    forms = (form for form in _forms() if "own_pod" in form.tells)
    return next((slots["node"] for form in forms for slots in form.slots(text)), None)


def words_of_pods(text: str) -> set[str]:
    """Return the words of a text that have the form of a pod's name."""
    return set(_POD.findall(text))


def _may_be(form: Form, word: str) -> bool:
    """Tell whether a name that no other line knows may be a host, as far as the words before it say that it is one."""
    if form.host_like:
        return looks_like_host(word)
    return not word.isdigit() and word.lower() not in ("none", "null", "unknown", "true", "false")


def number_in(text: str, slot: str, telling: str = "own_words") -> int | None:
    """Return the only rank or GPU (`slot`) that a text names, or None."""
    found = numbers_in(text, slot, telling)
    return found.pop() if len(found) == 1 else None


def numbers_in(text: str, slot: str, telling: str = "own_words") -> set[int]:
    """Return all ranks or GPUs (`slot`) that a text names, by the forms that tell `telling`."""
    found: set[int] = set()
    for form in _forms():
        if f"(?P<{slot}>" in form.texts[0] and telling in form.tells:
            found |= {int(slots[slot]) for slots in form.slots(text)}
    return found
