"""Free questions without a model: the record and the logs are searched for the question's own words.

What is found is shown as it stands, with its place; what is not found is said, and what would know.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations

from rerail.assistant.agent_tools.facts import JobFacts
from rerail.assistant.chat.lines import Line
from rerail.domain.incident import SnapshotLine
from rerail.log_parsers.masks import mask

_WORD = re.compile(r"[A-Za-z0-9_][\w.:/-]*\w|\d+")
_ASKING = frozenset(
    "a about all also an and any are at be been but by can could did do does for from get had has have how i if in "
    "is it its job just know me my of on or our out please say see should show so tell than that the their them "
    "then there these they this to up us was we were what when where which while who whom why will with would you "
    "your somebody anybody someone anyone ever "
    "happened happen occur first last wrong problem issue line lines log logs look anything something".split()
)
_MOST = 6
_MOST_WAYS = 24  # combinations of words that are looked for, the longest first


def from_record(
    question: str, facts: JobFacts, known: Callable[[], list[tuple[str, str]]]
) -> list[Line]:
    """Answer from the lines of the job and from what is known of others.

    Args:
        question: as it was typed.
        facts: the incident and its lines.
        known: returns (where, text) of runbook pages and past incidents that hold words of the question.
    """
    words = telling(question)
    if not words:
        return [
            Line("Without a model this question has no word to look for."),
            Line(
                "Known: why, what else, which ranks, what changed, seen before, cost, what to do",
                "dim",
            ),
        ]
    found, asked = _lines(words, facts)
    rows = []
    if found:
        rows.append(Line(f"Lines that hold {_named(asked)}:", "bold"))
        rows += [Line(f"{x.file}:{x.number}{_who(x)}  {x.text[:240]}") for x in found]
    else:
        rows.append(Line(f"No line of this job holds {_named(words)}."))
    scope = facts.lines.scope()
    if scope:
        rows.append(Line(f"({scope})", "dim"))
    for where, text in known()[:2]:
        rows.append(Line(f"{where}: {text[:300]}"))
    rows.append(
        Line(
            "This is what the record and the logs hold; what it means would need a model (RERAIL_MODEL_URL) or a person.",
            "dim",
        )
    )
    return rows


def telling(question: str) -> list[str]:
    """Return the words of a question that a log line could hold, the longest first."""
    words = [w.strip(".:?") for w in _WORD.findall(question)]
    kept = dict.fromkeys(
        w for w in words if w.lower() not in _ASKING and (len(w) > 2 or w.isdigit())
    )
    return sorted(kept, key=lambda w: (-len(w), w))[:6]


def _lines(words: list[str], facts: JobFacts) -> tuple[list[SnapshotLine], list[str]]:
    """Return lines that hold all words, else as many of them as any line does, and those words."""
    ways = [list(w) for count in range(len(words), 0, -1) for w in combinations(words, count)]
    for asked in ways[:_MOST_WAYS]:
        first: dict[str, SnapshotLine] = {}
        for at, line in enumerate(facts.lines.search(asked, None)):
            first.setdefault(mask(line.text), line)
            if len(first) >= _MOST or at > 5_000:
                break
        if first:
            return list(first.values()), asked
    return [], words


def _named(words: list[str]) -> str:
    return " and ".join(f"'{word}'" for word in words)


def _who(line: SnapshotLine) -> str:
    rank = "" if line.rank is None else f" rank {line.rank}"
    return rank + (f" on {line.node}" if line.node else "")
