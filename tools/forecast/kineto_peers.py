"""With whom each send and receive of a trace was: batched ones end together and cannot be told apart by time.

PyTorch records the partner as an input of `c10d::send` and `c10d::recv_` where the profiler records shapes.
With gloo each request has a span of its own (`gloo:send`, `gloo:recv`), in the order of these ops.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rerail.tools.profiles.trace_json import TraceStream

_ASKED = {"c10d::send": True, "c10d::recv_": False}
SPANS = {"gloo:send": True, "gloo:recv": False}
_PARTNER = 2  # among the inputs: tensors, group, partner, tag

Request = tuple[float, bool, int]
"""Begin in microseconds, true for a send, and the partner's rank."""


def requests_of(path: Path) -> list[Request] | None:
    """Return the spans of sends and receives of a gloo trace with their partners, by begin.

    None where partners were not recorded, or there are no such spans.

    Raises:
        EvidenceError: the file is no trace.
    """
    asked: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
    spans: dict[bool, list[float]] = {True: [], False: []}
    for events in TraceStream(path, _decoded).pieces():
        for name, begin, partner in events:
            if name in _ASKED:
                asked[_ASKED[name]].append((begin, partner))
            else:
                spans[SPANS[name]].append(begin)
    out: list[Request] = []
    for sends, begins in spans.items():
        ops = sorted(asked[sends])
        if len(ops) != len(begins) or any(partner < 0 for _, partner in ops):
            return None
        out += [(at, sends, who) for at, (_, who) in zip(sorted(begins), ops, strict=True)]
    return sorted(out) or None


def _decoded(text: bytes) -> list[Any]:
    """Return (name, begin, partner or -1) of the events that tell of sends and receives."""
    out = []
    for row in json.loads(text):
        if not isinstance(row, dict):
            raise ValueError("an event is not an object")
        name = row.get("name")
        if row.get("ph") == "X" and (name in _ASKED or name in SPANS):
            args = row.get("args")
            inputs = args.get("Concrete Inputs", []) if isinstance(args, dict) else []
            told = str(inputs[_PARTNER]) if len(inputs) > _PARTNER else ""
            out.append((name, float(row["ts"]), int(told) if told.isdecimal() else -1))
    return out
