"""Labels of lines behind the name of the file that they are from, as grep and its like put it there.

What the name of a file tells of its writer, it tells in front of a line as well: the same reading of names serves both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rerail.lazy_patterns import lazy
from rerail.log_parsers.file_names import named_form_in_bytes, origin_of
from rerail.log_parsers.labels import INDUCED, Label, peel
from rerail.log_parsers.prefixes import Origin

_DIGITS = lazy(r"\d+")
_MOST_FORMS = 8
_NUMBER = r"(?:\d{1,7}[:-])?"


def names_in_front(heads: Iterable[bytes]) -> tuple[Label, ...]:
    """Return the labels of lines that begin with names of files that tell ranks, one for each form of name."""
    forms: dict[str, str] = {}
    for head in heads:
        match = named_form_in_bytes("in_front").match(head)
        if match is None:
            continue
        name = match["name"].decode()
        form = _DIGITS.sub("0", name)
        known = peel(head.decode("utf-8", "replace"), 0, True, None)
        if known is not None and not known[0].generic:
            continue  # it tells the host as well
        if form not in forms and len(forms) < _MOST_FORMS and (pattern := _pattern(name)):
            forms[form] = pattern
    return tuple(Label(INDUCED, "own", f"{one}[:-]{_NUMBER}") for one in forms.values())


def _pattern(name: str) -> str | None:
    """Return the pattern of the names that differ in numbers alone, with the one that is a rank; None without one."""
    told = origin_of(name)
    number = told.rank if told.rank is not None else told.local_rank
    if number is None or told.stream is not None:
        return None
    spans = [match.span() for match in _DIGITS.finditer(name)]
    own = [span for span in spans if _decides(name, span, told)]
    if len(own) != 1:
        return None
    slot = "rank" if told.rank is not None else "local"
    return _with_slot(name, spans, own[0], slot)


def _decides(name: str, span: tuple[int, int], told: Origin) -> bool:
    """Tell whether another number at a place of the name would be another rank."""
    start, end = span
    number = told.rank if told.rank is not None else told.local_rank
    if int(name[start:end]) != number:
        return False
    other = origin_of(f"{name[:start]}{number + 1}{name[end:]}")
    return (other.rank, other.local_rank) != (told.rank, told.local_rank)


def _with_slot(name: str, spans: Sequence[tuple[int, int]], own: tuple[int, int], slot: str) -> str:
    parts, at = [], 0
    for start, end in spans:
        parts.append(re.escape(name[at:start]))
        parts.append(rf"(?P<{slot}>\d{{1,6}})" if (start, end) == own else r"\d+")
        at = end
    return "".join([*parts, re.escape(name[at:])])
