"""Dumps of NCCL's example profiler plugin (NCCL_PROFILE_DUMP_FILE): collectives of one rank a file.

Source: NCCL 2.23 to 2.28, ext-profiler/example/print_event.cc: a list of asynchronous Chrome events, one a
line, with `{}` at its end. A COLL event ends when its proxy is done; without a proxy (one node) it ends
with the launch, and the kernel's own clock (KernelCh, nanoseconds) is the duration, where it was recorded.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rerail.errors import EvidenceError
from rerail.tools.localize.records import Records

_EVENT = re.compile(
    r'"cat": ?"(?:GROUP|GROUP_API|COLL|COLL_API|P2P|P2P_API|PROXY|NET)", ?"ph": ?"[be]"'
)
_HOST = re.compile(r"-(?P<host>[\w.-]+)-(?P<tid>\d+)\.(?:txt|json)$")
_US, _NS = 1e-6, 1e-9
_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8, "e4m3": 1, "e5m2": 1}


@dataclass
class _Call:
    name: str
    args: dict[str, Any]
    start_us: float
    pid: int = 0
    proxied: bool = False
    gpu: list[tuple[int, int]] = field(default_factory=list)


def looks_like_nccl_profiler(head: str) -> bool:
    """Tell whether a text is a dump of the example profiler plugin."""
    return head.lstrip()[:1] == "[" and _EVENT.search(head) is not None


def read_nccl_profiler(paths: Iterable[Path]) -> Records:
    """Read the dumps of all processes.

    Raises:
        EvidenceError: a line is no event, naming file and line, or no collective has a duration.
    """
    records = Records("nccl profiler")
    files = list(paths)
    found: list[tuple[_Call, float, str]] = []
    calls = 0
    for path in files:
        named = _HOST.search(path.name)
        for call, stop_us in _calls(path, records.notes):
            calls += 1
            took = _took(call, stop_us)
            if took is not None:
                found.append((call, took, named["host"] if named else ""))
    if not found:
        raise EvidenceError(
            f"none of {calls} collectives has a duration: without a proxy NCCL tells only its launch",
            subject=str(files[0]) if files else "",
            hint="NCCL_PROFILE_EVENT_MASK=255 records proxies and kernels",
        )  # fmt: skip
    world = _world(found)
    left = 0
    for call, took, host in found:
        args = call.args
        comm, rank = int(args["CommHash"]), int(args["Rank"])
        if comm not in world:
            left += 1
            continue
        if host:
            records.node[rank] = host
        key = records.key(f"{comm} {call.name}")
        records.kinds[key] = "world"
        size = int(args.get("Count", 0)) * _width(str(args.get("Datatype", "")))
        records.add(rank, key, int(args["SeqNum"]), -1, took, size or -1)
    if calls > len(found):
        records.notes.append(
            f"{calls - len(found)} collectives without a duration were left out (launch only)"
        )
    if left:
        records.notes.append(
            f"{left} collectives of other communicators were left out: the dumps do not say which global "
            "ranks they hold"
        )
    return records


def _world(found: list[tuple[_Call, float, str]]) -> set[int]:
    """Return the largest communicators that number the same processes alike."""
    ranks: dict[int, dict[int, tuple[str, int]]] = defaultdict(dict)
    for call, _, host in found:
        ranks[int(call.args["CommHash"])][int(call.args["Rank"])] = (host, call.pid)
    most = max(max(members) for members in ranks.values())
    largest = sorted(comm for comm, members in ranks.items() if max(members) == most)
    first = ranks[largest[0]]
    return {
        comm
        for comm in largest
        if all(first.get(rank, of) == of for rank, of in ranks[comm].items())
    }


def _calls(path: Path, notes: list[str]) -> Iterator[tuple[_Call, float]]:
    """Yield the collectives of one file with the time of their end."""
    pending: dict[tuple[str, Any], _Call] = {}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        text = line.strip().lstrip("[").rstrip("]").strip().removesuffix(",")
        if not text or text == "{}":
            continue
        try:
            event = json.loads(text)
            cat, ph = event["cat"], event["ph"]
            if cat == "COLL" and ph == "b":
                args = event["args"]
                pending["COLL", event["id"]] = _Call(
                    str(event["name"]), args, float(event["ts"]), int(event["pid"])
                )
                int(args["CommHash"]), int(args["Rank"]), int(args["SeqNum"])
            elif cat == "COLL" and ph == "e":
                call = pending.pop(("COLL", event["id"]), None)
                if call is not None:
                    yield call, float(event["ts"])
            elif pending and cat in ("PROXY", "GPU"):
                call = next(reversed(pending.values()))  # events stand inside their parent
                args = event.get("args", {})
                call.proxied |= cat == "PROXY" and "Steps" in args
                if cat == "GPU" and "StopGpuClk" in args:
                    call.gpu.append((int(args["StartGpuClk"]), int(args["StopGpuClk"])))
        except (ValueError, KeyError, TypeError):
            if number == len(lines):
                notes.append(f"{path}:{number}: the last line is cut off")
                continue
            raise EvidenceError(
                f"{path}:{number}: not an event of NCCL's profiler", subject=str(path),
                hint="NCCL_PROFILER_PLUGIN=.../libnccl-profiler.so NCCL_PROFILE_DUMP_FILE=...",
            ) from None  # fmt: skip
    if pending:
        notes.append(f"{path}: {len(pending)} collectives did not end")


def _took(call: _Call, stop_us: float) -> float | None:
    """Return seconds: of the kernel if its clock was read, else to the end of the proxy."""
    clocks = [(start, stop) for start, stop in call.gpu if stop > start > 0]
    if clocks and len(clocks) == len(call.gpu):
        return (max(stop for _, stop in clocks) - min(start for start, _ in clocks)) * _NS
    if call.proxied and stop_us > call.start_us:
        return (stop_us - call.start_us) * _US
    return None


def _width(datatype: str) -> int:
    return next((size for end, size in _BYTES.items() if datatype.endswith(end)), 0)
