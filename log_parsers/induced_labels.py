"""Labels that no pattern knows, learned from one file: what stands in front of most lines and tells its writers apart.

A label's values are few, come back, and take turns; a counter of steps only grows. Hosts are names of one
series (gn-1, gn-2), and only such names are hosts afterwards. What a number means is told by the word
before it (`labels.yaml` holds the words), or by the host beside it: several numbers on one host, none on two,
are ranks; numbers that repeat on every host are local ranks; a bare [3] is a rank where 0, 1, 2 and so on all
take turns. Behind a word that is not known, or in other signs, a number is a rank where all numbers take turns
from 0 up to as many as the log says that the job has ranks.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from rerail.cached_yaml import load_cached
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_address, is_no_host, is_pod, series_of
from rerail.log_parsers.labels import PATH, Label, peel
from rerail.log_parsers.timestamps import Stamp, find_stamp

_LEAST_LINES = 6
_FILLERS = frozenset({("level",), ("source",)})
_BARE_NUMBER = ("[", "", "\0number", "] ")
_LEAST_SHARE = 0.4
_NEARLY_ALL = 0.9
_MOST_PARTS, _MOST_STEPS, _MOST_WORDS = 3, 8, 12
_LEAST_SIGNS = 2
_BRACKETS = lazy(r"(?:\[[^\]\[]{1,60}\]|\([^()]{1,60}\)|<[^<>]{1,60}>):?\s?")
_WORD = r"[A-Za-z0-9](?:[\w./@#-]{0,40}[\w])?(?: \d{1,6})?"
_SEPARATED = lazy(rf"{_WORD}(?:\s?\|\s?|\t|:\s?|\s-\s|\s?>\s)")
_FILE = lazy(r"\.(?:py|cc|cpp|cu|c|h|so|go|rs|java|json|ya?ml|log|out|err|txt|sh)$")
# What loggers put in front of a message beside its writer: a level, and where in the program it stands.
_LEVEL = lazy(
    r"(?P<level>[\[(<]?(?:INFO|WARN(?:ING)?|ERROR|DEBUG|CRITICAL|FATAL|TRACE|NOTICE|SEVERE|SUCCESS|info|warn(?:ing)?|error|debug|critical|fatal)[\])>]?"
    r"(?:\s{1,9}[|:>-]\s?|[|:>-]\s?|\s{1,9}|$))"
)
_SOURCE = lazy(
    r"(?P<source>[\[(<]?(?:[\w./-]{1,60}\.(?:py|cc|cpp|cu|go|rs|java)[:(]\d{1,5}\)?|__main__|root|[a-z_]\w*(?:\.\w+){1,6})(?::\d{1,5})?[\])>]?"
    r"(?:\s{1,9}[|:>-]\s?|[|:>-]\s?|\s{1,9}))"
)
_NAMED = lazy(
    r"(?P<word>[A-Za-z]+(?:_[A-Za-z]+)*)[ =:#_-]?\d{1,6}(?:/\d{1,6}| of \d{1,6})?(?:,? (?= {0,20}\S))"
)
_SAID_HOST = lazy(
    r"(?:@ ?|on |(?:host|node|hostname)[=:] ?)[A-Za-z0-9][\w.-]{1,80}(?:[:,]? |\s?\|\s?|\s-\s)"
)
_BARE = lazy(r"[A-Za-z][\w.-]{1,80} (?= {0,40}\S)")
_PIECE = lazy(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?")
_POD_AND_WORD = lazy(
    r"(?P<name>[a-z0-9][a-z0-9.-]{0,100}-[a-z0-9.-]{0,40}[a-z0-9]) (?P<word>[a-z][a-z0-9-]{0,40})(?: |$)"
)
# A name of three parts and more, one of which is drawn by chance or counts.
_POD_ALONE = lazy(
    r"(?=[a-z0-9.-]*\d)[a-z][a-z0-9]{1,40}(?:-[a-z0-9.]{1,40}){2,8}(?: {1,3}\| ?|: | {1,2}|\t)"
)
_CALLS_ITSELF = lazy(r"(?i)\brank[ :=]{1,2}(\d{1,6})(?: of |/)\d")
_COUNTED = lazy(r"(?P<word>[A-Za-z]+(?:_[A-Za-z]+)*)[-_#]?(?P<number>\d{1,6})")
# A counted name, before its domain: `model.layers.3` is none.
_HOSTLIKE = lazy(r"(?=[\w-]*\d)[a-z][a-z\d-]{1,80}(?:\.[a-z\d.-]{1,80})?")
_FIRST_WORD = lazy(r"[a-z]+")
_DIGITS = lazy(r"\d+")
_IN_BRACKETS = lazy(r"(?:\d[\w:.,+-]* ){0,2}\[(?P<host>[a-z]{1,12}-?\d{1,5})\] ")
_NAMES = lazy(r"\(\?P<\w+>")
_LETTER = lazy(r"(?<![A-Za-z])[a-z](?![A-Za-z])")


@dataclass(frozen=True, slots=True)
class _Piece:
    """One variable part of a front: a host, or a number with the word before it."""

    kind: str
    word: str
    value: str


@dataclass(frozen=True, slots=True)
class _Front:
    """One part of what stands in front of a line: its form with the variable pieces left out, and those pieces."""

    form: tuple[str, ...]
    pieces: tuple[_Piece, ...]


@lru_cache(maxsize=1)
def _words() -> dict[str, str]:
    """Return the kind of number that a word announces: rank, local, task or counter."""
    table = load_cached(PATH)["words"]
    return {word: kind for kind, words in table.items() for word in words}


@lru_cache(maxsize=1)
def _prepends_ranks() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{text})" for text in load_cached(PATH)["bare_number_is_rank"]))


@lru_cache(maxsize=1)
def _worlds() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(text) for text in load_cached(PATH)["tells_the_world"])


def induce(texts: Sequence[str], *, year: int) -> tuple[Label, ...]:
    """Return the labels that the lines of one file have in common and that no pattern knows, in the order of their parts."""
    texts = [text for text in texts if text.strip()]
    chains = [_chain(text, year) for text in texts]
    if sum(map(bool, chains)) >= _LEAST_LINES and (found := _labels(chains, texts)):
        return found
    rest = [text for text in (_unknown(text, year) for text in texts) if text is not None]
    if len(rest) < _LEAST_LINES:
        return ()
    one = _pod_and_container(rest) or _one_pod(rest)
    return (one,) if one is not None else ()


def _unknown(text: str, year: int) -> str | None:
    """Return what stands behind the time of a line, marked where a time does, or None where a label is known there."""
    stamp = find_stamp(text, year=year)
    at = _behind(stamp, text) if stamp is not None and stamp.start <= 1 else 0
    known = peel(text, at, True, stamp)
    if known is not None and not known[0].generic:
        return None
    return text if at == 0 else "\0" + text[at:]


def _chain(text: str, year: int) -> tuple[_Front, ...]:
    """Return the parts in front of a line that no pattern knows, behind its time, labels that are known, and levels."""
    stamp = find_stamp(text, year=year)
    found: list[_Front] = []
    at, inner = 0, False
    for _ in range(_MOST_STEPS):
        while at < len(text) and text[at] == " ":
            at += 1
        if stamp is not None and at <= stamp.start <= at + 1:
            at, inner = _behind(stamp, text), True
            continue
        first = all(one.form in _FILLERS for one in found)
        known = peel(text, at, not inner, stamp) if first else None
        if known is not None and not known[0].generic:
            at, inner = known[1].end(), True
            continue
        if match := _LEVEL.match(text, at) or _SOURCE.match(text, at):
            found.append(_Front((match.lastgroup or "",), ()))
            at, inner = match.end(), True
            continue
        match = _BRACKETS.match(text, at) or _SEPARATED.match(text, at) or _counted_first(text, at)
        if match is None and inner:
            match = _SAID_HOST.match(text, at) or _BARE.match(text, at)
        front = _taken_apart(match[0]) if match is not None else None
        if match is None or front is None:
            break
        found.append(front)
        at, inner = match.end(), True
    return tuple(found)


def in_brackets(texts: Sequence[str], hosts: Collection[str]) -> tuple[Label, ...]:
    """Return the label of lines that begin with a host in brackets whose name only counts (`[h08]`), but is known as one."""
    seen = [match["host"] for text in texts if (match := _IN_BRACKETS.match(text))]
    names = set(seen)
    if len(seen) < _LEAST_LINES or len(set(map(series_of, names))) != 1 or not names & set(hosts):
        return ()
    return (Label("induced", "collector", rf"\[(?P<node>{_names_like(names)})\] ", generic=True),)


def _pod_and_container(texts: Sequence[str]) -> Label | None:
    """Return the label of lines that begin with a pod's name and one word, its container, as stern writes them.

    A line of somebody else may stand among them, an operator's for example.
    """
    texts = [text for text in texts if not text.startswith("$ ")]  # the command that was typed
    seen = [match for text in texts if (match := _POD_AND_WORD.match(text.removeprefix("\0")))]
    names = {match["name"] for match in seen}
    words = {match["word"] for match in seen}
    if (
        len(seen) < _NEARLY_ALL * len(texts)
        or len(words) != 1
        or not 1 < len(names) <= len(seen) // 2
    ):
        return None
    if not all(looks_counted(name) for name in names):
        return None
    return Label(
        "induced",
        "collector",
        rf"(?P<node>{_names_like(names)}) {re.escape(words.pop())}(?: |$)",
        generic=True,
    )


def _one_pod(texts: Sequence[str]) -> Label | None:
    """Return the label of lines that all begin with the name of the same pod, and with nothing that only counts."""
    if any(text.startswith("\0") for text in texts):
        return None
    fronts = {match[0] for text in texts if (match := _POD_ALONE.match(text))}
    if len(fronts) != 1 or not may_count(front := fronts.pop()):
        return None
    if sum(text.startswith(front) for text in texts) < _NEARLY_ALL * len(texts):
        return None
    name = front.rstrip(" |:\t")
    return Label(
        "induced",
        "collector",
        f"(?P<place>{re.escape(name)}){re.escape(front[len(name) :])}",
        generic=True,
    )


def _behind(stamp: Stamp, text: str) -> int:
    end = stamp.end
    while end < len(text) and text[end] in "]:), ":
        end += 1
    return end + 2 if text.startswith("| ", end) else end


def _labels(chains: Sequence[tuple[_Front, ...]], texts: Sequence[str]) -> tuple[Label, ...]:
    """Return the labels of the parts that most lines have in front, where they tell rank or host."""
    counts = Counter(
        form for chain in chains for form in dict.fromkeys(one.form for one in chain if one.pieces)
    )
    forms = [form for form, count in counts.most_common() if count >= _LEAST_LINES]
    together = [forms[:last] for last in range(min(len(forms), _MOST_PARTS), 1, -1)]
    best: tuple[int, tuple[Label, ...]] = (0, ())
    for chosen in (*together, *([one] for one in forms)):
        tells, found = _labels_of(chosen, chains, texts)
        if tells > best[0]:
            best = tells, found
    return best[1]


def _labels_of(
    forms: Collection[tuple[str, ...]], chains: Sequence[tuple[_Front, ...]], texts: Sequence[str]
) -> tuple[int, tuple[Label, ...]]:
    """Return the labels of lines with all of some parts and how much they tell: nothing where they tell no writers apart."""
    lines = [
        (text, chain, taken)
        for text, chain in zip(texts, chains, strict=True)
        if len(taken := _taken(chain, forms)) == len(forms)
    ]
    order = Counter(tuple(one.form for one in taken) for _, _, taken in lines).most_common(1)
    if not order:
        return 0, ()
    lines = [line for line in lines if tuple(one.form for one in line[2]) == order[0][0]]
    seen = [tuple(piece for one in taken for piece in one.pieces) for _, _, taken in lines]
    bare = order[0][0][0] == _BARE_NUMBER
    told = bare and any(map(_prepends_ranks().search, texts))
    enough = _LEAST_LINES if told else max(_LEAST_LINES, _LEAST_SHARE * len(texts))
    own: dict[str, set[str]] = defaultdict(set)
    for (text, _, _), pieces in zip(lines, seen, strict=True):
        own[pieces[0].value] |= set(_CALLS_ITSELF.findall(text))
    slots = _slots(seen) | ({0: "rank"} if told else {})
    if bare and not slots and len(forms) == 1:
        slots = _bare_ranks(seen, own)
    ranks = _fills_the_world(seen, slots, texts)
    slots |= ranks
    # A writer that comes back once is enough where all lines but a heading are labelled.
    # So it is where the numbers are those of all ranks.
    surely = len(seen) >= len(texts) - 1 or bool(ranks)
    chosen = [sorted(slots), *([one] for one in slots if len(slots) > 1)]
    values = [[tuple(pieces[i].value for i in of) for pieces in seen] for of in chosen]
    on_all = bare and len(seen) == len(texts) and len(set(values[0])) < len(values[0])
    turns = told or on_all or any(_takes_turns(one, surely=surely) for one in values)
    if not slots or len(seen) < enough or not turns:
        return 0, ()
    return len(slots), _as_labels([chain for _, chain, _ in lines], order[0][0], slots, seen)


def _taken(chain: tuple[_Front, ...], forms: Collection[tuple[str, ...]]) -> list[_Front]:
    """Return the first part of each of some forms, in their order."""
    found: dict[tuple[str, ...], _Front] = {}
    for one in chain:
        if one.form in forms:
            found.setdefault(one.form, one)
    return list(found.values())


def _as_labels(
    chains: Sequence[tuple[_Front, ...]],
    order: Sequence[tuple[str, ...]],
    slots: Mapping[int, str],
    seen: Sequence[tuple[_Piece, ...]],
) -> tuple[Label, ...]:
    """Return one label for each part up to the last that tells something, and for what stands between."""
    patterns: dict[str, None] = {}
    index, telling = 0, set()
    for form in order:
        count = sum(part.startswith("\0") for part in form)
        here = {i - index: slots[i] for i in range(index, index + count) if i in slots}
        if here:
            telling.add(form)
        patterns[_pattern(form, here, [one[index : index + count] for one in seen])] = None
        index += count
    patterns |= dict.fromkeys(_between(chains, telling))
    return tuple(Label("induced", "own", pattern) for pattern in patterns)


def _between(
    chains: Sequence[tuple[_Front, ...]], telling: Collection[tuple[str, ...]]
) -> Iterator[str]:
    """Yield the patterns of what stands in front of parts that tell something, and tells nothing itself."""
    for chain in chains:
        last = max((i for i, one in enumerate(chain) if one.form in telling), default=0)
        for one in chain[:last]:
            if one.form in _FILLERS:
                yield _filler(one.form[0])
            elif one.form not in telling and len(one.form) < _MOST_WORDS:
                yield _pattern(one.form, {}, [one.pieces])


@lru_cache(maxsize=2)
def _filler(kind: str) -> str:
    """Return the pattern of levels or of places in a program, without the names of its groups."""
    return _NAMES.sub("(?:", (_LEVEL if kind == "level" else _SOURCE).pattern)


def _counted_first(text: str, at: int) -> re.Match[str] | None:
    """Match a word with its number, and nothing but a gap behind it, where the word counts processes."""
    match = _NAMED.match(text, at)
    if match is None:
        return None
    return match if _number_kind(match["word"].lower()) in ("rank", "task", "local") else None


def _number_kind(word: str) -> str | None:
    """Return what a number behind a word counts, or None where the word is not known."""
    words = _words()
    known = words.get(word)
    if known is None and word.endswith(("_rank", "-rank")):
        known = "rank"  # whichever library counts it
    return known


def _taken_apart(head: str) -> _Front | None:
    form: list[str] = []
    pieces: list[_Piece] = []
    at, before = 0, ""
    for match in _PIECE.finditer(head):
        form.append(head[at : match.start()])
        piece = _piece(match[0], before)
        at, before = match.end(), match[0].lower()
        if piece is None:
            form.append(match[0])
            continue
        if piece.kind == "counter":
            return None
        front, _, _ = match[0].rpartition(piece.value)
        form += [front, f"\0{piece.kind}"]
        pieces.append(piece)
    return _Front((*form, head[at:]), tuple(pieces))


def _piece(token: str, before: str) -> _Piece | None:
    """Return what varies in a token: nothing, a host, or a number that a word announces."""
    if token.isdigit():
        # Behind a word that is not known it may count anything.
        kind = "number" if not before or not before[-1:].isalpha() else "unknown"
        told = _number_kind(before) or kind
        return _Piece(kind if told == "host" else told, before, token)
    counted = _COUNTED.fullmatch(token)
    kind = _number_kind(counted["word"].lower()) if counted is not None else None
    if counted is not None and kind is not None:
        if kind == "host":
            return _Piece(kind, "", token)
        return _Piece(kind, counted["word"], counted["number"])
    named = _number_kind(before) == "host" and not token.isalpha()
    if is_address(token) or (_HOSTLIKE.fullmatch(token) and (named or looks_counted(token))):
        return _Piece("host", "", token)
    return None


def may_count(token: str) -> bool:
    """Tell whether no word of a counter, a rank or a device begins the token."""
    first = _FIRST_WORD.match(token.lower())
    return first is None or first[0] not in _words()


def looks_counted(token: str) -> bool:
    """Tell whether a name is that of a machine of a series, and no model, stage, thread or file."""
    first = _FIRST_WORD.match(token)
    known = _words().get(first[0]) if first else None
    if is_pod(token):
        return True
    if known == "local" and not _COUNTED.fullmatch(token):
        known = None  # gpu-b-09 is a machine, gpu3 is none
    if known in ("counter", "rank", "local") or _FILE.search(token):
        return False
    letters = sum(sign.isalpha() for sign in token)
    if len(token) - letters < _LEAST_SIGNS and letters < _LEAST_SIGNS:
        return False  # w2
    return not is_no_host(token) or "-" in token


def _takes_turns(values: Sequence[tuple[str, ...]], *, surely: bool = False) -> bool:
    """Tell whether a few values come back again and again in turn, as those of writers do."""
    counts = Counter(values)
    runs = 1 + sum(a != b for a, b in pairwise(values))
    returns = runs > len(counts) + (not surely)
    few = len(counts) >= 2 and len(values) >= 2 * len(counts)
    return few and returns


def _slots(seen: Sequence[tuple[_Piece, ...]]) -> dict[int, str]:
    """Return what each variable part means: rank, local or node; parts without a meaning are left out."""
    columns = list(zip(*seen, strict=True))
    kinds = [column[0].kind for column in columns]
    hosts = [i for i, kind in enumerate(kinds) if kind == "host" and _is_series(columns[i])]
    slots: dict[int, str] = {}
    if len(hosts) == 1:
        slots[hosts[0]] = "node"
    ranks = [i for i, kind in enumerate(kinds) if kind == "rank"]
    numbers = [i for i, kind in enumerate(kinds) if kind in ("task", "number")]
    locals_ = [i for i, kind in enumerate(kinds) if kind == "local"]
    if len(locals_) == 1:
        slots[locals_[0]] = "local"
    others = [i for i in range(len(columns)) if i in hosts or i in numbers]
    if len(ranks) == 1:
        # A rank that stands beside several tasks or hosts counts within each of them.
        within = any(_repeats(columns[ranks[0]], columns[i]) for i in others)
        slots[ranks[0]] = "local" if within else "rank"
    elif not ranks and len(numbers) == 1:
        column = columns[numbers[0]]
        if hosts and _repeats(column, columns[hosts[0]]):
            slots.setdefault(numbers[0], "local")
        elif hosts and _repeats(columns[hosts[0]], column) and _fills_a_range(column):
            slots[numbers[0]] = "rank"
    return slots


def _bare_ranks(seen: Sequence[tuple[_Piece, ...]], own: Mapping[str, set[str]]) -> dict[int, str]:
    """A bare number in brackets is a rank, as Hydra's -prepend-rank prints it, where the log shows it.

    All numbers from 0 on take turns, or several processes behind it call themselves by just that rank and none by
    another.
    """
    if any(one[0].kind != "number" for one in seen):
        return {}
    values = {int(one[0].value) for one in seen}
    said = {value: ranks for value, ranks in own.items() if ranks}
    agreed = len(said) > 1 and all(ranks == {value} for value, ranks in said.items())
    return {0: "rank"} if agreed or values == set(range(len(values))) else {}


def _fills_the_world(
    seen: Sequence[tuple[_Piece, ...]], slots: Mapping[int, str], texts: Sequence[str]
) -> dict[int, str]:
    """A number that goes from 0 up to as many as the job has ranks, or its front says that there are, is the rank."""
    columns = list(zip(*seen, strict=True))
    hosts = [column for column in columns if column[0].kind == "host"]
    found = [i for i, one in enumerate(columns) if i not in slots and _from_zero(one, hosts)]
    if len(found) != 1 or not {"rank", "local"}.isdisjoint(slots.values()):
        return {}
    ranks = str(len({piece.value for piece in columns[found[0]]}))
    there = {column[0].value for i, column in enumerate(columns) if i != found[0]}
    if ranks in there or any(ranks in told.findall(text) for text in texts for told in _worlds()):
        return {found[0]: "rank"}
    return {}


def _from_zero(column: Sequence[_Piece], hosts: Sequence[Sequence[_Piece]]) -> bool:
    """Tell whether a part holds all numbers from 0 on up to another, and nothing says that it counts what is done.

    A counter goes up and begins at 0 again; a process has a host of its own.
    """
    if column[0].kind not in ("number", "task"):
        return False
    numbers = [int(piece.value) for piece in column]
    of_processes = (
        column[0].kind == "task"
        or any(0 < after < before for before, after in pairwise(numbers))
        or any(not _repeats(column, one) and not _repeats(one, column) for one in hosts)
    )
    values = set(numbers)
    return of_processes and len(values) > 1 and values == set(range(len(values)))


def _is_series(column: Sequence[_Piece]) -> bool:
    """Tell whether the names differ in numbers and in single letters alone, as those of machines do.

    The letter may be a rack's: mi-a01 and mi-b01 are of one series.
    """
    names = {piece.value for piece in column}
    forms = Counter(_LETTER.sub("a", _DIGITS.sub("0", name)) for name in names)
    return len(names) >= 2 and min(forms.values()) >= 2


def _repeats(numbers: Sequence[_Piece], others: Sequence[_Piece]) -> bool:
    beside: dict[str, set[str]] = defaultdict(set)
    for number, other in zip(numbers, others, strict=True):
        beside[number.value].add(other.value)
    return any(len(found) > 1 for found in beside.values())


def _fills_a_range(column: Sequence[_Piece]) -> bool:
    values = {int(piece.value) for piece in column}
    return min(values) == 0 and 2 * len(values) > max(values)


def _pattern(form: Sequence[str], slots: dict[int, str], seen: Sequence[tuple[_Piece, ...]]) -> str:
    found, index = "", 0
    for part in form:
        if not part.startswith("\0"):
            found += re.escape(part)
            continue
        slot = slots.get(index)
        value = _names_like(one[index].value for one in seen) if part == "\0host" else r"\d{1,6}"
        found += f"(?P<{slot}>{value})" if slot else f"(?:{value})"
        index += 1
    return found


def _names_like(values: Iterable[str]) -> str:
    """Return a pattern for names of the series that were seen: gn-1 and gn-12 bring gn-345 along, and no other word."""
    forms = {
        r"\d{1,8}".join(re.escape(part) for part in _DIGITS.split(value)) for value in set(values)
    }
    return "|".join(sorted(forms, key=lambda form: (-len(form), form)))
