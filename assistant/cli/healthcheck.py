"""The body of `rerail healthcheck`: this host alone, or all nodes that a launcher started together."""

from __future__ import annotations

import json
import os
import socket
import threading
from dataclasses import asdict

from rerail.errors import UsageError
from rerail.tools.health.agents import Coordinator, HealthReport, Limits, open_store, run_agent
from rerail.tools.health.compute import ComputeResult, compare_speeds, devices, measure_compute
from rerail.tools.health.digests import by_majority

FAULTY = 1


def healthcheck_command(limits: Limits, *, json_output: bool) -> int:
    """Test; 0 if all is well, 1 if something is wrong.

    Under srun or torchrun every task takes part as one node and rank 0 judges.

    Raises:
        UsageError: torch is not installed, or the launcher's variables are incomplete.
    """
    place = _place()
    if place is None:
        return _this_host(limits, json_output)
    rank, world, address, port = place
    report: list[HealthReport] = []
    judge = None
    if rank == 0:
        store = open_store(port, limits)
        judge = threading.Thread(
            target=lambda: report.append(Coordinator(store, world, limits).run()), daemon=True
        )
        judge.start()
    device = devices()[int(os.environ.get("LOCAL_RANK", "0")) % len(devices())]
    local = f":{os.environ['LOCAL_RANK']}" if os.environ.get("LOCAL_RANK") else ""
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    run_agent(rank, f"{name}{local}", address, port, device, limits)
    if judge is None:
        return 0
    judge.join()
    if not report:
        raise UsageError("the coordinator failed", subject="healthcheck")
    return _show(report[0], json_output)


def _place() -> tuple[int, int, str, int] | None:
    """Return rank, world size, address and port from torchrun's or srun's variables."""
    rank = os.environ.get("RANK") or os.environ.get("SLURM_PROCID")
    world = os.environ.get("WORLD_SIZE") or os.environ.get("SLURM_NTASKS")
    if rank is None or world is None or int(world) < 2:
        return None
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if not address or not port:
        raise UsageError(
            "MASTER_ADDR and MASTER_PORT are not set",
            subject="MASTER_ADDR",
            hint="export MASTER_ADDR=$(hostname) MASTER_PORT=29400; srun rerail healthcheck",
        )
    # torchrun's own store holds MASTER_PORT; the tests take the next one.
    return int(rank), int(world), address, int(port) + 1


def _this_host(limits: Limits, json_output: bool) -> int:
    def measure() -> dict[str, ComputeResult]:
        return {name: measure_compute(name, size=limits.matrix_side) for name in devices()}

    results = measure()
    report = HealthReport(nodes=list(results))
    report.slow_compute, report.unsure = compare_speeds(results, measure)
    bits = by_majority({n: one.digests for n, one in results.items()})
    report.wrong_bits, report.unstable_bits = list(bits.wrong), list(bits.unstable)
    if not json_output:
        for name, one in results.items():
            print(
                f"{name:<8} {one.flops_per_s / 1e12:8.3f} TFLOP/s  bits {one.digests[0][:12]}  {one.model}"
            )
    else:
        report.notes += [f"{n}: {one.flops_per_s:.4g} flop/s" for n, one in results.items()]
    return _show(report, json_output)


def _show(report: HealthReport, json_output: bool) -> int:
    if json_output:
        print(json.dumps({"healthy": report.healthy, **asdict(report)}, indent=1))
        return 0 if report.healthy else FAULTY
    lines = [
        ("did not join", ", ".join(report.absent)),
        ("FAULTY", ", ".join(report.faulty)),
        ("not cleared", ", ".join(report.suspects)),
        ("slow network", ", ".join(f"{n} ({r:.2f} of typical)" for n, r in report.slow.items())),
        ("slow link", ", ".join(f"{n} ({r:.2f})" for n, r in report.slow_links.items())),
        ("slow compute", ", ".join(f"{n} ({r:.2f})" for n, r in report.slow_compute.items())),
        ("not sure", ", ".join(f"{n} ({r:.2f})" for n, r in report.unsure.items())),
        ("WRONG RESULTS", ", ".join(report.wrong_bits)),
        ("UNSTABLE RESULTS", ", ".join(report.unstable_bits)),
    ]
    print(f"{len(report.nodes)} tested in {report.rounds} rounds, {report.elapsed_s:g} s")
    for what, who in lines:
        if who:
            print(f"  {what:<17} {who}")
    for note in report.notes:
        print(f"  note              {note}")
    if report.healthy:
        print("  nothing found wanting")
    return 0 if report.healthy else FAULTY
