"""DLRover xpu_timer's gauges (port 18889, /metrics): latencies of collectives and matmuls of each rank.

A file may hold several scrapes one after the other, of one node or of all; the n-th sample of a gauge is
that of the n-th scrape. Latencies are averages in microseconds, so waiting is seen, single calls are not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from rerail.errors import EvidenceError
from rerail.tools.dcgm.exposition import read_exposition
from rerail.tools.localize.records import Records
from rerail.tools.localize.timing_table import timing_table

_US = 1e-6
_NOT_SET = ("", "NOT_SET")


def looks_like_xpu_timer(head: str) -> bool:
    """Tell whether a text is a scrape of xpu_timer."""
    return "XPU_TIMER_" in head


def read_xpu_timer(paths: Iterable[Path]) -> Records:
    """Read the scrapes of all nodes.

    Raises:
        EvidenceError: no gauge is a latency of a rank.
    """
    table = timing_table()["xpu_timer"]
    records = Records("xpu_timer")
    own: dict[tuple[int, int], list[float]] = defaultdict(list)
    seen: dict[tuple[str, ...], int] = defaultdict(int)
    for path in paths:
        for sample in read_exposition(path.read_text(encoding="utf-8", errors="replace")):
            labels = sample.labels
            if sample.name not in (table["own"], table["collectives"]):
                continue
            if not labels.get("rank", "").isdigit() or not 0 < sample.value < float("inf"):
                continue
            rank = int(labels["rank"])
            host = next((labels[k] for k in ("pod_name", "ip") if labels.get(k) not in (None, *_NOT_SET)), "")  # fmt: skip
            if host:
                records.node[rank] = host
            identity = (sample.name, *(f"{k}={v}" for k, v in sorted(labels.items())))
            scrape = seen[identity]
            seen[identity] += 1
            if sample.name == table["own"]:
                own[scrape, rank].append(sample.value * _US)
                continue
            name = " ".join(
                labels.get(key, "") for key in ("operation", "transport", "dtype", "level")
            )
            records.add(rank, records.key(name), scrape, -1, sample.value * _US)
    for (_, rank), values in sorted(own.items()):
        records.self_s[rank].append(sum(values) / len(values))
    if not records.rank and not records.self_s:
        raise EvidenceError(
            "xpu_timer's gauges hold no latency of a rank", subject=str(next(iter(paths), "")),
            hint=f"curl NODE:18889/metrics, with {table['collectives']}",
        )  # fmt: skip
    return records
