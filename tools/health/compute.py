"""The compute test of one device: speed of a matrix product, and whether its bits repeat."""
# mypy: allow-untyped-calls

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rerail.errors import UsageError
from rerail.tools.health.agreement import confirm

SIZES = {"cpu": 512, "cuda": 8192}
RUNS = 20
WARM_UPS = 3
REPEATS = 4
ROBUST_SIGMAS = 6.0
LEAST_SLOWER = 0.03
MOST_WAITED = 0.05
"""Above this share of waiting for a core, a speed says more of the other work than of the device."""


@dataclass(frozen=True, slots=True)
class ComputeResult:
    """Median speed in floating-point operations per second, and one digest per repeat.

    `waited_ratio` is the share of its time for which this process could run and had no core.
    """

    device: str
    model: str
    flops_per_s: float
    digests: tuple[str, ...]
    waited_ratio: float = 0.0


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
    before = _core_times_ns()
    for _ in range(runs):
        began = time.perf_counter()
        product = left @ right
        wait()
        times.append(time.perf_counter() - began)
    ran, waited = (after - sooner for after, sooner in zip(_core_times_ns(), before, strict=True))
    digests = []
    for _ in range(REPEATS):
        product = left @ right
        digests.append(hashlib.sha256(product.cpu().numpy().tobytes()).hexdigest()[:32])
    model = torch.cuda.get_device_name(device) if kind == "cuda" else _cpu_model()
    speed = 2.0 * side**3 / float(np.median(times))
    share = round(waited / (ran + waited), 3) if waited > 0 and ran > 0 else 0.0
    return ComputeResult(device, model, speed, tuple(digests), share)


def _core_times_ns() -> tuple[int, int]:
    """Return for how long this process's threads ran, and for how long they waited for a core.

    Zeros where the kernel does not tell (proc(5), schedstat).
    """
    ran = waited = 0
    for thread in Path("/proc/self/task").glob("*/schedstat"):
        try:
            words = thread.read_text().split()
        except OSError:  # the thread has ended
            continue
        ran, waited = ran + int(words[0]), waited + int(words[1])
    return ran, waited


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


def slow_among_equals(results: Mapping[str, ComputeResult]) -> dict[str, float]:
    """Return the slow devices, each compared with those of its own model."""
    found: dict[str, float] = {}
    for model in {one.model for one in results.values()}:
        found |= slow_devices({n: r.flops_per_s for n, r in results.items() if r.model == model})
    return found


def compare_speeds(
    first: Mapping[str, ComputeResult], again: Callable[[], Mapping[str, ComputeResult]]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the slow devices and those of which it is not sure; `again` measures all once more.

    Not sure is who was slow in some of three measurements only, or waited for a core meanwhile.
    """
    waited = {name: one.waited_ratio for name, one in first.items()}

    def measured() -> dict[str, float]:
        results = again()
        for name, one in results.items():
            waited[name] = max(waited.get(name, 0.0), one.waited_ratio)
        return slow_among_equals(results)

    slow, unsure = confirm(slow_among_equals(first), measured)
    shared = {name for name in slow if waited.get(name, 0.0) > MOST_WAITED}
    return (
        {name: ratio for name, ratio in slow.items() if name not in shared},
        unsure | {name: slow[name] for name in shared},
    )
