"""Finds the lines that match any of thousands of signatures, in one pass over the bytes.

Hyperscan proposes candidates, google-re2 or Python's own `re` do where it is not to be had, and
Python's `re` confirms each candidate on the cleaned line; so all engines give the same hits.
"""

from __future__ import annotations

import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rerail.cached_yaml import write_whole
from rerail.errors import RuleError
from rerail.kept_patterns import kept_pattern
from rerail.late_dataclass import dataclass
from rerail.log_parsers.compiled_cache import (
    keep_newest,
    only_one,
    skeleton_images,
    tell,
    word_index,
)
from rerail.log_parsers.relaxed import FORM, relaxed
from rerail.log_parsers.scan_library import BlindLibraryError, must_find
from rerail.log_parsers.text import strip_escapes

if TYPE_CHECKING:
    from rerail.log_parsers.needed_words import WordIndex
    from rerail.log_parsers.sieve import Sieve

# Compiling all patterns takes as long as looking for each of them in some 800 kB with Python's `re`.
SMALL = 256 << 10
"""Bytes of logs for which patterns that are not compiled yet are not compiled."""

# More callbacks than this in one chunk mean a pattern that reports an end at every byte.
_FLOOD = 300_000
_DATABASES_KEPT = 24
_TOLD = 400  # patterns whose compiling takes so long that somebody who waits should know
_LARGE = 150_000  # characters of the patterns of a set that is cut in two


@dataclass(frozen=True, slots=True)
class Signature:
    """One pattern to look for.

    `wants_context` keeps the lines around its hits. `presence` asks only whether the pattern
    occurs at all: hits behind the first are not looked at. `added` marks a pattern of the site
    itself: those are compiled apart, so that a new one does not compile the shipped ones again.
    `loose` marks one with look-around: the compiled engine looks for something wider.
    Of all that a line shows the one of the lowest `order` counts; where that is `harmless`, and its
    `unless` is not on the line, few such lines are kept.
    """

    pattern: str
    wants_context: bool = False
    presence: bool = False
    added: bool = False
    loose: bool = False
    harmless: bool = False
    unless: str = ""
    order: int = 0


class Scanner(Protocol):
    """Finds candidate lines in a chunk of whole lines."""

    def candidates(self, chunk: bytes, skip: Container[int] = ()) -> list[tuple[int, int]]:
        """Return (end offset in the chunk, signature index), in any order, maybe with repeats.

        Hits of the signatures in `skip` are left out.
        """
        ...


def make_scanner(
    signatures: Sequence[Signature],
    *,
    cache: Path | None,
    engine: str | None = None,
    size: int | None = None,
) -> Scanner:
    """Build the best scanner that this machine has.

    Args:
        signatures: the patterns; a hit carries the index into this sequence.
        cache: folder for compiled databases, or None to compile anew.
        engine: `hyperscan`, `re2` or `re` to force one.
        size: bytes that it is for, if known; on a new machine a small log is read at once.

    Raises:
        RuleError: when a pattern does not compile.
    """
    if not signatures:
        return _PlainRe(())
    wanted = engine or ""
    patterns = [s.pattern for s in signatures]
    if wanted in ("", "hyperscan"):
        try:
            if (
                not wanted
                and size is not None
                and size <= SMALL
                and not _at_hand(signatures, cache)
            ):
                return _PlainRe(patterns, cache=cache)
            return _compile(signatures, cache)
        except ImportError as error:
            if wanted:
                blind = isinstance(error, BlindLibraryError)
                raise RuleError(
                    str(error) if blind else "hyperscan is not installed",
                    subject="scan engine",
                    hint="pip install 'hyperscan<0.7.14'",
                ) from None
            if isinstance(error, BlindLibraryError):
                tell(f"{error}; until then logs are read more slowly")
    if wanted in ("", "re2"):
        try:
            return _Re2(patterns)
        except ImportError:
            if wanted:
                raise RuleError(
                    "google-re2 is not installed",
                    subject="scan engine",
                    hint="pip install google-re2",
                ) from None
    return _PlainRe(patterns)


def compiled_at_hand(signatures: Sequence[Signature], cache: Path | None) -> bool:
    """Tell whether these signatures need no compiling: hyperscan and its database are there."""
    try:
        return _at_hand(signatures, cache)
    except ImportError:
        return False


def is_compiled(scanner: Scanner) -> bool:
    """Tell whether a scanner is made for logs of any size."""
    return isinstance(scanner, _Compiled)


def sieve_of(scanner: Scanner) -> Sieve | None:
    """Return the sieve before a scanner, which finds the same in long logs in less time.

    Returns:
        None where there is nothing to gain: with another engine than hyperscan, without the loops of `line_tables`.
    """
    return scanner.sieve() if isinstance(scanner, _Compiled) else None


def compile_complaint(pattern: str) -> str | None:
    """Return why hyperscan cannot take one pattern, or None when it can or is not installed."""
    try:
        import hyperscan
    except ImportError:
        return None
    flag = hyperscan.HS_FLAG_CASELESS if pattern.startswith("(?i)") else 0
    loose = relaxed(pattern[4:] if flag else pattern)
    try:
        hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK).compile(
            expressions=[loose.encode()], ids=[0], elements=1, flags=[flag]
        )
    except hyperscan.HyperscanError as error:
        return f"hyperscan: {error}"
    return None


def compile_complaints(patterns: Sequence[str], *, cache: Path | None) -> dict[str, str]:
    """Return why hyperscan cannot take some of the patterns; empty when it takes all.

    All at once are compiled in a tenth of the time that one by one takes, or are in the cache.
    """
    try:
        make_scanner([Signature(p) for p in patterns], cache=cache, engine="hyperscan")
    except RuleError:
        return {p: why for p in dict.fromkeys(patterns) if (why := compile_complaint(p))}
    return {}


def searchable(chunk: bytes) -> bytes:
    """Return the chunk as the engines should see it: no escape sequences, no NUL bytes.

    Colour codes split literals and NUL bytes hide text. Newlines stay where they are, so lines
    keep their order; offsets are those of the returned bytes.
    """
    if b"\x00" in chunk:
        chunk = chunk.replace(b"\x00", b"")
    if b"\x1b" in chunk:
        chunk = strip_escapes(chunk)
    return chunk


def _once(signature: Signature) -> bool:
    """Tell whether one candidate per chunk is enough: the engine's pattern is the pattern itself."""
    return signature.presence and relaxed(signature.pattern) == signature.pattern


class _Compiled(ABC):
    """What compiled scanners share: the signatures that they stand for, and a sieve before them."""

    def __init__(self, signatures: Sequence[Signature], cache: Path | None) -> None:
        self._signatures = signatures
        self._cache = cache
        self._sieve: Sieve | Literal[False] | None = None

    @abstractmethod
    def candidates(self, chunk: bytes, skip: Container[int] = ()) -> list[tuple[int, int]]: ...

    def sieve(self) -> Sieve | None:
        """Return the sieve, built when first asked for."""
        if self._sieve is None:
            self._sieve = _make_sieve(self._signatures, self, self._cache) or False
        return self._sieve or None


class _Hyperscan(_Compiled):
    """A compiled set; `numbers` are reported for the patterns instead of their places."""

    def __init__(
        self,
        signatures: Sequence[Signature],
        cache: Path | None,
        numbers: Sequence[int] | None = None,
    ) -> None:
        import hyperscan

        super().__init__(signatures, cache)
        self._hs = hyperscan
        self._numbers = list(range(len(signatures)) if numbers is None else numbers)
        patterns = [s.pattern for s in signatures]
        database = self._load(signatures, cache)
        self._database = database
        self._scratch = hyperscan.Scratch(database)
        database.scratch = self._scratch
        self._fallback = _PlainRe(patterns, self._numbers)

    def _load(self, signatures: Sequence[Signature], cache: Path | None) -> Any:
        hs = self._hs
        path = _database_path(signatures, cache, self._numbers)
        if path is not None and path.is_file():
            try:
                with open(path, "rb", buffering=0) as file:
                    database = hs.loadb(file.read(), hs.HS_MODE_BLOCK)
                _mark_used(path)
                return database
            except Exception:  # a torn or foreign cache file is rebuilt, whatever is wrong with it
                path.unlink(missing_ok=True)
        must_find(hs)
        database = hs.Database(mode=hs.HS_MODE_BLOCK)
        expressions, flags = [], []
        for one in signatures:
            pattern = one.pattern
            flag = hs.HS_FLAG_SINGLEMATCH if _once(one) else 0
            flag |= hs.HS_FLAG_PREFILTER if one.loose else 0
            if pattern.startswith("(?i)"):
                pattern, flag = pattern[4:], flag | hs.HS_FLAG_CASELESS
            expressions.append(relaxed(pattern).encode())
            flags.append(flag)
        try:
            database.compile(
                expressions=expressions,
                ids=self._numbers,
                elements=len(expressions),
                flags=flags,
            )
        except hs.HyperscanError:
            raise self._first_bad(expressions, flags) from None
        if path is not None and write_whole(path, hs.dumpb(database)):
            keep_newest(path, "signatures-*.hsdb", _DATABASES_KEPT)
        return database

    def _first_bad(self, expressions: list[bytes], flags: list[int]) -> RuleError:
        for index, (expression, flag) in enumerate(zip(expressions, flags, strict=True)):
            try:
                self._hs.Database(mode=self._hs.HS_MODE_BLOCK).compile(
                    expressions=[expression], ids=[0], elements=1, flags=[flag]
                )
            except self._hs.HyperscanError as error:
                text = expression.decode()
                return RuleError(
                    f"the pattern {text!r} does not compile: {error}",
                    subject=f"signature {self._numbers[index]}",
                    hint="rerail kb lint",
                )
        return RuleError(
            "the patterns do not compile together", subject="rules", hint="rerail kb lint"
        )

    def candidates(self, chunk: bytes, skip: Container[int] = ()) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        add = found.append

        def on_match(index: int, _start: int, end: int, _flags: int, _context: object) -> bool:
            if index not in skip:
                add((end, index))
            return len(found) > _FLOOD

        try:
            self._database.scan(chunk, match_event_handler=on_match, scratch=self._scratch)
        except self._hs.ScanTerminated:
            return self._fallback.candidates(chunk, skip)
        return found


def _database_path(
    signatures: Sequence[Signature], cache: Path | None, numbers: Sequence[int]
) -> Path | None:
    """Return where the compiled form of these signatures lies, or will lie."""
    import hyperscan

    if cache is None:
        return None
    digest = hashlib.sha256()
    # What is compiled follows from the patterns and from how they are relaxed.
    version = getattr(hyperscan, "__version__", "?")
    digest.update(repr((version, os.uname().machine, sorted(_cpu_flags()), FORM)).encode())
    if numbers != list(range(len(signatures))):
        digest.update(repr(numbers).encode())
    parts: list[str] = []
    for one in signatures:
        parts += (one.pattern, "\1" if one.presence else "\0", "\2" if one.loose else "")
    digest.update("".join(parts).encode())
    return cache / f"signatures-{digest.hexdigest()[:24]}.hsdb"


def _at_hand(signatures: Sequence[Signature], cache: Path | None) -> bool:
    """Tell whether the shipped patterns are compiled; those of a site are few."""
    shipped = [s for s in signatures if not s.added] or list(signatures)
    paths = [
        _database_path([shipped[place] for place in block], cache, block)
        for block in _blocks(list(range(len(shipped))), [s.pattern for s in shipped])
    ]
    return all(path is not None and os.path.isfile(path) for path in paths)


class _Layers(_Compiled):
    """Several sets: the shipped signatures, in blocks, and those of the site."""

    def __init__(
        self,
        signatures: Sequence[Signature],
        cache: Path | None,
        layers: Sequence[tuple[_Set, Scanner]],
    ) -> None:
        super().__init__(signatures, cache)
        self._layers = [
            (scanner, dict(zip(one.places, one.numbers, strict=True)), one.numbers == one.places)
            for one, scanner in layers
        ]

    def candidates(self, chunk: bytes, skip: Container[int] = ()) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for scanner, numbers, same in self._layers:
            if same:
                found += scanner.candidates(chunk, skip)
                continue
            left_out = frozenset(at for at, number in numbers.items() if number in skip)
            found += [(end, numbers[at]) for end, at in scanner.candidates(chunk, left_out)]
        return found


def _compile(
    signatures: Sequence[Signature],
    cache: Path | None,
    chosen: dict[int, str] | None = None,
) -> Scanner:
    """Compile signatures into one set, or into several: large ones are cut, the site's own go apart.

    Args:
        signatures: all of them; a hit carries the index into this sequence.
        cache: folder for compiled databases.
        chosen: only these indices, with the patterns that stand for them.
    """
    wanted = chosen if chosen is not None else {at: s.pattern for at, s in enumerate(signatures)}
    both = any(s.added for s in signatures) and not all(s.added for s in signatures)
    sets: list[_Set] = []
    for added in (False, True) if both else (None,):
        # Places within a layer do not move when the other one grows, so its database stays valid.
        numbers = [at for at, s in enumerate(signatures) if added is None or s.added is added]
        places = [place for place, number in enumerate(numbers) if number in wanted]
        for block in _blocks(places, [wanted[numbers[place]] for place in places]):
            part = [_with(signatures[numbers[p]], wanted[numbers[p]]) for p in block]
            sets.append(_Set([numbers[place] for place in block], part, block, bool(added)))
    if not sets:
        return _PlainRe(())
    paths = [_database_path(one.part, cache, one.places) for one in sets]
    scanners: list[Scanner]
    if not _missing(sets, paths):
        scanners = [one.compiled(cache) for one in sets]
    else:
        with only_one(cache):  # what another process compiled meanwhile is no longer missing
            scanners = _compile_all(sets, cache, _missing(sets, paths))
    if len(scanners) == 1 and sets[0].numbers == sets[0].places:
        return scanners[0]
    return _Layers(signatures, cache, list(zip(sets, scanners, strict=True)))


def _missing(sets: Sequence[_Set], paths: Sequence[Path | None]) -> int:
    """Return how many patterns are still to be compiled."""
    held = (path is not None and path.is_file() for path in paths)
    return sum(len(one.part) for one, there in zip(sets, held, strict=True) if not there)


def _with(signature: Signature, pattern: str) -> Signature:
    return signature if signature.pattern == pattern else replace(signature, pattern=pattern)


def _compile_all(sets: Sequence[_Set], cache: Path | None, missing: int) -> list[Scanner]:
    if missing > _TOLD:
        tell(
            "compiling the rules, once after each change of them: some seconds, a minute on a busy machine"
        )
    if len(sets) == 1:
        return [sets[0].compiled(cache)]
    from concurrent.futures import ThreadPoolExecutor

    # The engine lets go of the interpreter while it compiles.
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(lambda one: one.compiled(cache), sets))


@dataclass(frozen=True, slots=True)
class _Set:
    """Signatures that are compiled together, with their places in their layer and among all."""

    numbers: list[int]
    part: list[Signature]
    places: list[int]
    added: bool

    def compiled(self, cache: Path | None) -> Scanner:
        try:
            return _Hyperscan(self.part, cache, self.places)
        except RuleError:
            if not self.added:
                raise
            # A site's pattern that hyperscan cannot take costs time, not the diagnosis.
            return _PlainRe([one.pattern for one in self.part], self.places)


def _blocks(places: list[int], patterns: Iterable[str]) -> list[list[int]]:
    """Cut the places of a set in two where its patterns are much text.

    Compiling takes longer than in proportion to it: 1,200 rules of 219,000 characters took 11.9 s in
    one set, 5.1 s and 4.7 s in two, side by side; scanning with two takes 4 % longer. For patterns
    that are little more than words (2,000 of 105,000 characters) it would take 15 % longer.
    """
    if sum(map(len, patterns)) < _LARGE:
        return [places] if places else []
    half = len(places) // 2
    return [places[:half], places[half:]] if half else [places]


def _make_sieve(
    signatures: Sequence[Signature], whole: Scanner, cache: Path | None
) -> Sieve | None:
    from rerail.log_parsers.sieve import Sieve
    from rerail.log_parsers.tallies import vectors_at_hand

    if not vectors_at_hand():
        return None

    def build(numbers: Sequence[int], patterns: Sequence[str]) -> Scanner:
        return _compile(signatures, cache, dict(zip(numbers, patterns, strict=True)))

    from rerail.log_parsers.without_head import without_head

    def build_few(numbers: Sequence[int], patterns: Sequence[str]) -> Scanner:
        # Which they are depends on the log; such sets are not worth a file. Of lines that only tell
        # that something occurs one is proposed, so that this one has to be right.
        chosen = {
            at: pattern if signatures[at].presence else without_head(pattern)
            for at, pattern in zip(numbers, patterns, strict=True)
        }
        return _compile(signatures, None, chosen)

    patterns = [signature.pattern for signature in signatures]
    try:
        once = frozenset(at for at, signature in enumerate(signatures) if signature.presence)
        return Sieve(
            skeleton_images(patterns, cache), patterns, whole, build, build_few, once, cache
        )
    except RuleError:
        # An image that hyperscan cannot take: every line is scanned, as without a sieve.
        return None


class _Re2:
    """A set of all patterns says which occur in the chunk; only those are then looked for."""

    def __init__(self, patterns: Sequence[str]) -> None:
        import re2

        options = re2.Options()
        options.max_mem = 512 << 20
        options.encoding = re2.Options.Encoding.LATIN1
        options.log_errors = False
        self._set = re2.Set.SearchSet(options)
        self._always: list[int] = []
        self._members: list[int] = []
        for index, pattern in enumerate(patterns):
            try:
                self._set.Add(relaxed(pattern).encode("utf-8"))
                self._members.append(index)
            except re2.error:
                self._always.append(index)
        self._set.Compile()
        self._plain = _PlainRe(patterns)

    def candidates(self, chunk: bytes, skip: Container[int] = ()) -> list[tuple[int, int]]:
        present = {self._members[i] for i in self._set.Match(chunk) or ()}
        return self._plain.candidates(chunk, skip, present | set(self._always))


class _PlainRe:
    """Python's own patterns; those whose words a chunk does not hold are not looked for, nor compiled."""

    def __init__(
        self,
        patterns: Sequence[str],
        numbers: Sequence[int] | None = None,
        *,
        cache: Path | None = None,
    ) -> None:
        self._patterns = patterns
        self._numbers = range(len(patterns)) if numbers is None else numbers
        self._cache = cache
        self._index: WordIndex | None = None
        self._compiled: dict[int, re.Pattern[bytes]] = {}

    def candidates(
        self, chunk: bytes, skip: Container[int] = (), only: Container[int] | None = None
    ) -> list[tuple[int, int]]:
        if self._index is None:
            self._index = word_index(self._patterns, self._cache)
        found = []
        for at in self._index.may_match(chunk):
            number = self._numbers[at]
            if number in skip or (only is not None and at not in only):
                continue
            compiled = self._compiled.get(at)
            if compiled is None:
                compiled = self._compiled[at] = kept_pattern(relaxed(self._patterns[at]).encode())
            found += [(end, number) for end in _ends(compiled, chunk)]
        return found


def _ends(compiled: re.Pattern[bytes], chunk: bytes) -> Iterator[int]:
    r"""Yield an end offset in every line that may hold a match.

    A class such as `\s` runs over newlines and would swallow the lines behind: each line that a
    match touches is proposed, and the search goes on at the line after its first. What needs the
    newline in front of it would not be found again from there, so the line of its end is proposed too.
    """
    at = 0
    while at <= len(chunk) and (match := compiled.search(chunk, at)) is not None:
        newline = chunk.find(b"\n", match.start(), match.end())
        if 0 <= newline < match.end() - 1:
            yield newline + 1
            yield match.end()
            at = newline + 1
        else:
            yield max(match.end(), match.start() + 1)
            at = max(match.end(), match.start() + 1)


@lru_cache(maxsize=1)
def _cpu_flags() -> frozenset[str]:
    # A database compiled for AVX-512 does not load on a machine without it.
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as info:
            for line in info:
                if line.startswith(("flags", "Features")):
                    return frozenset(
                        f for f in line.split() if f.startswith(("avx", "ssse3", "asimd", "sve"))
                    )
    except OSError:
        pass
    return frozenset()


def _mark_used(path: Path) -> None:
    try:
        path.touch()  # what is in use is not pruned
    except OSError:
        return  # a cache that can only be read serves as well
