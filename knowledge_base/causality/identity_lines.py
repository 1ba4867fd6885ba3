"""Lines in which a program says who it is: rank, host and process of one and the same process.

nccl-tests and Open MPI's `--report-bindings` print them in fixed words; training scripts print
`rank=5 ... hostname=n07 ... pid=3112` in their own order. All three must stand on one line, since a
line with two of them is often about two processes.
"""

from __future__ import annotations

import re

from rerail.knowledge_base.causality.processes import Identity

WORDS = rb"MCW rank|[Rr]ank \d{1,6} (?:is not )?bound|Pid +\d|hostname|host:|host="
# nccl-tests, src/common.cu: the bus alone in older versions, the address without its function in newer ones.
_NCCL_TESTS = re.compile(
    r"#\s{1,4}Rank\s{1,6}(?P<rank>\d{1,6})(?: Group\s{1,4}\d{1,6})? Pid\s{1,8}(?P<pid>\d{1,8}) on\s{1,40}"
    r"(?P<node>[\w.-]{1,80}) device\s{1,4}(?P<gpu>\d{1,3}) \[(?P<bus>[0-9a-fA-Fx:]{4,12})\]"
)
_BOUND = re.compile(
    r"\[(?P<node>[\w.-]{1,80}):\d{1,8}\] (?:MCW r|R)ank (?P<rank>\d{1,6}) (?:is not )?bound\b"
)
_RANK = re.compile(r"\b(?:global_?)?rank['\"]?\s?[:=]\s?(?P<value>\d{1,6})\b", re.IGNORECASE)
_HOST = re.compile(r"\bhost(?:name)?['\"]?\s?[:=]\s?['\"]?(?P<value>[A-Za-z0-9][\w.-]{1,80})\b")
_PID = re.compile(r"\bpid['\"]?\s?[:=]\s?(?P<value>\d{1,8})\b", re.IGNORECASE)


def identity_in(text: str) -> tuple[Identity, str | None] | None:
    """Return the process that a line introduces, and the PCI address of its GPU where the line has it, or None."""
    if match := _NCCL_TESTS.search(text):
        bus = match["bus"]
        known = Identity(
            rank=int(match["rank"]),
            node=match["node"],
            gpu=int(match["gpu"]),
            pid=int(match["pid"]),
        )
        return known, f"{bus[2:]}:00" if bus.startswith("0x") else bus
    if match := _BOUND.search(text):
        # The process id is that of the daemon that started it.
        return Identity(rank=int(match["rank"]), node=match["node"]), None
    rank, host, pid = _RANK.search(text), _HOST.search(text), _PID.search(text)
    if rank is None or host is None or pid is None:
        return None
    return Identity(rank=int(rank["value"]), node=host["value"], pid=int(pid["value"])), None
