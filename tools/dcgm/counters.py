"""What DCGM's fields say of broken GPUs within a span of time.

`DCGM_FI_DEV_XID_ERRORS` keeps the last code until the driver is loaded anew, so its value alone may
be months old: only a change between two samples dates it. `DCGM_EXP_XID_ERRORS_COUNT` counts what
came within the exporter's own window (dcgm-exporter, `xid-count-window-size`). Fields:
https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median

from rerail.tools.dcgm.exposition import Sample, is_finite

XID = "DCGM_FI_DEV_XID_ERRORS"
XID_COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
ECC = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
ROW_REMAP = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
PCIE_REPLAY = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
NVLINK = (
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
)
FIELDS = (XID, XID_COUNT, ECC, ROW_REMAP, PCIE_REPLAY, *NVLINK)
# DCGM's own health check fails a link above so many replays a minute (DCGM user guide, health).
MOST_REPLAYS_PER_MINUTE = 8.0
LEAST_NVLINK_ERRORS = 100.0
EARLY_S = 60.0
"""How much older than the span a sample may be and still be the one before: one slow scrape."""
AFTER_S = 120.0
"""How long after the span a scrape may show what ended it."""
LEAST_GAP_S = 60.0
LEAST_GAP_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class GpuFault:
    """One thing that DCGM holds against a GPU.

    `kind` is `xid`, `ecc`, `row_remap`, `nvlink`, `pcie`, `vanished`, `health` or `diagnostic`.
    `dated` tells that it is known to have come within the span, or to hold now; `failed` that
    DCGM calls it a failure and not a warning.
    """

    node: str
    gpu: str
    kind: str
    what: str
    time_s: float | None = None
    uuid: str = ""
    pci: str = ""
    xid: int | None = None
    dated: bool = True
    failed: bool = True


@dataclass(slots=True)
class _Gpu:
    node: str
    gpu: str
    uuid: str
    pci: str
    series: dict[str, list[tuple[float, float]]]
    counted: dict[int, list[tuple[float, float, float]]]

    def fault(self, kind: str, what: str, time_s: float | None, **more: object) -> GpuFault:
        found = GpuFault(self.node, self.gpu, kind, what, time_s, self.uuid, self.pci)
        return replace(found, **more)  # type: ignore[arg-type]


def find_faults(
    samples: Mapping[str, Iterable[Sample]], began_s: float, ended_s: float
) -> list[GpuFault]:
    """Return what the samples of each node show between two times (seconds since the epoch).

    Samples without a time are left out. What cannot be dated is returned too, marked so.
    """
    found: list[GpuFault] = []
    for node, own in samples.items():
        gpus = _by_gpu(node, own, ended_s + AFTER_S)
        for gpu in gpus:
            found += _xids(gpu, began_s)
            found += _counted_xids(gpu, began_s, ended_s + AFTER_S)
            found += _conditions(gpu, began_s)
            found += _links(gpu, began_s)
        found += _vanished(gpus, began_s, ended_s)
    return found


def _by_gpu(node: str, samples: Iterable[Sample], last_s: float) -> list[_Gpu]:
    gpus: dict[str, _Gpu] = {}
    for sample in samples:
        if sample.name not in FIELDS or not is_finite(sample) or sample.time_s is None:
            continue
        # What came later was another job's; a state and a count of a window tell their own time.
        if sample.time_s > last_s and sample.name not in (ROW_REMAP, XID_COUNT):
            continue
        labels = sample.labels
        # Pods come and go and change the labels of a series; the GPU stays.
        key = labels.get("UUID") or labels.get("uuid") or labels.get("gpu", "?")
        one = gpus.get(key)
        if one is None:
            pci = labels.get("pci_bus_id") or labels.get("PCI_BUS_ID", "")
            uuid = labels.get("UUID") or labels.get("uuid", "")
            name = labels.get("gpu", "?")
            one = gpus[key] = _Gpu(node, name, uuid, pci, defaultdict(list), defaultdict(list))
        if sample.name == XID_COUNT:
            code, window = labels.get("xid", ""), labels.get("window_size_in_ms", "")
            if code.isdigit() and window.isdigit() and sample.value > 0:
                one.counted[int(code)].append((sample.time_s, int(window) / 1000.0, sample.value))
        one.series[sample.name].append((sample.time_s, sample.value))
    for one in gpus.values():
        for values in one.series.values():
            values.sort()
    return list(gpus.values())


def _within(
    values: list[tuple[float, float]], began_s: float
) -> Iterator[tuple[float, float, float]]:
    """Yield (time, value before, value) of neighbours whose change lies within the span."""
    for (before_s, before), (at, value) in itertools.pairwise(values):
        if before_s >= began_s - EARLY_S:
            yield at, before, value


def _xids(gpu: _Gpu, began_s: float) -> list[GpuFault]:
    values = gpu.series.get(XID, [])
    found: dict[int, GpuFault] = {}
    for at, before, value in _within(values, began_s):
        if value > 0 and value != before:
            code = int(value)
            what = f"Xid {code} (its counter went from {before:g} to {value:g})"
            found.setdefault(code, gpu.fault("xid", what, at, xid=code))
    last = int(values[-1][1]) if values else 0
    if last > 0 and last not in found:
        what = f"Xid {last} is the last one kept, from when is not known"
        found[last] = gpu.fault("xid", what, None, xid=last, dated=False)
    return list(found.values())


def _counted_xids(gpu: _Gpu, began_s: float, last_s: float) -> list[GpuFault]:
    found = []
    for code, every in gpu.counted.items():
        counts = [one for one in every if one[0] - one[1] <= last_s]
        if not counts:
            continue
        inside = [one for one in counts if one[0] - one[1] >= began_s - EARLY_S]
        at, window_s, count = min(inside or counts)
        what = f"Xid {code} ({count:g} within {window_s:g} s)"
        found.append(gpu.fault("xid", what, at, xid=code, dated=bool(inside)))
    return found


def _conditions(gpu: _Gpu, began_s: float) -> list[GpuFault]:
    found = []
    rows = gpu.series.get(ROW_REMAP, [])
    if rows and rows[-1][1] > 0:
        # A state, not an event: it lasts until the GPU is replaced.
        found.append(gpu.fault("row_remap", "remapping a memory row failed", rows[-1][0]))
    values = gpu.series.get(ECC, [])
    if grown := _grown(values, began_s):
        at, count = grown
        found.append(gpu.fault("ecc", f"{count:g} new double-bit ECC errors", at))
    elif values and values[-1][1] > 0:
        what = f"{values[-1][1]:g} double-bit ECC errors since the driver was loaded"
        found.append(gpu.fault("ecc", what, None, dated=False))
    return found


def _links(gpu: _Gpu, began_s: float) -> list[GpuFault]:
    found = []
    for name in NVLINK:
        grown = _grown(gpu.series.get(name, []), began_s)
        recovery = "RECOVERY" in name
        if grown and grown[1] >= (1 if recovery else LEAST_NVLINK_ERRORS):
            words = name.removeprefix("DCGM_FI_DEV_").removesuffix("_COUNT_TOTAL").lower()
            what = f"{grown[1]:g} new errors of {words}"
            found.append(gpu.fault("nvlink", what, grown[0], failed=False))
    values = gpu.series.get(PCIE_REPLAY, [])
    grown = _grown(values, began_s)
    if grown and len(values) > 1:
        minutes = max((values[-1][0] - max(values[0][0], began_s - EARLY_S)) / 60.0, 1.0)
        if grown[1] / minutes > MOST_REPLAYS_PER_MINUTE:
            what = f"{grown[1] / minutes:.0f} PCIe replays a minute"
            found.append(gpu.fault("pcie", what, grown[0], failed=False))
    return found


def _grown(values: list[tuple[float, float]], began_s: float) -> tuple[float, float] | None:
    """Return since when and by how much a counter grew within the span; a reset counts from zero."""
    since, total = None, 0.0
    for at, before, value in _within(values, began_s):
        more = value - before if value >= before else value
        if more > 0:
            since = at if since is None else since
            total += more
    return None if since is None else (since, total)


def _vanished(gpus: list[_Gpu], began_s: float, ended_s: float) -> list[GpuFault]:
    """Return GPUs of which DCGM stopped telling before the end, while it told of their neighbours.

    At the end of a job a site may reset its GPUs; what goes away only then is no fault.
    """
    times = {id(gpu): sorted({t for v in gpu.series.values() for t, _ in v}) for gpu in gpus}
    every = sorted({at for own in times.values() for at in own if at <= ended_s})
    if len(gpus) < 2 or len(every) <= LEAST_GAP_SAMPLES:
        return []
    spacing = median(later - sooner for sooner, later in itertools.pairwise(every))
    gap_s = max(LEAST_GAP_S, LEAST_GAP_SAMPLES * spacing)
    found = []
    for gpu in gpus:
        last = times[id(gpu)][-1]
        after = [at for at in every if at > last]
        if last < began_s or not after or after[-1] - last < gap_s:
            continue
        if len(after) >= LEAST_GAP_SAMPLES:
            others = sum(times[id(one)][-1] > last + gap_s for one in gpus if one is not gpu)
            if 2 * others >= len(gpus) - 1 and others:
                what = f"DCGM tells nothing of it any more, {others} other GPUs of the node go on"
                found.append(gpu.fault("vanished", what, last))
    return found
