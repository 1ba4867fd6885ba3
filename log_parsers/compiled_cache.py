"""The folder of compiled patterns: written whole or not at all, and by one process at a time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from rerail.cached_yaml import write_whole

if TYPE_CHECKING:
    from rerail.log_parsers.needed_words import Needed, WordIndex

Notice = Callable[[str], None]
T = TypeVar("T")
_waiting: list[Notice] = []


@contextmanager
def told(notice: Notice, *, most: int | None = None) -> Iterator[None]:
    """Let whoever waits for patterns to be compiled be told why: each sentence once, and `most` sentences at most."""
    said: set[str] = set()

    def once(text: str) -> None:
        if text not in said and (most is None or len(said) < most):
            said.add(text)
            notice(text)

    _waiting.append(once)
    try:
        yield
    finally:
        _waiting.remove(once)


def tell(text: str) -> None:
    """Tell those who asked for it."""
    for notice in _waiting:
        notice(text)


def tell_nobody() -> None:
    """Forget who asked for it: a process that reads for another one began with that one's list."""
    _waiting.clear()


@contextmanager
def only_one(cache: Path | None) -> Iterator[None]:
    """Hold off other processes that would compile the same patterns; without a folder or locks nobody is."""
    try:
        import fcntl

        if cache is None:
            raise OSError
        cache.mkdir(parents=True, exist_ok=True)
        lock: IO[bytes] = (cache / "compiling.lock").open("wb")
    except (ImportError, OSError):
        yield
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            tell("another process compiles the rules; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def keep_newest(written: Path, pattern: str, most: int) -> None:
    """Remove all but the newest few files like one that was written: each change of the rules leaves some megabytes."""
    try:
        old = sorted(written.parent.glob(pattern), key=lambda one: -one.stat().st_mtime)
        for path in old[most:]:
            path.unlink(missing_ok=True)
    except OSError:
        return


def skeleton_images(patterns: Sequence[str], cache: Path | None) -> list[str | None]:
    """Return `skeleton_pattern` of each pattern, from the cache where they were made before."""
    from rerail.log_parsers import skeleton_patterns

    return _kept(
        "images", skeleton_patterns.__file__, skeleton_patterns.skeleton_pattern, patterns, cache
    )


def blind_to_digits(patterns: Sequence[str], cache: Path | None) -> list[bool]:
    """Return `digit_blind` of each pattern, from the cache where it was answered before."""
    from rerail.log_parsers import digit_blind

    return _kept("digits", digit_blind.__file__, digit_blind.digit_blind, patterns, cache)


def words_needed(patterns: Sequence[str], cache: Path | None) -> list[Needed]:
    """Return `needed_words` of each pattern, from the cache where they were read before."""
    from rerail.log_parsers import needed_words

    return _kept("words", needed_words.__file__, needed_words.needed_words, patterns, cache)


def word_index(patterns: Sequence[str], cache: Path | None) -> WordIndex:
    """Return the index of the words that patterns need, from the cache where it was made before."""
    from rerail.log_parsers import needed_words

    path = _path_of(f"index-{sys.byteorder}", needed_words.__file__, patterns, cache)
    try:
        kept = json.loads(path.read_bytes()) if path is not None else []
        if kept and len(kept[0]) == len(patterns):
            return needed_words.WordIndex(kept[0], kept[1:])
    except (OSError, ValueError, TypeError, KeyError):
        pass  # it is made anew
    needed = list(map(needed_words.needed_words, patterns))
    made = needed_words.WordIndex(needed)
    if path is not None and write_whole(path, json.dumps([needed, *made.parts()]).encode()):
        keep_newest(path, "index-*.json", _KEPT)
    return made


def _path_of(name: str, code: str, patterns: Sequence[str], cache: Path | None) -> Path | None:
    """Return where what follows from patterns and the code of a module lies, or will lie."""
    if cache is None:
        return None
    digest = sha256(Path(code).read_bytes())
    for pattern in patterns:
        digest.update(pattern.encode() + b"\0")
    return cache / f"{name}-{digest.hexdigest()[:24]}.json"


def _kept(
    name: str,
    code: str,
    make: Callable[[str], T],
    patterns: Sequence[str],
    cache: Path | None,
) -> list[T]:
    """Return what is made of each pattern; it follows from the pattern and from the code that makes it."""
    path = _path_of(name, code, patterns, cache)
    if path is not None:
        try:
            held = json.loads(path.read_bytes())
        except (OSError, ValueError):
            held = None
        if (
            isinstance(held, list)
            and len(held) == len(patterns)
            and all(one is None or isinstance(one, str | bool | list) for one in held)
        ):
            return held
    made = [make(pattern) for pattern in patterns]
    if path is not None and write_whole(path, json.dumps(made).encode()):
        keep_newest(path, f"{name}-*.json", _KEPT)
    return made


_KEPT = 8
