"""What the kernel log of a node holds against it, for one attempt of a job.

Only lines that are dated into the attempt and that name no other host are judged: a fault of last
week, or of a neighbour whose lines went into the same file, is no reason to drain a node.
"""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from rerail.assistant.pipeline import diagnose_paths
from rerail.domain.diagnosis import Action, Layer, Outcome
from rerail.errors import RerailError
from rerail.log_parsers.timestamps import WALL, Stamp, find_stamp
from rerail.recovery.policy import OWNER_MUST_ACT
from rerail.recovery.situation import Attested
from rerail.tools.clusters.attempt_span import AttemptSpan

HARDWARE = (Action.DRAIN_NODE, Action.EXCLUDE_NODE)
EARLY_S = 60.0
AFTER_S = 120.0
"""How long after the end of the attempt the kernel may still write down what ended it."""
_HOST = re.compile(r"\s+(?P<host>[\w.-]+)\s+kernel:")
_ZONE = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$")
_EPOCH = re.compile(r"[\d.]+(?:e\+09)?$")


def accused_by_kernel(
    kernel_log: Path, span: AttemptSpan, node: str
) -> tuple[Attested | None, str]:
    """Return the first fault of the machine during the attempt, and what was left out, if anything.

    A line without a zone is in the local time of this host, as syslog writes it.

    Raises:
        OSError: The file cannot be read.
    """
    if span.attempt.start is None:
        return None, f"{kernel_log.name}: no witness, the start of the attempt is not known"
    strangers: set[str] = set()
    undated = 0
    kept: list[str] = []
    with kernel_log.open(encoding="utf-8", errors="replace") as lines:
        for line, at, host in dated_lines(lines, span):
            if not of_host(host, node):
                strangers.add(host)
            elif at is None:
                undated += 1
            elif at:
                kept.append(line)
    left = []
    if strangers:
        left.append(f"lines of {', '.join(sorted(strangers)[:3])} are not held against {node}")
    if undated and not kept:
        left.append("lines without date and time are no witness (dmesg -T or syslog writes them)")
    said = f"{kernel_log.name}: {'; '.join(left)}" if left else ""
    return (_judged(kept, node) if kept else None), said


def dated_lines(lines: Iterator[str], span: AttemptSpan) -> Iterator[tuple[str, bool | None, str]]:
    """Give each line, whether it is of the attempt (None: undated), and the host that it names.

    A line without a stamp belongs to the stamped one above it.
    """
    attempt = span.attempt
    first = span.first_s(EARLY_S) or -EARLY_S
    last = (attempt.end or time.time()) + AFTER_S
    next_one = span.last_s(EARLY_S)
    again = math.inf if next_one is None else next_one
    years = sorted({datetime.fromtimestamp(one, UTC).astimezone().year for one in (first, last)})
    within: bool | None = None
    host = ""
    for line in lines:
        stamps = [find_stamp(line, year=year) for year in years]
        if stamps[0] is not None and stamps[0].clock == WALL:
            times = [_epoch_s(line, one) for one in stamps if one]
            within = any(first <= at <= last and at < again for at in times)
            named = _HOST.match(line, stamps[0].end)
            host = named["host"] if named else ""
        elif stamps[0] is not None:
            within, host = None, ""  # seconds since boot, and nobody knows which boot
        yield line, within, host


def _epoch_s(line: str, stamp: Stamp) -> float:
    text = line[stamp.start : stamp.end].strip()
    if _ZONE.search(text) or _EPOCH.fullmatch(text):
        return stamp.seconds
    local = datetime.fromtimestamp(stamp.seconds, UTC).replace(tzinfo=None)
    return local.astimezone().timestamp()


def of_host(host: str, node: str) -> bool:
    """Tell whether a line that names a host, or none, may be of a node."""
    return not host or _short(host) in (_short(node), "localhost")


def _short(host: str) -> str:
    return host.split(".")[0].lower()


def _judged(lines: list[str], node: str) -> Attested | None:
    with tempfile.TemporaryDirectory(prefix="rerail-kernel-") as folder:
        path = Path(folder) / f"{node}.log"
        path.write_text("".join(lines), encoding="utf-8")
        try:
            alone = diagnose_paths([path]).diagnosis
        except RerailError:
            return None
    if alone.outcome is not Outcome.FAILURE or alone.first_fault is None:
        return None
    hardware = alone.recovery.action in HARDWARE
    if alone.recovery.action in OWNER_MUST_ACT:
        return None  # the kernel saw what the user's own code did
    if not hardware and alone.layer is not Layer.INFRASTRUCTURE:
        return None
    return Attested(
        source="kernel", node=node, what=alone.first_fault.text[:200].strip(), enough=hardware
    )
