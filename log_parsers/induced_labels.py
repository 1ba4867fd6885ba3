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
from rerail.kept_patterns import kept_pattern
from rerail.lazy_patterns import lazy
from rerail.log_parsers.front_parts import (
    FILLERS,
    KNOWN,
    Front,
    Piece,
    behind,
    filler,
    looks_counted,
    may_count,
    parts_in_front,
)
from rerail.log_parsers.host_names import is_no_host, series_of
from rerail.log_parsers.hosts_like_devices import in_blocks, with_hosts
from rerail.log_parsers.labels import INDUCED, PATH, Label, peel
from rerail.log_parsers.timestamps import find_stamp

_LEAST_LINES = 6
_SHORT_LOG, _FEW_LINES = 12, 3
_LOOKED_AT = 40  # lines that show whether a file has such labels at all
_COUNTS = ("number", "task", "process", "counted")
_BARE_NUMBER = ("[", "", "\0number", "] ")
_LEAST_SHARE = 0.4
_NEARLY_ALL, _MOST = 0.9, 0.7
_MOST_PARTS, _MOST_WORDS = 3, 12
_POD_AND_WORD = lazy(
    r"(?P<name>[a-z0-9][a-z0-9.-]{0,100}-[a-z0-9.-]{0,40}[a-z0-9]) (?P<word>[a-z][a-z0-9-]{0,40})(?: |$)"
)
_POD_FIRST = lazy(r"(?P<name>[a-z][a-z0-9]*(?:-[a-z0-9]+)*-\d{1,4}) ")
# A name of three parts and more, one of which is drawn by chance or counts.
_POD_ALONE = lazy(
    r"(?=[a-z0-9.-]*\d)[a-z][a-z0-9]{1,40}(?:-[a-z0-9.]{1,40}){2,8}(?: {1,3}\| ?|: | {1,2}|\t)"
)
# Such a name, wherever it stands.
_DASHED = lazy(r"[a-z][a-z0-9.]*-[a-z0-9.-]*[a-z0-9](?: |: |\t|$)")
_CALLS_ITSELF = lazy(r"(?i)\brank[ :=]{1,2}(\d{1,6})(?: of |/)\d")
_DIGITS = lazy(r"\d+")
_IN_BRACKETS = lazy(r"(?:\d[\w:.,+-]* ){0,2}\[(?P<host>[a-z]{1,12}-?\d{1,5})\] ")
_LETTER = lazy(r"(?<![A-Za-z])[a-z](?![A-Za-z])")


@lru_cache(maxsize=1)
def _prepends_ranks() -> re.Pattern[str]:
    return kept_pattern(
        "|".join(f"(?:{text})" for text in load_cached(PATH)["bare_number_is_rank"])
    )


@lru_cache(maxsize=1)
def _worlds() -> tuple[re.Pattern[str], ...]:
    return tuple(kept_pattern(text) for text in load_cached(PATH)["tells_the_world"])


def induce(texts: Sequence[str], *, year: int) -> tuple[Label, ...]:
    """Return the labels that the lines of one file have in common and that no pattern knows, in the order of their parts."""
    texts = [text for text in texts if text.strip()]
    every = max(1, len(texts) // _LOOKED_AT)
    few = [parts_in_front(text, year) for text in texts[::every]]
    told = sum(any(one.pieces or one is KNOWN for one in chain) for chain in few)
    if told > _LEAST_SHARE / 2 * len(few):
        chains = few if every == 1 else [parts_in_front(text, year) for text in texts]
        if found := _labels(with_hosts(chains), texts):
            return found
    if sum(_DASHED.search(text) is not None for text in texts) < _LEAST_LINES:
        return ()
    rest = [text for text in (_unknown(text, year) for text in texts) if text is not None]
    if len(rest) < _LEAST_LINES:
        return ()
    one = _pod_and_container(rest) or _one_pod(rest) or _pods_of_one_series(rest)
    return (one,) if one is not None else ()


def _unknown(text: str, year: int) -> str | None:
    """Return what stands behind the time of a line, marked where a time does, or None where a label is known there."""
    stamp = find_stamp(text, year=year)
    at = behind(stamp, text) if stamp is not None and stamp.start <= 1 else 0
    known = peel(text, at, True, stamp)
    if known is not None and not known[0].generic:
        return None
    return text if at == 0 else "\0" + text[at:]


def in_brackets(texts: Sequence[str], hosts: Collection[str]) -> tuple[Label, ...]:
    """Return the label of lines that begin with a host in brackets whose name only counts (`[h08]`), but is known as one."""
    seen = [match["host"] for text in texts if (match := _IN_BRACKETS.match(text))]
    names = set(seen)
    if len(seen) < _LEAST_LINES or len(set(map(series_of, names))) != 1 or not names & set(hosts):
        return ()
    return (Label(INDUCED, "collector", rf"\[(?P<node>{_names_like(names)})\] ", generic=True),)


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
        INDUCED,
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
        INDUCED,
        "collector",
        f"(?P<place>{re.escape(name)}){re.escape(front[len(name) :])}",
        generic=True,
    )


def _pods_of_one_series(texts: Sequence[str]) -> Label | None:
    """Return the label of lines that begin with a pod's name alone, where pods of one series take turns."""
    seen = [match["name"] for text in texts if (match := _POD_FIRST.match(text.removeprefix("\0")))]
    named = Counter(map(series_of, seen)).most_common(1)
    seen = [name for name in seen if series_of(name) == named[0][0]]
    if len(seen) < _MOST * len(texts) or is_no_host(seen[0]) or not looks_counted(seen[0]):
        return None
    if not _takes_turns([(name,) for name in seen]):
        return None
    return Label(INDUCED, "collector", rf"(?P<place>{_names_like(seen)})(?: |$)", generic=True)


def _labels(chains: Sequence[tuple[Front, ...]], texts: Sequence[str]) -> tuple[Label, ...]:
    """Return the labels of the parts that most lines have in front, where they tell rank or host."""
    counts = Counter(
        form for chain in chains for form in dict.fromkeys(one.form for one in chain if one.pieces)
    )
    least = _FEW_LINES if len(texts) < _SHORT_LOG else _LEAST_LINES
    forms = [
        form for form, count in counts.most_common() if count >= (2 if "\0rank" in form else least)
    ]
    together = [forms[:last] for last in range(min(len(forms), _MOST_PARTS), 1, -1)]
    best: tuple[int, tuple[Label, ...]] = (0, ())
    for chosen in (*together, *([one] for one in forms)):
        tells, found = _labels_of(chosen, chains, texts)
        if tells > best[0]:
            best = tells, found
    reached = [chain for chain in chains if KNOWN in chain]
    if best[0] or len(reached) < max(_LEAST_LINES, _LEAST_SHARE * len(texts)):
        return best[1]
    patterns = dict.fromkeys(_between(reached, {KNOWN.form}))
    return tuple(Label(INDUCED, "collector", pattern) for pattern in patterns)


def _labels_of(
    forms: Collection[tuple[str, ...]], chains: Sequence[tuple[Front, ...]], texts: Sequence[str]
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
    short = len(texts) < _SHORT_LOG
    ranked = any("\0rank" in form and (len(forms) > 1 or _says_rank(form)) for form in order[0][0])
    least = 2 if ranked else _FEW_LINES if short else _LEAST_LINES
    enough = _LEAST_LINES if told else max(least, _LEAST_SHARE * len(texts))
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
    # A word for a rank tells it by itself; in a short log, all of whose lines are labelled, one writer comes back.
    turns = (
        turns
        or (ranked and len(set(values[0])) > 1)
        or (short and surely and _comes_back(values[0]))
    )
    # Each rank of a large job may stand but once in what is looked at.
    if not slots or len(seen) < enough or not (turns or _through_hosts(seen, slots, texts)):
        return 0, ()
    return len(slots), _as_labels([chain for _, chain, _ in lines], order[0][0], slots, seen)


def _says_rank(form: tuple[str, ...]) -> bool:
    """Tell whether a part is a rank by the word in it, and something other than a gap ties or ends it."""
    return "\0rank" in form and (form[-1].strip() != "" or "=" in form)


def _taken(chain: tuple[Front, ...], forms: Collection[tuple[str, ...]]) -> list[Front]:
    """Return the first part of each of some forms, in their order."""
    found: dict[tuple[str, ...], Front] = {}
    for one in chain:
        if one.form in forms:
            found.setdefault(one.form, one)
    return list(found.values())


def _as_labels(
    chains: Sequence[tuple[Front, ...]],
    order: Sequence[tuple[str, ...]],
    slots: Mapping[int, str],
    seen: Sequence[tuple[Piece, ...]],
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
    return tuple(Label(INDUCED, "own", pattern) for pattern in patterns)


def _between(
    chains: Sequence[tuple[Front, ...]], telling: Collection[tuple[str, ...]]
) -> Iterator[str]:
    """Yield the patterns of what stands in front of parts that tell something, and tells nothing itself."""
    for chain in chains:
        last = max((i for i, one in enumerate(chain) if one.form in telling), default=0)
        for one in chain[:last]:
            if one.form in FILLERS:
                yield filler(one.form[0])
            elif one is not KNOWN and one.form not in telling and len(one.form) < _MOST_WORDS:
                yield _pattern(one.form, {}, [one.pieces])


def _takes_turns(values: Sequence[tuple[str, ...]], *, surely: bool = False) -> bool:
    """Tell whether a few values come back again and again in turn, as those of writers do."""
    counts = Counter(values)
    returns = _comes_back(values, beyond=not surely)
    few = len(counts) >= 2 and len(values) >= 2 * len(counts)
    return few and returns


def _comes_back(values: Sequence[tuple[str, ...]], *, beyond: bool = False) -> bool:
    """Tell whether a value comes back behind another; `beyond`: whether two do, or one does twice."""
    runs = 1 + sum(a != b for a, b in pairwise(values))
    return runs > len(set(values)) + beyond


def _slots(seen: Sequence[tuple[Piece, ...]]) -> dict[int, str]:
    """Return what each variable part means: rank, local or node; parts without a meaning are left out."""
    columns = list(zip(*seen, strict=True))
    kinds = [column[0].kind for column in columns]
    ranks = [i for i, kind in enumerate(kinds) if kind == "rank"]
    hosts = [
        i
        for i, column in enumerate(columns)
        if _is_series(column) and (kinds[i] == "host" or _each_at_one(columns, ranks, i))
    ]
    slots: dict[int, str] = {}
    # Beside the name of a machine, `node3` is its number.
    machines = [i for i in hosts if not is_no_host(columns[i][0].value)] or hosts
    if len(machines) == 1:
        slots[machines[0]] = "node"
    machine = [i for i, kind in enumerate(kinds) if kind == "node_number"]
    numbers = [i for i, kind in enumerate(kinds) if kind in _COUNTS]
    locals_ = [i for i, kind in enumerate(kinds) if kind == "local"]
    if len(locals_) == 1:
        slots[locals_[0]] = "local"
    others = [i for i in range(len(columns)) if i in hosts or i in numbers or i in machine]
    if len(ranks) == 1:
        # A rank that stands beside several tasks or hosts counts within each of them.
        within = any(_repeats(columns[ranks[0]], columns[i]) for i in others)
        slots[ranks[0]] = "local" if within else "rank"
    elif not ranks and len(numbers) == 1:
        column = columns[numbers[0]]
        if hosts and _repeats(column, columns[hosts[0]]):
            slots.setdefault(numbers[0], "local")
        elif hosts and _goes_through(column, columns[hosts[0]]):
            slots[numbers[0]] = "rank"
    if len(machine) == 1 and "local" in slots.values():
        slots[machine[0]] = "place"
    return slots


def _each_at_one(columns: Sequence[Sequence[Piece]], ranks: Sequence[int], short: int) -> bool:
    """Tell whether a short name, n17, is a host: it stands beside ranks of which each has one such name."""
    named = columns[short][0].kind == "short"
    return named and len(ranks) == 1 and not _repeats(columns[ranks[0]], columns[short])


def _bare_ranks(seen: Sequence[tuple[Piece, ...]], own: Mapping[str, set[str]]) -> dict[int, str]:
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
    seen: Sequence[tuple[Piece, ...]], slots: Mapping[int, str], texts: Sequence[str]
) -> dict[int, str]:
    """A number that goes from 0 up to as many as the job has ranks, or its front says that there are, is the rank."""
    columns = list(zip(*seen, strict=True))
    hosts = [column for column in columns if column[0].kind == "host"]
    found = [i for i, one in enumerate(columns) if i not in slots and _from_zero(one, hosts)]
    if len(found) != 1 or not {"rank", "local"}.isdisjoint(slots.values()):
        return {}
    ranks = str(len({piece.value for piece in columns[found[0]]}))
    there = {column[0].value for i, column in enumerate(columns) if i != found[0]}
    worlds = {world for text in texts for told in _worlds() for world in told.findall(text)}
    if ranks in there | worlds or (columns[found[0]][0].kind == "process" and not worlds):
        return {found[0]: "rank"}
    return {}


def _from_zero(column: Sequence[Piece], hosts: Sequence[Sequence[Piece]]) -> bool:
    """Tell whether a part holds all numbers from 0 on up to another, and nothing says that it counts what is done.

    A counter goes up and begins at 0 again; a process has a host of its own.
    """
    if column[0].kind not in _COUNTS:
        return False
    numbers = [int(piece.value) for piece in column]
    of_processes = (
        column[0].kind in ("task", "process")
        or any(0 < after < before for before, after in pairwise(numbers))
        or any(not _repeats(column, one) and not _repeats(one, column) for one in hosts)
    )
    values = set(numbers)
    return of_processes and len(values) > 1 and values == set(range(len(values)))


def _is_series(column: Sequence[Piece]) -> bool:
    """Tell whether the names differ in numbers and in single letters alone, as those of machines do.

    The letter may be a rack's: mi-a01 and mi-b01 are of one series.
    """
    names = {piece.value for piece in column}
    forms = Counter(_LETTER.sub("a", _DIGITS.sub("0", name)) for name in names)
    return len(names) >= 2 and min(forms.values()) >= 2


def _repeats(numbers: Sequence[Piece], others: Sequence[Piece]) -> bool:
    beside: dict[str, set[str]] = defaultdict(set)
    for number, other in zip(numbers, others, strict=True):
        beside[number.value].add(other.value)
    return any(len(found) > 1 for found in beside.values())


def _fills_a_range(column: Sequence[Piece]) -> bool:
    values = {int(piece.value) for piece in column}
    return min(values) == 0 and 2 * len(values) > max(values)


def _through_hosts(
    seen: Sequence[tuple[Piece, ...]], slots: Mapping[int, str], texts: Sequence[str]
) -> bool:
    """Tell whether nearly all lines name a rank and its host, and the ranks go on from host to host."""
    at = {slot: i for i, slot in slots.items()}
    if len(seen) < _NEARLY_ALL * len(texts) or not {"node", "rank"} <= at.keys():
        return False
    return in_blocks(_beside([one[at["rank"]] for one in seen], [one[at["node"]] for one in seen]))


def _goes_through(numbers: Sequence[Piece], hosts: Sequence[Piece]) -> bool:
    """Tell whether numbers that stand on one host each are ranks: they fill a range, or go on from host to host."""
    if not _repeats(hosts, numbers):
        return False
    return _fills_a_range(numbers) or in_blocks(_beside(numbers, hosts))


def _beside(numbers: Sequence[Piece], hosts: Sequence[Piece]) -> list[tuple[int, int]]:
    """Return the number of the host and the number beside it, of each line whose host has one."""
    return [
        (int(found[-1]), int(number.value))
        for host, number in zip(hosts, numbers, strict=True)
        if (found := _DIGITS.findall(host.value))
    ]


def _pattern(form: Sequence[str], slots: dict[int, str], seen: Sequence[tuple[Piece, ...]]) -> str:
    found, index = "", 0
    for part in form:
        if not part.startswith("\0"):
            found += re.escape(part)
            continue
        slot = slots.get(index)
        names = part in ("\0host", "\0short")
        value = _names_like(one[index].value for one in seen) if names else r"\d{1,6}"
        found += f"(?P<{slot}>{value})" if slot else f"(?:{value})"
        index += 1
    return found


def _names_like(values: Iterable[str]) -> str:
    """Return a pattern for names of the series that were seen: gn-1 and gn-12 bring gn-345 along, and no other word."""
    forms = {
        r"\d{1,8}".join(re.escape(part) for part in _DIGITS.split(value)) for value in set(values)
    }
    return "|".join(sorted(forms, key=lambda form: (-len(form), form)))
