"""Which rank sits at which local rank of a host, as launchers list it.

DeepSpeed's launcher lists the ranks of every host in the order of its GPUs, and shows each process
all of them; torchelastic's agent lists the ranks of its own host in the order of their local ranks.
With Ray and torchx the host is a replica's name in front of the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rerail.domain.evidence import LogLine

# torchx puts the role and the number of the replica in front, and behind it the local rank of a worker.
_REPLICA = re.compile(r"(?P<place>[a-z][\w.-]{0,60}/\d{1,5}) (?:\[(?P<local>\d{1,3})\]:)?")
# stern puts pod and container in front of every line, and nothing around them.
_STERN = re.compile(r"(?P<place>[a-z0-9][a-z0-9.-]{2,120}) [a-z][a-z0-9-]{0,60} {1,8}global_ranks=")
_OWN_RANKS = re.compile(r"\bglobal_ranks=\[(?P<ranks>\d{1,6}(?:, \d{1,6}){0,63})\]")
_ON_IT = re.compile(r"\b[Pp]rocess \d{1,9} has ")
# PyTorch's allocator counts the GPUs that its process sees.
_SEEN_GPU = re.compile(r"\bGPU (?P<gpu>\d{1,2})(?:;| has a total capacity)")
_MAPPED = re.compile(r"'(?P<node>[\w.-]{1,80})': \[(?P<ranks>\d{1,6}(?:, \d{1,6}){0,63})\]")
# Determined: a trial's container says on which agent it runs; its id stands in front of every line.
_ON_AGENT = re.compile(
    r"New trial runner in \(container (?P<container>[0-9a-f]{8})[0-9a-f-]{0,40}\) on agent (?P<agent>[\w.-]{1,80}):"
)
_IN_CONTAINER = re.compile(r"\b(?P<container>[0-9a-f]{8}) (?:\[rank=\d{1,6}\] )?\|\| ")


@dataclass(slots=True)
class Seats:
    """The ranks of each place in the order of local ranks; `by_gpu` where that is the order of GPUs too."""

    _ranks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    by_gpu: set[str] = field(default_factory=set)
    _agents: dict[str, str] = field(default_factory=dict)

    def learn_mapping(self, text: str) -> dict[int, str]:
        """Read DeepSpeed's `global_rank_mapping=`; return the host of each rank."""
        hosts: dict[int, str] = {}
        for match in _MAPPED.finditer(text):
            self._ranks[match["node"]] = _numbers(match["ranks"])
            self.by_gpu.add(match["node"])
            hosts |= dict.fromkeys(self._ranks[match["node"]], match["node"])
        return hosts

    def learn_own(self, text: str, line: LogLine | None) -> None:
        """Read an agent's `global_ranks=[...]`; the ranks of a later round replace those of an earlier one."""
        place = _place(line)
        if place is None and line is not None and (front := _STERN.match(line.text)):
            place = front["place"]
        if place is not None and (match := _OWN_RANKS.search(text)):
            self._ranks[place] = _numbers(match["ranks"])

    def learn_agent(self, text: str) -> None:
        """Read on which agent a container of Determined runs."""
        if match := _ON_AGENT.search(text):
            self._agents[match["container"]] = match["agent"]

    def node_of(self, line: LogLine) -> str | None:
        """Return the agent whose container wrote a line, or None."""
        match = _IN_CONTAINER.search(line.text, 0, 120) if self._agents else None
        return self._agents.get(match["container"]) if match else None

    def rank_at(self, line: LogLine) -> int | None:
        """Return the rank of the process that wrote a line, by its front or by the GPU that it names, or None."""
        if line.rank is not None:
            return line.rank
        place = _place(line)
        ranks = self._ranks.get(place or "", ())
        front = _REPLICA.match(line.text) if line.node is None else None
        local = int(front["local"]) if front and front["local"] else line.local_rank
        if local is None and place in self.by_gpu:
            local = _gpu_of_its_own(line.text)
        return ranks[local] if local is not None and local < len(ranks) else None


def _gpu_of_its_own(text: str) -> int | None:
    """Return the GPU that a process out of memory names, where it can only be its own.

    The first one is also what a process calls the only one that it sees, and where other ranks of
    a host leave memory by mistake; a second process on a GPU shows such a mistake.
    """
    seen = _SEEN_GPU.search(text)
    return int(seen["gpu"]) or None if seen and len(_ON_IT.findall(text)) < 2 else None


def _place(line: LogLine | None) -> str | None:
    if line is None or line.node is not None:
        return line.node if line is not None else None
    front = _REPLICA.match(line.text)
    return front["place"] if front else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(", "))
