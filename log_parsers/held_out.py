"""Words that say that a step or a loss is that of held-out data: it is never training's."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from rerail.cached_yaml import load_cached
from rerail.kept_patterns import kept_pattern

_PATH = Path(__file__).with_name("step_mining.yaml")
_NEAR = 60  # bytes in front of a number that say what it is of


def counts_held_out(front: bytes) -> bool:
    """Tell whether the words in front of a counter, up to its first letters, say that it counts held-out data."""
    return _patterns()[0].search(front[-_NEAR:]) is not None


def measures_held_out(front: bytes) -> bool:
    """Tell whether what stands in front of a value, its name included, says that it was measured on held-out data."""
    return _patterns()[1].search(front[-_NEAR:]) is not None


def hints_at_held_out(lower: bytes) -> bool:
    """Tell whether a line in small letters holds any of the words, before it is looked at more closely."""
    return any(word in lower for word in _hints())


@lru_cache(maxsize=1)
def _hints() -> tuple[bytes, ...]:
    return tuple(word.encode() for word in load_cached(_PATH)["held_out"]["hints"])


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    words = load_cached(_PATH)["held_out"]
    # A value of a key (the name of a run, say) counts only under a key of parts of the data.
    said = rf"(?:(?<![\w./='\"-])|(?:{words['keys']})['\"]?\s*[:=]\s*['\"]?)(?:{words['words']})"
    # "test-node step 5" is a host.
    said += r"(?![-.]\w)"
    parts, between = words["parts"], words["between"]
    counter = rf"(?:[ _-](?:{parts}))?[^A-Za-z0-9]{{1,6}}(?:(?:{between})\s+)?(?:global[ _])?[A-Za-z]{{0,2}}\Z"
    value = r"[^A-Za-z0-9]{1,6}(?:[A-Za-z]+[ _-])?[A-Za-z]+[^A-Za-z0-9]*\Z"
    return kept_pattern(f"(?i){said}{counter}".encode()), kept_pattern(
        f"(?i){said}{value}".encode()
    )
