"""Cuts a model's answer into sentences as it arrives, and checks the citations of each.

`[L3]` cites a line that was shown, `[2]` the result of a tool call. A sentence that only repeats what
it cites stands as it is; what says more is marked as cited and not verified; what cites nothing, or
holds a number or name that does not stand there, as unverified; an instruction as the model's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from rerail.assistant.agent.grounding import unsupported
from rerail.assistant.agent.plain import plain_line
from rerail.assistant.agent.restated import instructs, quotes
from rerail.assistant.agent_tools.shown import Shown
from rerail.assistant.chat.lines import Line
from rerail.domain.incident import SnapshotLine

_CITED = re.compile(r"\[((?:L?\d+)(?:\s*,\s*L?\d+)*)\]")
# A citation may stand before or behind the full stop; an abbreviation is no end.
_END = re.compile(r"(?<=[.!?\]])\s+(?!\[)|\n+")
_STOP_THEN_CITED = re.compile(r"[.!?]\s*(?:\[[^\]\n]*\]\s*)+$")
_SHORT = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|no|cf)|\b[A-Za-z])\.$", re.IGNORECASE)


def sentences(chunks: Iterable[str]) -> Iterator[str]:
    """Yield whole sentences from a stream of text."""
    held = ""
    for chunk in chunks:
        held += chunk
        while (cut := _first_end(held)) is not None:
            sentence, held = held[: cut[0]].strip(), held[cut[1] :]
            if sentence:
                yield sentence
    if held.strip():
        yield held.strip()


def _first_end(text: str) -> tuple[int, int] | None:
    for match in _END.finditer(text):
        # Text behind the blank tells whether a citation follows the full stop.
        if match.end() == len(text) and "\n" not in match[0]:
            return None
        before = text[: match.start()]
        if "\n" in match[0]:
            return match.start(), match.end()
        if before.endswith("]"):
            if _STOP_THEN_CITED.search(before):
                return match.start(), match.end()
        elif not _SHORT.search(before):
            return match.start(), match.end()
    return None


def checked(sentence: str, shown: Shown, results: Mapping[int, str]) -> Line:
    """Return a sentence as it may be printed: as it is, or dim and marked as unverified."""
    text = plain_line(sentence)
    if instructs(_CITED.sub("", text)) or instructs(sentence):
        return Line(f'unverified: the model suggests: "{text}"', "dim")
    names = [n.strip() for group in _CITED.findall(sentence) for n in group.split(",")]
    if not names:
        return Line(f"unverified: {text}", "dim")
    sources: list[SnapshotLine] = []
    for name in names:
        if name.startswith("L"):
            line = shown.find(name)
            if line is None:
                return Line(f"unverified: {text} ({name} was not shown)", "dim")
            sources.append(line)
        elif int(name) in results:
            sources.append(SnapshotLine(file=f"[{name}]", number=1, text=results[int(name)]))
        else:
            return Line(f"unverified: {text} (there is no result {name})", "dim")
    bare = _CITED.sub("", text)
    unknown = unsupported(bare, sources)
    if unknown:
        return Line(f"unverified: {text} ({unknown[0]} does not stand there)", "dim")
    return Line(text if quotes(bare, sources) else f"{text} (cited, not verified)")
