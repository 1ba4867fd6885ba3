"""Which rank is the slow one, by what frameworks report of all of them, beside what a machine shows of a device."""

from __future__ import annotations

from collections.abc import Iterator

from rerail.domain.evidence import LogLine
from rerail.knowledge_base.phrases import phrase, phrase_in_bytes
from rerail.knowledge_base.placement.one_node import GPUS_OF_A_NODE
from rerail.knowledge_base.placement.place import Answer, Asked
from rerail.knowledge_base.taxonomy import has

_MOST_LINES = 20_000
_OFTEN = 3  # reports of one slowest rank
_MEASURES = 2  # a rank that is last by two of them, time and throughput for example, is no accident of one report
_AGREED = 2  # the last reports, which all name one rank
_LEAST_LISTED, _APART = 4, 1.3  # ranks of a list, and how far the slow one is above all others


def named_slow(asked: Asked) -> Answer[int] | None:
    """The one rank that the framework's own reports name as the slowest, where it runs on the host of what is slow.

    Where nothing tells who runs on that host and where the rank does, several reports must name it, or one that shows
    its GPU throttled, or two a rank that may sit at the GPU that is slow; where no host is told at all, several measures.
    """
    node = asked.event.fields.get("node") or asked.line.node
    if not has(asked.event.leaf, "slow"):
        return None
    from rerail.log_parsers.straggler_lines import WORDS, straggler_notes

    told: dict[int, LogLine] = {}
    measures: set[str] = set()
    reports, throttled = 0, False
    for view in asked.case.views:
        for number in view.numbers[:_MOST_LINES]:
            line = view.line(number) if any(w in view.survey.kept[number] for w in WORDS) else None
            notes = straggler_notes([(number, line.text)]) if line is not None else []
            reports += bool(notes)
            measures |= {note.metric for note in notes}
            throttled = throttled or any(note.throttled for note in notes)
            for note in notes:
                if line is not None:
                    told.setdefault(note.rank, line)
    apart = None if told else _far_behind(asked) or _named_slowest(asked)
    if apart is not None:
        told, reports = dict([apart]), _OFTEN
    if len(told) != 1:
        return None
    ((rank, line),) = told.items()
    there = asked.identities.ranks_on(node) if node is not None else []
    if rank in there:
        return Answer(rank, f"the framework names this rank of {node} as the slowest", line)
    if there or (node is not None and rank in asked.identities.node_of_rank):
        return None
    if node is None and len(measures) >= _MEASURES:
        return Answer(
            rank, "the framework names this rank as the slowest by several measures", line
        )
    least = _AGREED if asked.place.gpu is not None and _may_have_it(asked, rank) else _OFTEN
    if node is None or (reports < least and not throttled):
        return None
    how = "throttled" if throttled else "again and again"
    return Answer(rank, f"the framework names this rank as the slowest, {how}", line)


def _far_behind(asked: Asked) -> tuple[int, LogLine] | None:
    """The rank that Megatron's timers of all ranks show far behind its peers, where it may be on the GPU that is slow."""
    for view in asked.case.views:
        if not any(asked.case.lines_with(view, "timers-of-all-ranks")):
            continue
        from rerail.tools.localize.megatron_timers import outlier

        one = outlier((number, view.text(number) or "") for number in view.numbers[:_MOST_LINES])
        line = view.line(one.line) if one is not None else None
        if one is not None and line is not None and _may_have_it(asked, one.rank):
            return one.rank, line
    return None


def _named_slowest(asked: Asked) -> tuple[int, LogLine] | None:
    """The rank that the last reports all name as the slowest, where it may be on the GPU that the machine shows slow."""
    if asked.place.gpu is None:
        return None
    reports = list(_reports(asked))[-_AGREED:]
    ranks = {rank for rank, _, _ in reports}
    listed = any(of_all for _, _, of_all in reports)
    if len(ranks) != 1 or not (listed or len(reports) == _AGREED):
        return None
    rank, line, _ = reports[-1]
    return (rank, line) if _may_have_it(asked, rank) else None


def _may_have_it(asked: Asked, rank: int) -> bool:
    """Tell whether a rank may sit at the GPU that the machine shows slow, where it says which that is."""
    held = asked.identities.per_node or GPUS_OF_A_NODE
    return asked.place.gpu in (None, rank % held)


def _reports(asked: Asked) -> Iterator[tuple[int, LogLine, bool]]:
    """Yield the rank that a report calls the slowest, its line, and whether the report lists all ranks' times."""
    near = phrase_in_bytes("near-slowest-rank")
    for view in asked.case.views:
        for number in view.numbers[:_MOST_LINES]:
            line = view.line(number) if near.search(view.survey.kept[number]) else None
            if line is None:
                continue
            if told := phrase("slowest-rank").search(line.text):
                yield int(told["rank"]), line, False
            elif (slowest := _slowest_listed(line.message)) is not None:
                yield slowest, line, True


def _slowest_listed(message: str) -> int | None:
    """Return the rank whose time in a list of all is far above the others', or None."""
    pairs = phrase("time-of-a-rank").finditer(message)
    times = {int(one["rank"]): float(one["value"]) for one in pairs}
    if len(times) < _LEAST_LISTED:
        return None
    *others, last = sorted(times, key=times.__getitem__)
    return last if times[last] >= _APART * times[others[-1]] > 0 else None
