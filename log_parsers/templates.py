"""Groups skeletons into templates: stage 2 of template mining.

Three steps on the few thousand distinct skeletons, never on lines: mask what looks variable;
make a position a slot where five or more words share the rest of the text; let a rare text join a
much larger one that differs in a single word. The result depends neither on the order of lines
nor on the order of files, as long as lines of one skeleton have one mask (an empty line and one of
digits alone share a skeleton; the first of them speaks for both). Severity words and names of
errors are never made a slot, so a rare failure line is not absorbed by the routine
line that it resembles.

What it does not know: whether a word that varies in fewer than five ways is a parameter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.masks import SLOT, is_protected, mask_raw
from rerail.log_parsers.skeletons import Entry, SkeletonMiner

_VARIANTS = 5  # different words that make a position a slot
_CONSTANTS = 2  # constant words that must remain
_PASSES = 3
_ABSORB = 5  # how much larger a template must be to take in a near neighbour
_WORDS = 64  # words looked at; what follows in a longer line does not tell templates apart
_TOKEN = lazy(r"[^\s,;:=()\[\]{}\"'|<>]+|<\*>|[\s,;:=()\[\]{}\"'|<>]")
_HAS_LETTER = lazy(r"[^\W\d_]")
_HEX_WORD = lazy(r"[a-f]{1,16}")
_RUN = lazy(r"<\*>(?:[\s,./:|x_+-]{0,3}<\*>|\s?[(\[]<\*>[)\]])+")


@dataclass(frozen=True, slots=True)
class Template:
    """One kind of line: its text with slots, its count, where it was seen first and last.

    `sample` is the first raw line; `constant_words` are the words all its lines share.
    """

    text: str
    count: int
    first_line: int
    last_line: int
    sample: bytes
    constant_words: tuple[str, ...]


def mine_templates(miner: SkeletonMiner) -> list[Template]:
    """Return the templates of one file, most frequent first."""
    return templates_of(list(miner.entries()))[0]


def templates_of(rows: Sequence[Entry], *, absorb: bool = True) -> tuple[list[Template], list[int]]:
    """Return the templates of `rows`, most frequent first, and the template index of each row.

    `absorb` lets a rare text join a much larger one that differs in one word. It groups better,
    but a reader who looks for the rare line should leave it out.
    """
    texts = group([row.sample for row in rows], [row.count for row in rows], absorb=absorb)
    members: dict[str, list[int]] = defaultdict(list)
    for at, text in enumerate(texts):
        members[text].append(at)
    templates = []
    for text, own in members.items():
        first = min((rows[i] for i in own), key=lambda row: (row.first_line, row.sample))
        templates.append(
            Template(
                text=text,
                count=sum(rows[i].count for i in own),
                first_line=first.first_line,
                last_line=max(rows[i].last_line for i in own),
                sample=first.sample,
                constant_words=constant_words(text),
            )
        )
    templates.sort(key=lambda t: (-t.count, t.first_line, t.text))
    number = {template.text: i for i, template in enumerate(templates)}
    return templates, [number[text] for text in texts]


def constant_words(text: str) -> tuple[str, ...]:
    """Return the words of a template that are not slots."""
    return tuple(w for w in _TOKEN.findall(text) if SLOT not in w and _HAS_LETTER.search(w))


def group(samples: Sequence[bytes], counts: Sequence[int], *, absorb: bool = True) -> list[str]:
    """Return the template text of each sample; samples with the same text are one template."""
    masked = [mask_raw(sample) for sample in samples]
    sizes: dict[str, int] = defaultdict(int)
    for text, count in zip(masked, counts, strict=True):
        sizes[text] += count
    final = _Grouping(sizes).run(absorb=absorb)
    return [final[text] for text in masked]


class _Grouping:
    """Merges masked texts; `final` maps each to its template while steps rewrite templates."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self._final: dict[str, tuple[str, ...]] = {}
        self._sizes: dict[tuple[str, ...], int] = defaultdict(int)
        for text, count in sizes.items():
            tokens = _tokens(text)
            self._final[text] = tokens
            self._sizes[tokens] += count

    def run(self, *, absorb: bool) -> dict[str, str]:
        for _ in range(_PASSES):
            rewritten = self._wildcards()
            if not rewritten:
                break
            self._apply(rewritten)
        if absorb:
            self._apply(self._absorb())
        return {text: "".join(tokens) for text, tokens in self._final.items()}

    def _apply(self, rewritten: dict[tuple[str, ...], tuple[str, ...]]) -> None:
        sizes: dict[tuple[str, ...], int] = defaultdict(int)
        for tokens, count in self._sizes.items():
            sizes[rewritten.get(tokens, tokens)] += count
        self._sizes = sizes
        self._final = {text: rewritten.get(at, at) for text, at in self._final.items()}

    def _neighbours(self) -> Iterable[list[tuple[tuple[str, ...], int]]]:
        """Yield the groups of (template, position) that are equal but for the word there."""
        groups: dict[tuple[int, int, int], list[tuple[tuple[str, ...], int]]] = defaultdict(list)
        for tokens in self._sizes:
            hashes = [hash((at, word)) for at, word in enumerate(tokens)]
            whole = sum(hashes)
            for at, word in enumerate(tokens):
                if _may_vary(word):
                    groups[len(tokens), at, whole - hashes[at]].append((tokens, at))
        for members in groups.values():
            if len(members) > 1:
                yield members

    def _wildcards(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        slots: dict[tuple[str, ...], set[int]] = defaultdict(set)
        for members in self._neighbours():
            tokens, at = members[0]
            words = {other[at] for other, _ in members}
            many = len(words - {SLOT}) >= _VARIANTS
            if _constants(tokens) - (tokens[at] != SLOT) < _CONSTANTS:
                continue
            for other, _ in members:
                word = other[at]
                # "opCount <*>" takes in "opCount abc": hex that happens to hold no digit.
                if word != SLOT and (many or (SLOT in words and _HEX_WORD.fullmatch(word))):
                    slots[other].add(at)
        rewritten = {}
        for tokens, positions in slots.items():
            # Two positions may each qualify on their own; both as slots could leave no constant.
            keep = sorted(positions)
            while keep and _constants(tokens) - len(keep) < _CONSTANTS:
                keep.pop()
            if keep:
                chosen = set(keep)
                rewritten[tokens] = _tokens(
                    "".join(SLOT if at in chosen else word for at, word in enumerate(tokens))
                )
        return rewritten

    def _absorb(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        best: dict[tuple[str, ...], tuple[int, tuple[str, ...]]] = {}
        for members in self._neighbours():
            largest = max((tokens for tokens, _ in members), key=lambda t: (self._sizes[t], t))
            for tokens, _ in members:
                size = self._sizes[largest]
                if tokens != largest and size >= _ABSORB * self._sizes[tokens]:
                    best[tokens] = max(best.get(tokens, (0, ())), (size, largest))
        # A chain a -> b -> c ends in c; sizes grow strictly along it, so it has no loop.
        rewritten = {}
        for tokens in best:
            target = tokens
            while target in best:
                target = best[target][1]
            rewritten[tokens] = target
        return rewritten


def _tokens(text: str) -> tuple[str, ...]:
    tokens = _TOKEN.findall(_RUN.sub(SLOT, text))
    if len(tokens) <= 2 * _WORDS:
        return tuple(tokens)
    return (*tokens[: 2 * _WORDS], " ...")


@lru_cache(maxsize=4096)
def _may_vary(word: str) -> bool:
    if word == SLOT:
        return True
    return _HAS_LETTER.search(word) is not None and not is_protected(word)


def _constants(tokens: Sequence[str]) -> int:
    return sum(word != SLOT and _HAS_LETTER.search(word) is not None for word in tokens)
