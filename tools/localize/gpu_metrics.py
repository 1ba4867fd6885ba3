"""GPU counters as further evidence: DCGM exporter text, or CSV of DCGM or nvidia-smi fields.

Says which GPU is throttled, clocked below its peers, or has link or PCIe errors that grow. Bits of
the clock event reasons are those of NVML (`nvmlClocksEventReason*`).
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rerail.errors import EvidenceError
from rerail.tools.dcgm.exposition import looks_like_exposition, read_exposition
from rerail.tools.localize.findings import Finding

_REASONS = {
    0x8: "hardware slowdown", 0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown",
    0x80: "hardware power brake", 0x4: "software power cap",
}  # fmt: skip
_FAULT_REASONS = 0x8 | 0x20 | 0x40 | 0x80
_FIELDS = {
    "throttle": ("dcgm_fi_dev_clock_throttle_reasons", "dcgm_fi_dev_clocks_event_reasons",
                 "clocks_event_reasons.active", "clocks_throttle_reasons.active"),
    "sm_clock": ("dcgm_fi_dev_sm_clock", "clocks.current.sm", "clocks.sm"),
    "busy": ("dcgm_fi_dev_gpu_util", "dcgm_fi_prof_gr_engine_active", "utilization.gpu"),
    "power": ("dcgm_fi_dev_power_usage", "power.draw"),
    "temperature": ("dcgm_fi_dev_gpu_temp", "temperature.gpu"),
    "pcie_replay": ("dcgm_fi_dev_pcie_replay_counter", "pcie.replay_counter"),
    "nvlink_errors": ("dcgm_fi_dev_nvlink_crc_flit_error_count_total",
                      "dcgm_fi_dev_nvlink_replay_error_count_total",
                      "dcgm_fi_dev_nvlink_recovery_error_count_total"),
    "pcie_width": ("pcie.link.width.current", "dcgm_fi_dev_pcie_link_width"),
    "pcie_gen": ("pcie.link.gen.current", "dcgm_fi_dev_pcie_link_gen"),
}  # fmt: skip
_BY_NAME = {name: key for key, names in _FIELDS.items() for name in names}
_CLOCK_SHARE = 0.9
_IDLE_SHARE = 0.5
Gpu = tuple[str, str]


@dataclass
class GpuMetrics:
    """Samples by metric and by (node, gpu), in the order in which they were read."""

    samples: dict[str, dict[Gpu, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def add(self, name: str, gpu: Gpu, value: float) -> None:
        """Keep a sample if the metric says something about slowness."""
        key = _BY_NAME.get(name.lower())
        if key is not None and np.isfinite(value):
            self.samples[key][gpu].append(value)


def looks_like_metrics(head: str) -> bool:
    """Tell whether a text is a DCGM export or a CSV of GPU counters."""
    lowered = head[:4096].lower()
    return "dcgm_fi_" in lowered or ("clocks" in lowered.split("\n")[0] and "," in lowered)


def read_gpu_metrics(path: Path) -> GpuMetrics:
    """Read a Prometheus text export or a CSV.

    Raises:
        EvidenceError: the file holds no counter that this module knows.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    metrics = GpuMetrics()
    if looks_like_exposition(text):
        for sample in read_exposition(text):
            labels = sample.labels
            node = labels.get("Hostname") or labels.get("hostname") or labels.get("instance", "")
            metrics.add(sample.name, (node, labels.get("gpu", "?")), sample.value)
    else:
        _read_csv(text, metrics)
    if not metrics.samples:
        raise EvidenceError(
            f"{path}: no GPU counter that says whether a GPU is slow", subject=str(path),
            hint="export DCGM_FI_DEV_SM_CLOCK and DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
        )  # fmt: skip
    return metrics


def _read_csv(text: str, metrics: GpuMetrics) -> None:
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    for row in reader:
        cells = {
            str(k or "").strip().lower().split(" [")[0]: str(v or "").strip()
            for k, v in row.items()
        }
        node = cells.get("hostname") or cells.get("node") or cells.get("host", "")
        gpu = cells.get("gpu") or cells.get("index") or cells.get("gpu_id") or "?"
        if "metric" in cells and "value" in cells:
            metrics.add(cells["metric"], (node, gpu), _value(cells["value"]))
            continue
        for name, value in cells.items():
            metrics.add(name, (node, gpu), _value(value))


def _value(text: str) -> float:
    word = text.split()[0] if text.split() else ""
    try:
        return float(int(word, 16)) if word.lower().startswith("0x") else float(word)
    except ValueError:
        return float("nan")


def judge_gpu_metrics(metrics: GpuMetrics) -> list[Finding]:
    """Return one finding per GPU and sign of slowness, the strongest first."""
    found = _throttled(metrics) + _slow_clocks(metrics)
    found += _growing(metrics, "pcie_replay", "PCIe replays")
    found += _growing(metrics, "nvlink_errors", "NVLink errors")
    found += _narrow(metrics)
    return sorted(found, key=lambda one: -one.ratio)


def _finding(gpu: Gpu, kind: str, dimension: str, reason: str, ratio: float) -> Finding:
    where = f"GPU {gpu[1]}" + (f" of node {gpu[0]}" if gpu[0] else "")
    return Finding(
        kind=kind, function="counters", workers=(), dimension=dimension,
        reason=f"{where}: {reason}", ratio=ratio, lost_per_step_s=0.0, lost_s=0.0, layer="infrastructure",
        failure_type="slow_gpu", nodes=(gpu[0],) if gpu[0] else (),
    )  # fmt: skip


def _throttled(metrics: GpuMetrics) -> list[Finding]:
    out = []
    for gpu, values in metrics.samples.get("throttle", {}).items():
        bits = [int(value) for value in values]
        share = sum(bool(value & _FAULT_REASONS) for value in bits) / len(bits)
        if share >= 0.1:
            names = [text for bit, text in _REASONS.items() if any(v & bit for v in bits)]
            heat = metrics.samples.get("temperature", {}).get(gpu)
            more = f", {max(heat):.0f} C" if heat else ""
            out.append(
                _finding(
                    gpu, "throttle", "mu",
                    f"{', '.join(names)} in {share:.0%} of {len(bits)} samples{more}", 1 + share,
                )
            )  # fmt: skip
    return out


def _slow_clocks(metrics: GpuMetrics) -> list[Finding]:
    clocks = metrics.samples.get("sm_clock", {})
    busy = metrics.samples.get("busy", {})
    most = max((float(np.median(v)) for v in busy.values()), default=0.0)
    # An idle GPU clocks down on purpose.
    typical = {
        gpu: float(np.median(values))
        for gpu, values in clocks.items()
        if gpu not in busy or np.median(busy[gpu]) >= _IDLE_SHARE * most
    }
    if len(typical) < 3:
        return []
    middle = float(np.median(list(typical.values())))
    return [
        _finding(
            gpu, "slow_clock", "mu",
            f"SM clock {clock:.0f} MHz, {middle:.0f} MHz on the other GPUs", middle / clock,
        )
        for gpu, clock in typical.items()
        if 0 < clock < _CLOCK_SHARE * middle
    ]  # fmt: skip


def _growing(metrics: GpuMetrics, key: str, what: str) -> list[Finding]:
    grown = {g: v[-1] - v[0] for g, v in metrics.samples.get(key, {}).items() if len(v) > 1}
    usual = float(np.median(list(grown.values()))) if grown else 0.0
    return [
        _finding(
            gpu, key, "mu",
            f"{count:.0f} new {what} while it was watched, {usual:.0f} on the typical GPU",
            1 + count / (10 + 10 * usual),
        )
        for gpu, count in grown.items()
        if count >= 10 and count > 10 * max(usual, 1.0)
    ]  # fmt: skip


def _narrow(metrics: GpuMetrics) -> list[Finding]:
    out = []
    for key, what in (("pcie_width", "PCIe width x"), ("pcie_gen", "PCIe generation ")):
        now = {gpu: float(np.median(v)) for gpu, v in metrics.samples.get(key, {}).items()}
        if len(now) < 3:
            continue
        middle = float(np.median(list(now.values())))
        out += [
            _finding(gpu, key, "mu", f"{what}{value:.0f}, {middle:.0f} elsewhere", middle / value)
            for gpu, value in now.items()
            if 0 < value < middle
        ]
    return out
