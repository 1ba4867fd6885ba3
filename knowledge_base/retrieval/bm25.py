"""Okapi BM25 over a few thousand short texts (Robertson and Zaragoza, 2009), in plain Python."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rerail.lazy_patterns import lazy

_K1, _B = 1.2, 0.75
_WORD = lazy(r"[A-Za-z_][A-Za-z0-9_]+|\d{2,5}")
_CAMEL = lazy(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_")
_STOP = frozenset(
    "the a an of to in on for and or is was are be by at it its this that with from as not no has have "
    "rank line file most recent call last traceback".split()
)


def words(text: str) -> list[str]:
    """Return the words of a text: whole names and their parts, lower case, without the most common."""
    found = []
    for token in _WORD.findall(text):
        parts = [p.lower() for p in _CAMEL.split(token) if len(p) > 1]
        whole = token.lower().strip("_")
        found += [w for w in ([whole] if len(parts) < 2 else [whole, *parts]) if w not in _STOP]
    return found


@dataclass(frozen=True, slots=True)
class Statistics:
    """How common words are on a whole record: documents, their mean length, documents of each word."""

    size: int
    mean: float
    seen: Mapping[str, int]


class Bm25:
    """An index that is built once; scores are comparable within one index.

    Args:
        cut: the words of each text, as `words` returns them.
        statistics: of the record that the texts were taken from; without, they are the record.
    """

    def __init__(self, cut: Sequence[Sequence[str]], statistics: Statistics | None = None) -> None:
        self._postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._lengths = []
        for number, one in enumerate(cut):
            counts = Counter(one)
            self._lengths.append(sum(counts.values()))
            for word, count in counts.items():
                self._postings[word].append((number, count))
        self._mean = (sum(self._lengths) / len(self._lengths)) if self._lengths else 1.0
        self._size = len(self._lengths)
        self._seen: Mapping[str, int] | None = None
        if statistics is not None:
            self._mean, self._size, self._seen = statistics.mean, statistics.size, statistics.seen

    def _weight(self, word: str) -> float:
        if self._seen is not None:
            seen = self._seen.get(word, 0)
        else:
            seen = len(self._postings.get(word, ()))
        return math.log(1.0 + (self._size - seen + 0.5) / (seen + 0.5))

    def scores(self, query: str) -> dict[int, float]:
        """Return the score of every text that shares a word with the query."""
        found: dict[int, float] = defaultdict(float)
        for word in set(words(query)):
            if word not in self._postings:
                continue
            weight = self._weight(word)
            for number, count in self._postings[word]:
                length = 1.0 - _B + _B * self._lengths[number] / (self._mean or 1.0)
                found[number] += weight * count * (_K1 + 1.0) / (count + _K1 * length)
        return dict(found)

    def coverage(self, query: str) -> dict[int, float]:
        """Return which share of the query's weight each text that shares a word with it holds, above 0 and up to 1."""
        total, held = 0.0, defaultdict[int, float](float)
        for word in sorted(set(words(query))):
            weight = self._weight(word)
            total += weight
            for number, _ in self._postings.get(word, ()):
                held[number] += weight
        return {number: weight / total for number, weight in held.items()} if total else {}
