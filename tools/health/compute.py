"""The compute test of one device: speed of a matrix product, and whether its bits repeat."""
# mypy: allow-untyped-calls

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rerail.errors import UsageError

SIZES = {"cpu": 512, "cuda": 8192}
RUNS = 20
WARM_UPS = 3
REPEATS = 4
ROBUST_SIGMAS = 6.0
LEAST_SLOWER = 0.03


@dataclass(frozen=True, slots=True)
class ComputeResult:
    """Median speed in floating-point operations per second, and one digest per repeat."""

    device: str
    model: str
    flops_per_s: float
    digests: tuple[str, ...]


def devices() -> list[str]:
    """Return the devices of this host that torch can use: its GPUs, or else the CPU.

    Raises:
        UsageError: torch is not installed.
    """
    torch = _torch()
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [f"cuda:{index}" for index in range(count)] or ["cpu"]


def _torch():  # type: ignore[no-untyped-def]
    try:
        import torch
    except ModuleNotFoundError:
        raise UsageError(
            "the health tests need torch", subject="torch", hint="pip install torch"
        ) from None
    return torch


def measure_compute(device: str, *, size: int | None = None, runs: int = RUNS) -> ComputeResult:
    """Multiply two fixed matrices again and again; float32, the same seed on every host."""
    torch = _torch()
    kind = device.split(":")[0]
    side = size or SIZES[kind]
    draw = torch.Generator().manual_seed(20_250_101)
    left = torch.randn((side, side), generator=draw).to(device)
    right = torch.randn((side, side), generator=draw).to(device)

    def wait() -> None:
        if kind == "cuda":
            torch.cuda.synchronize(device)

    for _ in range(WARM_UPS):
        product = left @ right
    wait()
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        product = left @ right
        wait()
        times.append(time.perf_counter() - began)
    digests = []
    for _ in range(REPEATS):
        product = left @ right
        digests.append(hashlib.sha256(product.cpu().numpy().tobytes()).hexdigest()[:32])
    model = torch.cuda.get_device_name(device) if kind == "cuda" else _cpu_model()
    return ComputeResult(device, model, 2.0 * side**3 / float(np.median(times)), tuple(digests))


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return "cpu"


def slow_devices(flops_per_s: Mapping[str, float]) -> dict[str, float]:
    """Return devices that are slower than their peers of one model, with their ratio to the median.

    Slower means by more than six robust standard deviations and more than 3 per cent; with fewer
    than three peers nobody can be compared.
    """
    if len(flops_per_s) < 3:
        return {}
    values = np.array(list(flops_per_s.values()))
    middle = float(np.median(values))
    spread = 1.4826 * float(np.median(np.abs(values - middle)))
    limit = middle - max(ROBUST_SIGMAS * spread, LEAST_SLOWER * middle)
    return {name: round(v / middle, 3) for name, v in flops_per_s.items() if v < limit}
