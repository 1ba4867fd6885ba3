"""Lines in which a program says who it is: rank, host and process of one and the same process.

nccl-tests and Open MPI's `--report-bindings` print them in fixed words; training scripts print
`rank=5 ... hostname=n07 ... pid=3112` in their own order. All three must stand on one line, since a
line with two of them is often about two processes.
"""

from __future__ import annotations

import re

from rerail.knowledge_base.causality.processes import Identity

WORDS = (
    rb"MCW rank|[Rr]ank \d{1,6} (?:is not )?bound|Pid +\d|hostname|host:|host=|New trial runner|"
    rb"ank \d{1,6} (?:out )?of \d{1,6} "
)
# nccl-tests, src/common.cu: the bus alone in older versions, the address without its function in newer ones.
_NCCL_TESTS = re.compile(
    r"#\s{1,4}Rank\s{1,6}(?P<rank>\d{1,6})(?: Group\s{1,4}\d{1,6})? Pid\s{1,8}(?P<pid>\d{1,8}) on\s{1,40}"
    r"(?P<node>[\w.-]{1,80}) device\s{1,4}(?P<gpu>\d{1,3}) \[(?P<bus>[0-9a-fA-Fx:]{4,12})\]"
)
_BOUND = re.compile(
    r"\[(?P<node>[\w.-]{1,80}):\d{1,8}\] (?:MCW r|R)ank (?P<rank>\d{1,6}) (?:is not )?bound\b"
)
# What the tutorials of Princeton and of MPI print first.
_HELLO = re.compile(
    r"Hello from rank (?P<rank>\d{1,6}) of \d{1,6} on (?P<node>[\w.-]{1,80}) where there are |"
    r"Hello world from processor (?P<node2>[\w.-]{1,80}), rank (?P<rank2>\d{1,6}) out of \d{1,6} processors"
)
_RANK = re.compile(r"\b(?:global_?)?rank['\"]?\s?[:=]\s?(?P<value>\d{1,6})\b", re.IGNORECASE)
_HOST = re.compile(r"\bhost(?:name)?['\"]?\s?[:=]\s?['\"]?(?P<value>[A-Za-z0-9][\w.-]{1,80})\b")
_PID = re.compile(r"\bpid['\"]?\s?[:=]\s?(?P<value>\d{1,8})\b", re.IGNORECASE)
_PAIR = r"['\"]?[\w.-]{1,40}['\"]?\s?[:=]\s?['\"]?[^\s,|;'\"]{1,100}['\"]?"
_PAIRS = re.compile(rf"(?:{_PAIR}[\s,|;]{{1,4}}){{2,12}}{_PAIR}")


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
    if match := _HELLO.search(text):
        return Identity(
            rank=int(match["rank"] or match["rank2"]), node=match["node"] or match["node2"]
        ), None
    rank, host, pid = _RANK.search(text), _HOST.search(text), _PID.search(text)
    if rank is None or host is None or pid is None:
        return None
    found = (rank, host, pid)
    between = text[min(match.start() for match in found) : max(match.end() for match in found)]
    if not _PAIRS.fullmatch(between):
        return None  # a sentence, in which one process may speak of another
    return Identity(rank=int(rank["value"]), node=host["value"], pid=int(pid["value"])), None
