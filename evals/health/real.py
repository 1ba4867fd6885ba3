"""Real agents over gloo on this machine: one is killed, one is throttled, who is named?

A node is a process. The throttled one is stopped and continued by signals many times a second, so it
does everything, only slower; the dead one is killed after it has joined.
"""
# mypy: allow-untyped-calls

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from rerail.evals.faultlab.machine import free_port

RERAIL = (sys.executable, "-c", "from rerail.assistant.cli.main import main; main()")
RUNNING_S, STOPPED_S = 0.01, 0.03


@dataclass(frozen=True)
class RealRun:
    """What was done to which node, and the report of rank 0 (None if it gave none)."""

    nodes: int
    dead: int | None
    throttled: int | None
    report: dict[str, Any] | None
    wall_s: float


def run_real(
    nodes: int, *, dead: int | None = None, throttled: int | None = None, message_mb: float = 48.0
) -> RealRun:
    """Start the agents, spoil some of them, return the verdict."""
    import torch.distributed as dist

    began = time.monotonic()
    port = free_port()
    processes: dict[int, subprocess.Popen[bytes]] = {}
    stop = threading.Event()
    with tempfile.TemporaryDirectory(prefix="rerail-health-") as folder:
        out = Path(folder) / "report.json"

        def start(rank: int) -> None:
            environment = {
                **os.environ,
                **{"RANK": str(rank), "WORLD_SIZE": str(nodes), "SLURMD_NODENAME": f"node{rank}"},
                **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"},
            }
            options = ("--json", "--matrix", "128", "--pair-s", "12", "--join-s", "90")
            with out.open("ab") if rank == 0 else open(os.devnull, "ab") as target:
                processes[rank] = subprocess.Popen(
                    [
                        *RERAIL,
                        "healthcheck",
                        *options,
                        "--message-mb",
                        str(message_mb),
                        "--repeats",
                        "8",
                    ],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=target,
                    stderr=subprocess.DEVNULL,
                )

        # The last one to join sets the tests going, so whoever is spoiled is so from the start.
        last = throttled if throttled is not None else nodes - 1
        throttle = threading.Thread(target=_throttle, args=(processes, throttled, stop))
        try:
            for rank in range(nodes):
                if rank != last:
                    start(rank)
            store = dist.TCPStore(  # type: ignore[attr-defined]
                "127.0.0.1", port + 1, is_master=False, timeout=timedelta(seconds=90)
            )
            for rank in range(nodes):
                if rank != last:
                    store.wait([f"hello/{rank}"], timedelta(seconds=90))
            if dead is not None:
                processes[dead].kill()
            start(last)
            if throttled is not None:
                store.wait([f"hello/{last}"], timedelta(seconds=90))
                throttle.start()
            processes[0].wait(timeout=180)
        finally:
            stop.set()
            if throttle.is_alive():
                throttle.join()
            for process in processes.values():
                process.kill()
                process.wait()
        text = out.read_text()
    report = json.loads(text) if text.strip() else None
    return RealRun(nodes, dead, throttled, report, round(time.monotonic() - began, 1))


def _throttle(
    processes: dict[int, subprocess.Popen[bytes]], rank: int | None, stop: threading.Event
) -> None:
    if rank is None:
        return
    process = processes[rank]
    while not stop.is_set() and process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_S)
        process.send_signal(signal.SIGCONT)
        time.sleep(RUNNING_S)
