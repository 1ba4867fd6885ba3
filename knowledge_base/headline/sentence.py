"""The headline: who failed, at what, what it did to the others, and since when.

Everything that is said comes from the verdict; a slot that the evidence does not fill leaves its
part of the sentence out.
"""

from __future__ import annotations

from rerail.domain.diagnosis import FirstFault, Status, Suspects
from rerail.domain.evidence import LogLine, Observation, Role
from rerail.knowledge_base.case import Case
from rerail.knowledge_base.causality.cost import gpus_of
from rerail.knowledge_base.causality.numeric import against_forecast
from rerail.knowledge_base.causality.verdict import Verdict
from rerail.knowledge_base.headline.templates import (
    Effect,
    effects,
    fill,
    is_complete,
    names_somebody,
    templates,
)
from rerail.knowledge_base.placement.names import named
from rerail.knowledge_base.taxonomy import has
from rerail.late_dataclass import dataclass
from rerail.lazy_patterns import lazy
from rerail.log_parsers.tracebacks import frame_in, looks_like_exception

_LONGEST_TEXT = 110
_LONGEST_FIELD = 60
_OTHERWISE = {
    "who": "a process",
    "teller": "a process",
    "gpu": "a GPU",
    "node": "a node",
    "was": "was",
    "exception": "an exception",
}
_WHEN = "{when}"
_OUR_WORDS = frozenset({"a", "the", "one", "rank", "ranks"})
_QUOTED_PATH = lazy(r"""['"]((?:[^'"\s]*/)[^'"\s]+)['"]|: ['"]([^'"\s]+)['"]\.?$""")
# Folders of an installation: what lies in them is not the user's own code (site, PEP 370, PEP 517).
_INSTALLED = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen ", "<string>")


@dataclass(frozen=True, slots=True)
class Where:
    """The place of a first fault, as the record names it."""

    first: FirstFault | None
    suspects: Suspects


def headline(case: Case, verdict: Verdict, where: Where) -> str:
    """Return one sentence for a failure of a known type, without its full stop."""
    known = _slots(case, verdict, where)
    said = templates()[verdict.leaf or ""]
    chosen = next((one for one in said if is_complete(one.replace(_WHEN, ""), known)), said[-1])
    # Others are others than somebody: a sentence that names nobody has nothing to say of them.
    effect = _effect(case, verdict, where) if names_somebody(chosen) else ""
    of_steps = "{times_forecast}" in chosen or "{unlike_good}" in chosen  # a step says when
    known["when"] = "" if of_steps else _since(where)
    doubt = "Not proven: " if verdict.status is Status.HYPOTHESIS else ""
    whole = chosen if _WHEN in chosen else f"{chosen}{_WHEN}"
    sentence = f"{doubt}{_capital(fill(whole, known, _OTHERWISE))}"
    return f"{sentence}; {effect}" if effect else sentence


def _slots(case: Case, verdict: Verdict, where: Where) -> dict[str, str]:
    line, found = verdict.line, verdict.observation
    known = {
        name: value.strip(" .'\"")[:_LONGEST_FIELD]
        for name, value in (found.fields if found else {}).items()
        if value and not _is_negative(value)
    }
    who, ranks = _who(verdict, where)
    known |= {
        "who": who,
        "suspect": who if verdict.ranks or verdict.nodes else "",
        "was": "were" if len(ranks) > 1 else "was",
        "node": _node(verdict, where),
        "gpu": _gpu(verdict, where),
        "teller": _few(verdict.everywhere) if verdict.everywhere else _speaker(verdict, line),
        "accused": _accused(verdict, line),
        "frame": _frame(found),
        "host": where.suspects.nodes[0] if where.suspects.nodes else "",
        "times_forecast": _times_forecast(case, verdict),
        "silence": verdict.silence,
        "gone": who if any(f.line == line and not f.told for f in verdict.exits) else "",
        "unlike_good": verdict.numeric[0].unlike_good if verdict.numeric else "",
    }
    if line is not None:
        known["exception"] = _exception(line)
        known["path"] = _file(known.get("path") or _path(line))
        known["words"] = "" if known["exception"] else _clipped(line.message)
    return known


def _who(verdict: Verdict, where: Where) -> tuple[str, list[int]]:
    """The processes held responsible; where nobody is, the one whose line is the first fault."""
    first = where.first
    ranks = list(verdict.ranks or verdict.everywhere)
    if not ranks and first is not None and first.rank is not None:
        ranks = [first.rank]
    nodes = _nodes(verdict, where)
    on = f" on {nodes[0]}" if len(nodes) == 1 else ""
    if ranks:
        return _few(ranks) + on, ranks
    return (f"a process{on}" if on else ""), ranks


def _nodes(verdict: Verdict, where: Where) -> list[str]:
    """The nodes held responsible, else that of the first fault's line."""
    first = where.first
    return verdict.nodes or ([first.node] if first is not None and first.node else [])


def _few(ranks: list[int]) -> str:
    if len(ranks) > 4 and ranks != list(range(ranks[0], ranks[-1] + 1)):
        return f"{len(ranks)} ranks ({', '.join(map(str, ranks[:3]))}, ...)"
    return named(ranks)


def _node(verdict: Verdict, where: Where) -> str:
    nodes = _nodes(verdict, where)
    if len(nodes) == 1:
        return nodes[0]
    if len(nodes) > 1:
        return f"one of {', '.join(nodes[:4])}"
    rank = _only_rank(verdict, where)
    return f"the node of rank {rank}" if rank is not None else ""


def _gpu(verdict: Verdict, where: Where) -> str:
    nodes = _nodes(verdict, where)
    gpu = verdict.gpu if verdict.gpu is not None else verdict.pci
    rank = _only_rank(verdict, where)
    on = f" of {nodes[0]}" if len(nodes) == 1 else ""
    if gpu is not None:
        name = f"GPU {gpu}{on}"
        return f"{name} (rank {rank})" if rank is not None else name
    if rank is not None:
        return f"the GPU of rank {rank}" + (f" on {nodes[0]}" if len(nodes) == 1 else "")
    return f"a GPU{on}" if on else ""


def _only_rank(verdict: Verdict, where: Where) -> int | None:
    if len(verdict.ranks) == 1:
        return verdict.ranks[0]
    return where.first.rank if not verdict.ranks and where.first is not None else None


def _speaker(verdict: Verdict, line: LogLine | None) -> str:
    if line is None:
        return ""
    on = f" on {line.node}" if line.node else ""
    rank = line.rank
    if rank is None and [verdict.identities.rank_of(line)] == verdict.ranks:
        rank = verdict.ranks[0]  # the line's own process
    return f"rank {rank}{on}" if rank is not None else (f"a process{on}" if on else "")


def _accused(verdict: Verdict, line: LogLine | None) -> str:
    """Whom the speaker of the line accuses, where that is somebody else."""
    spoke = None if line is None else line.rank
    own = None if line is None else verdict.identities.rank_of(line)
    if verdict.ranks and verdict.ranks not in ([spoke], [own]):
        on = f" on {verdict.nodes[0]}" if len(verdict.nodes) == 1 else ""
        return _few(verdict.ranks) + on
    if (
        not verdict.ranks
        and len(verdict.nodes) == 1
        and (line is None or line.node != verdict.nodes[0])
    ):
        return verdict.nodes[0]
    return ""


def _frame(found: Observation | None) -> str:
    """The innermost frame of the user's own code in the traceback above the line."""
    if found is None:
        return ""
    for line in reversed(found.lines):
        frame = frame_in(line.message)
        if frame is not None and not any(part in frame[0] for part in _INSTALLED):
            return f"{frame[0].rsplit('/', 1)[-1]}:{frame[1]} in {frame[2]}"
    return ""


def _times_forecast(case: Case, verdict: Verdict) -> str:
    """How many times the forecast a step takes, where the run was slow from its first step on."""
    seen = against_forecast(case) if has(verdict.leaf, "slow") else None
    return f"{seen.ratio:.2f}" if seen is not None and seen.slower_from_start else ""


def _exception(line: LogLine) -> str:
    return _clipped(line.message) if looks_like_exception(line.message) else ""


def _clipped(text: str) -> str:
    text = " ".join(text.split()).rstrip(" .:")
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3].rstrip() + "..."


def _is_negative(value: str) -> bool:
    """Tell whether a number is one that programs write for none: step -1."""
    return value.startswith("-") and value[1:].isdigit()


def _path(line: LogLine) -> str:
    match = _QUOTED_PATH.search(line.message)
    return "" if match is None else (match[1] or match[2])[:_LONGEST_FIELD]


def _file(path: str) -> str:
    """Return a path; nothing where it is host/name:tag, the name of an image."""
    is_image = ":" in path and "://" not in path and not path.startswith(("/", ".", "~"))
    return "" if is_image else path


def _effect(case: Case, verdict: Verdict, where: Where) -> str:
    """What the lines of the other ranks say of them, if they say one thing."""
    own = set(verdict.ranks or verdict.everywhere)
    if not own and verdict.line is not None and verdict.line.rank is not None:
        own = {verdict.line.rank}
    cascades = case.with_role(Role.CASCADE)
    if not own or not cascades or has(verdict.leaf, "whole_run"):
        return ""
    marked = {mark for o in cascades for mark in o.marks}
    types = {o.leaf for o in cascades}
    effect = next(e for e in effects() if _fits(e, marked, types))
    told = {o.line.rank for o in cascades if o.line.rank is not None}
    others = sorted((told | case.facts.ranks({o.rule_id for o in cascades})) - own)
    if not others:
        return ""
    size = gpus_of(verdict)
    all_others = size is not None and len(others) == size - len(own) > 1
    if len(others) == 1:
        who = f"rank {others[0]}"
    else:
        who = f"{'the ' if all_others else ''}{len(others)} other ranks"
    return effect.says.format(others=who)


def _fits(effect: Effect, marks: set[str], types: set[str | None]) -> bool:
    if effect.trait:
        return any(has(leaf, effect.trait) for leaf in types)
    return not effect.mark or effect.mark in marks


def _since(where: Where) -> str:
    first = where.first
    if first is None or not first.time:
        return ""
    return f" at {first.time[11:19]} UTC"


def _capital(text: str) -> str:
    """Begin the sentence with a capital; the name of a machine stays as it is written."""
    return text[0].upper() + text[1:] if text.split()[0] in _OUR_WORDS else text
