"""Masks secrets in one line; what they look like stands in `secret_kinds.yaml`.

Everything that comes from a job is masked where it enters: files by `redactor.Redactor`, before any
other reader sees a byte; what comes from elsewhere (a scheduler's answer, a settings value) by
`redact`. Patterns of our own, because general secret scanners were measured to flood on log lines
(hashes, node names) or to miss the forms that training logs hold (environment dumps, URLs).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

from rerail.cached_yaml import load_cached
from rerail.kept_patterns import kept_pattern
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy

MASK = "[redacted]"
KINDS_FILE = Path(__file__).with_name("secret_kinds.yaml")
CUT = "\N{BROKEN BAR}"
"""Stands inside the examples of secrets, so that no scanner of repositories takes them for leaks."""

_MASK = MASK.encode()
# What stands for a value and is none.
_NOTHING = lazy(
    rb"(?i)(?:none|null|nil|true|false|yes|no|undefined|unset|empty|\*+|x{3,}|\.{2,}|<[^>]*>|\$\{?\w+\}?|\$\(.*"
    rb"|%\(?\w*\)?[sd]?|\{\w*\}|\[redacted\].*|\[?redacted\]?|\[hidden\]|\(.*)"
)
# A number with or without a unit, a list of them, a plain word: settings, not secrets.
_PLAIN = lazy(
    rb"(?i)[-+]?[\d.,:/x]+(?:e[-+]?\d+)?(?:[mun]?s|%|[kmgt]i?b?)?|[A-Za-z]{1,11}|<[^>]*>|</?\w+>"
)
_WORDS = lazy(rb"[A-Za-z_-]+[.,;:!]?")
_PATH = lazy(
    rb"(?:~|\.{1,2})?/(?:[\w.@-]+/)*[\w@-]+\.\w{1,6}|~/\S*|\.{1,2}/\S*"
    rb"|/(?:home|etc|root|opt|var|usr|run|mnt|data|tmp|scratch|secrets?)(?:/[\w.@-]+)*/?"
)
_PASSWORD = lazy(rb"(?i:passw|pwd|passphrase|secret)|[A-Z0-9]_PASS\W")
# `opt_adamw_beta_1`: words with a number each at most.
_NAMED = lazy(rb"[A-Za-z]+\d{0,3}(?:[_.-](?:[A-Za-z]+\d{0,3}|\d{1,4}))+")
_FOLDER = lazy(rb"(?:^|[^A-Za-z])(?:OLD)?PWD\W")
_LEAST_ENTROPY = 3.0  # bits a character; gitleaks asks 3 for most of its kinds
_LEAST_RANDOM = 16


@dataclass(frozen=True, slots=True)
class SecretKind:
    """One kind of secret: see the head of `secret_kinds.yaml`."""

    id: str
    words: tuple[bytes, ...]
    pattern: str
    unless: str
    block: bool
    behind: str


@lru_cache(maxsize=1)
def secret_kinds() -> tuple[SecretKind, ...]:
    """Return all kinds, in the order in which they are looked for."""
    return tuple(
        SecretKind(
            one["id"],
            tuple(str(word).encode() for word in one["words"]),
            one["pattern"],
            one.get("unless", ""),
            bool(one.get("block")),
            one.get("behind", ""),
        )
        for one in load_cached(KINDS_FILE)["kinds"]
    )


def without_cuts(value: Any) -> Any:
    """Return examples of secrets as a job would print them."""
    if isinstance(value, str):
        return value.replace(CUT, "")
    return [without_cuts(one) for one in value]


# In a text that is at hand as a whole, the last letters of a key are told by the line that ends it.
_LAST_OF_KEY = lazy(
    rb"[A-Za-z0-9+/]{1,64}={0,2}"
    rb"(?=[ \t\r]*\n[^\n]{0,200}---- ?-?END[ A-Z0-9_-]{0,100}PRIVATE KEY)"
)


def redact(text: str) -> str:
    """Return `text`, one line or many, with every secret that is recognised replaced by `[redacted]`."""
    raw = text.encode("utf-8", "surrogatepass")
    if "\n" in text:
        from rerail.log_parsers.redactor import Redactor

        masked = _LAST_OF_KEY.sub(_MASK, Redactor().feed(raw))
    else:
        masked = redact_line(raw)
    return text if masked == raw else masked.decode("utf-8", "surrogatepass")


def redact_all(value: Any) -> Any:
    """Return a JSON-like value with the secrets in its strings masked; keys stay."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: _redact_named(key, one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [redact_all(one) for one in value]
    return value


def _redact_named(key: Any, value: Any) -> Any:
    """Mask a value by its key as well: `{"password": "x"}` is one secret in two strings."""
    if not isinstance(value, str) or not isinstance(key, str) or len(value) > 4_000:
        return redact_all(value)
    whole = f"{key}={value}"
    masked = redact(whole)
    return value if masked == whole else masked.removeprefix(f"{key}=")


def redact_line(raw: bytes) -> bytes:
    """Return one line with its secrets masked; the same object where there is none."""
    lower = raw.lower()
    for at in sorted({at for word, at in _words() if word in lower}):
        raw = compiled(at).sub(_masker(secret_kinds()[at].unless), raw)
    return raw


@lru_cache(maxsize=1)
def _words() -> tuple[tuple[bytes, int], ...]:
    """Return the words that kinds need, each with the place of its kind."""
    return tuple((word, at) for at, kind in enumerate(secret_kinds()) for word in kind.words)


@lru_cache(maxsize=512)
def compiled(at: int) -> re.Pattern[bytes]:
    """Return the pattern of a kind by its place; compiled when it is first needed."""
    return kept_pattern(secret_kinds()[at].pattern.encode(), re.MULTILINE)


@lru_cache(maxsize=16)
def _masker(unless: str) -> Any:
    def replace(match: re.Match[bytes]) -> bytes:
        whole = match[0]
        if "v" not in match.re.groupindex:
            return whole if unless == "random" and not looks_random(whole) else _MASK
        value = match["v"]
        if value is None or _stays(unless, match, value):
            return whole
        start, stop = match.start("v") - match.start(), match.end("v") - match.start()
        return whole[:start] + _MASK + whole[stop:]

    return replace


def _stays(unless: str, match: re.Match[bytes], value: bytes) -> bool:
    bare = value.strip(b"\"'\\")
    if bare[:1] in (b"b", b"r", b"u") and value[1:2] in (b'"', b"'", b"\\"):
        bare = bare[1:].strip(b"\"'\\")
    if not bare or _NOTHING.fullmatch(bare):
        return True
    if unless == "random":
        return not looks_random(bare)
    if unless == "word":
        return _WORDS.fullmatch(bare) is not None
    if unless == "plain":
        return _PLAIN.fullmatch(bare) is not None
    if unless == "plain-or-path":
        return (_PLAIN.fullmatch(bare) is not None and not _PASSWORD.search(whole_of(match))) or (
            _PATH.fullmatch(bare) is not None
        )
    if unless == "plain-but-passwords":
        if _PATH.fullmatch(bare) or (bare.startswith(b"/") and _FOLDER.search(match["n"])):
            return True
        # Counts, booleans and plain words behind such a name are settings, not secrets ("consumed
        # tokens: 26022182912", "token: True"). Passwords are masked whatever they hold.
        return _PLAIN.fullmatch(bare) is not None and not _PASSWORD.search(match["n"])
    return False


def whole_of(match: re.Match[bytes]) -> bytes:
    """Return what stands before the value: the name of a flag or variable."""
    return match[0][: match.start("v") - match.start()]


def looks_random(value: bytes) -> bool:
    """Tell whether a value was drawn by chance rather than named: length, digits, letters, entropy."""
    if (
        len(value) < _LEAST_RANDOM
        or _NAMED.fullmatch(value)
        or not (re.search(rb"\d", value) and re.search(rb"[A-Za-z]", value))
    ):
        return False
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares) >= _LEAST_ENTROPY
