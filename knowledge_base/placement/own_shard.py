"""Which rank writes a part of a checkpoint, by the name of its file: each process writes the one that bears its number.

Reading tells nothing, since a process may read what others wrote.
"""

from __future__ import annotations

from rerail.knowledge_base.phrases import phrase, says
from rerail.knowledge_base.placement.place import Answer, Asked


def own_shard(asked: Asked) -> Answer[int] | None:
    """The rank whose part of a checkpoint the process was writing when it failed, where it is one of the job's ranks."""
    if asked.line.rank is not None:
        return None
    lines = [asked.line, *asked.event.lines]
    if not any(says("writes-a-file", one.message) for one in lines):
        return None
    named = {
        int(match["rank"] or match["rank2"]): one
        for one in lines
        for match in phrase("part-of-checkpoint").finditer(one.message)
    }
    if len(named) != 1:
        return None
    ((rank, line),) = named.items()
    return Answer(rank, "it writes the part of the checkpoint that bears this rank's number", line)
