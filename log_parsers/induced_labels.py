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
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from rerail.cached_yaml import load_cached
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.host_names import is_no_host, is_pod, series_of
from rerail.log_parsers.labels import PATH, Label, peel
from rerail.log_parsers.timestamps import Stamp, find_stamp

_LEAST_LINES = 6
_BARE_NUMBER = ("[", "", "\0number", "] ")
_LEAST_SHARE = 0.4
_NEARLY_ALL = 0.9
_MOST_PARTS = 3
_LEAST_SIGNS = 2
_BRACKETS = lazy(r"(?:\[[^\]\[]{1,60}\]|\([^()]{1,60}\)|<[^<>]{1,60}>):?\s?")
_WORD = r"[A-Za-z0-9](?:[\w./@#-]{0,40}[\w])?(?: \d{1,6})?"
_SEPARATED = lazy(rf"{_WORD}(?:\s?\|\s?|\t|:\s?|\s-\s|\s?>\s)")
_FILE = lazy(r"\.(?:py|cc|cpp|cu|c|h|so|go|rs|java|json|ya?ml|log|out|err|txt|sh)$")
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
_LETTER = lazy(r"(?<![A-Za-z])[a-z](?![A-Za-z])")


@dataclass(frozen=True, slots=True)
class _Piece:
    """One variable part of a front: a host, or a number with the word before it."""

    kind: str
    word: str
    value: str


@dataclass(frozen=True, slots=True)
class _Front:
    """What stands in front of a line: its form with the variable parts left out, and those parts."""

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
    """Return the labels that the lines of one file have in common and that no pattern knows, at most one."""
    rest: list[str] = []
    for text in texts:
        if not text.strip():
            continue
        stamp = find_stamp(text, year=year)
        at = _behind(stamp, text)
        known = peel(text, at, True, stamp)
        if known is None or known[0].generic:
            rest.append(text[at:] if at == 0 else "\0" + text[at:])
    if len(rest) < _LEAST_LINES:
        return ()
    best: Label | None = None
    for parts in range(1, _MOST_PARTS + 1):
        found = _label(rest, parts)
        # A longer front that tells no more begins with words of the message.
        if found is not None and (best is None or _tells(found) > _tells(best)):
            best = found
    best = best or _pod_and_container(rest) or _one_pod(rest)
    return (best,) if best is not None else ()


def _tells(label: Label) -> int:
    return label.text.count("(?P<")


def in_brackets(texts: Sequence[str], hosts: Collection[str]) -> tuple[Label, ...]:
    """Return the label of lines that begin with a host in brackets whose name only counts (`[h08]`), but is known as one."""
    seen = [match["host"] for text in texts if (match := _IN_BRACKETS.match(text))]
    names = set(seen)
    if len(seen) < _LEAST_LINES or len(set(map(series_of, names))) != 1 or not names & set(hosts):
        return ()
    return (Label("induced", "collector", rf"\[(?P<node>{_names_like(names)})\] "),)


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
        "induced", "collector", rf"(?P<node>{_names_like(names)}) {re.escape(words.pop())}(?: |$)"
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
        "induced", "collector", f"(?P<place>{re.escape(name)}){re.escape(front[len(name) :])}"
    )


def _behind(stamp: Stamp | None, text: str) -> int:
    if stamp is None or stamp.start > 1:
        return 0
    end = stamp.end
    while end < len(text) and text[end] in "]:), ":
        end += 1
    return end


def _label(texts: Sequence[str], parts: int) -> Label | None:
    fronts: dict[tuple[str, ...], list[tuple[_Piece, ...]]] = defaultdict(list)
    own: dict[tuple[str, ...], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for text in texts:
        front = _front(text, parts)
        if front is not None and front.pieces:
            fronts[front.form].append(front.pieces)
            own[front.form][front.pieces[0].value] |= set(_CALLS_ITSELF.findall(text))
    if not fronts:
        return None
    form, seen = max(fronts.items(), key=lambda item: (len(item[1]), item[0]))
    told = form == _BARE_NUMBER and any(map(_prepends_ranks().search, texts))
    enough = _LEAST_LINES if told else max(_LEAST_LINES, _LEAST_SHARE * len(texts))
    values = [tuple(piece.value for piece in one) for one in seen]
    on_all = form == _BARE_NUMBER and len(seen) == len(texts) and len(set(values)) < len(values)
    slots = _slots(seen) or ({0: "rank"} if told else _bare_ranks(form, seen, own[form]))
    ranks = _fills_the_world(seen, slots, texts)
    # A writer that comes back once is enough where all lines but a heading are labelled.
    # So it is where the numbers are those of all ranks.
    surely = len(seen) >= len(texts) - 1 or bool(ranks)
    if len(seen) < enough or not (told or on_all or _takes_turns(values, surely=surely)):
        return None
    slots |= ranks
    if not slots:
        return None
    return Label("induced", "own", _pattern(form, slots, seen))


def _front(text: str, parts: int) -> _Front | None:
    """Take `parts` labelled pieces off the front of a text; a bare host counts behind a time alone."""
    stamped = text.startswith("\0")
    text = text.removeprefix("\0")
    at = 0
    for _ in range(parts):
        match = _BRACKETS.match(text, at) or _SEPARATED.match(text, at)
        if match is None and stamped and at == 0:
            match = _BARE.match(text)
        if match is None:
            return None
        at = match.end()
    return _taken_apart(text[:at])


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
    words = _words()
    if token.isdigit():
        # Behind a word that is not known it may count anything.
        kind = "number" if not before or not before[-1:].isalpha() else "unknown"
        told = words.get(before, kind)
        return _Piece(kind if told == "host" else told, before, token)
    counted = _COUNTED.fullmatch(token)
    if counted is not None and counted["word"].lower() in words:
        kind = words[counted["word"].lower()]
        if kind == "host":
            return _Piece(kind, "", token)
        return _Piece(kind, counted["word"], counted["number"])
    if _HOSTLIKE.fullmatch(token) and looks_counted(token):
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


def _bare_ranks(
    form: tuple[str, ...], seen: Sequence[tuple[_Piece, ...]], own: Mapping[str, set[str]]
) -> dict[int, str]:
    """A bare number in brackets is a rank, as Hydra's -prepend-rank prints it, where the log shows it.

    All numbers from 0 on take turns, or several processes behind it call themselves by just that rank and none by
    another.
    """
    if form != _BARE_NUMBER or any(one[0].kind != "number" for one in seen):
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
