"""Slurm's compact node lists: `gpu[001-003,7],login1` and back to single names.

A hook for which Slurm waits reads them: without `re`, whose import takes as long as the whole hook.
"""

from __future__ import annotations

from rerail.errors import ClusterError

LONGEST_NAME = 253
MOST_NODES = 100_000


def is_node_name(text: str) -> bool:
    """Return whether a text is safe to hand to a scheduler's command as a node name."""
    letters = text.replace(".", "").replace("_", "").replace("-", "")
    plain = letters.isascii() and letters.isalnum()
    return plain and text[0] not in "._-" and len(text) <= LONGEST_NAME


def expand(text: str) -> tuple[str, ...]:
    """Return the single names of a node list, in its order; placeholders give an empty tuple.

    Raises:
        ClusterError: The list is malformed, or names more than 100,000 nodes.
    """
    if text.strip() in ("", "None assigned", "(null)", "None", "N/A"):
        return ()
    names: list[str] = []
    for part in _split(text.strip()):
        names += _expand_one(part)
        if len(names) > MOST_NODES:
            raise ClusterError(f"node list of more than {MOST_NODES} names", subject=text[:80])
    wrong = [name for name in names if not is_node_name(name)]
    if wrong:
        raise ClusterError(f"{wrong[0]!r} is no node name", subject=text[:80])
    return tuple(names)


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for place, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise ClusterError(f"malformed node list {text[:80]!r}", subject=text[:80])
        if char == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    if depth:
        raise ClusterError(f"malformed node list {text[:80]!r}", subject=text[:80])
    return [*parts, text[start:]]


def _expand_one(part: str) -> list[str]:
    opened = part.find("[")
    if opened < 0:
        return [part]
    closed = part.index("]")
    head, inner, tail = part[:opened], part[opened + 1 : closed], _expand_one(part[closed + 1 :])
    numbers: list[str] = []
    for piece in inner.split(","):
        start, dash, end = piece.partition("-")
        written = start + end
        if not start or bool(end) != bool(dash) or not (written.isascii() and written.isdecimal()):
            raise ClusterError(f"malformed node list {part[:80]!r}", subject=part[:80])
        first, last = int(start), int(end or start)
        if last - first > MOST_NODES:
            raise ClusterError(f"node list of more than {MOST_NODES} names", subject=part[:80])
        numbers += [str(number).zfill(len(start)) for number in range(first, last + 1)]
    return [head + number + rest for number in numbers for rest in tail]
