"""Flight-recorder dumps in, one verdict out.

`diagnose_dumps(paths)` reads and judges; `load_dumps` and `judge` are its two halves.
`looks_like_flight_recorder` recognises a dump by its first bytes and its name.
"""

from __future__ import annotations

from rerail.log_parsers.flight_recorder.judge import diagnose_dumps, judge
from rerail.log_parsers.flight_recorder.loader import (
    Limits,
    load_dumps,
    looks_like_flight_recorder,
    rank_in_name,
)
from rerail.log_parsers.flight_recorder.model import Dump, DumpProblem, Entry, ProcessGroup
from rerail.log_parsers.flight_recorder.verdict import DumpEvidence, UnknownRank, Verdict

__all__ = [
    "Dump",
    "DumpEvidence",
    "DumpProblem",
    "Entry",
    "Limits",
    "ProcessGroup",
    "UnknownRank",
    "Verdict",
    "diagnose_dumps",
    "judge",
    "load_dumps",
    "looks_like_flight_recorder",
    "rank_in_name",
]
