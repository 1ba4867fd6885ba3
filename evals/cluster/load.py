"""The load of a bad day: a thousand hook calls a minute, a hundred webhooks a second.

The hook's cost is given beside that of an interpreter that does nothing, in the same run.
"""

from __future__ import annotations

import http.client
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from rerail.assistant.watch.listener import Listener
from rerail.recovery import spool, webhook

HOOKS_PER_MINUTE = 1000
WEBHOOKS_PER_S = 100
SECRET = b"k" * 32


@dataclass(frozen=True)
class Load:
    """What was measured; milliseconds."""

    interpreter_cpu_ms: float
    hook_cpu_ms: float
    hook_ratio: float
    hooks: int
    hooks_taken: int
    hook_p50_ms: float
    hook_p99_ms: float
    webhooks: int
    webhooks_taken: int
    webhook_p50_ms: float
    webhook_p99_ms: float


def cpu_ms(command: Sequence[str], environment: dict[str, str], times: int = 40) -> float:
    """Return the processor time of a program, user and system, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(times):
        subprocess.run(command, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1e3 * used / times


def _at_rate(rate_per_s: float, seconds: float, act: Callable[[int], float]) -> list[float]:
    """Start `act` at even distances, whatever the others take; return how long each took, in ms."""
    count = int(rate_per_s * seconds)
    began = time.monotonic() + 0.2

    def one(number: int) -> float:
        time.sleep(max(0.0, began + number / rate_per_s - time.monotonic()))
        return act(number)

    with ThreadPoolExecutor(max_workers=32) as pool:
        return sorted(pool.map(one, range(count)))


def _p(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


def measure(seconds: float) -> Load:
    """Measure hooks and webhooks, each for so many seconds."""
    root = Path(tempfile.mkdtemp(prefix="rerail-load-"))
    program = str(Path(sys.prefix) / "bin" / "rerail")
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("RERAIL_")},
        "RERAIL_DATA_DIR": str(root),
        "RERAIL_CLUSTER": "load",
        "SLURM_JOB_EXIT_CODE2": "1:0",
        "SLURM_JOB_ID": "1",
    }
    try:
        bare = cpu_ms((sys.executable, "-c", "pass"), environment)
        hook = cpu_ms((program, "hook", "--slurm"), environment)
        shutil.rmtree(root / spool.FOLDER)

        def call(number: int) -> float:
            began = time.monotonic()
            subprocess.run(
                (program, "hook", "--slurm"),
                env={**environment, "SLURM_JOB_ID": str(number + 1)},
                check=True,
                capture_output=True,
            )
            return 1e3 * (time.monotonic() - began)

        hooks = _at_rate(HOOKS_PER_MINUTE / 60, seconds, call)
        taken = len(list((root / spool.FOLDER).glob("*.json")))
        shutil.rmtree(root / spool.FOLDER)
        webhooks = _webhooks(root, seconds)
        kept = len(list((root / spool.FOLDER).glob("*.json")))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return Load(
        interpreter_cpu_ms=round(bare, 1),
        hook_cpu_ms=round(hook, 1),
        hook_ratio=round(hook / bare, 2),
        hooks=len(hooks),
        hooks_taken=taken,
        hook_p50_ms=round(statistics.median(hooks), 1),
        hook_p99_ms=round(_p(hooks, 0.99), 1),
        webhooks=len(webhooks),
        webhooks_taken=kept,
        webhook_p50_ms=round(statistics.median(webhooks), 1),
        webhook_p99_ms=round(_p(webhooks, 0.99), 1),
    )


def _webhooks(root: Path, seconds: float) -> list[float]:
    import base64

    secret = root / "secret"
    secret.write_text("whsec_" + base64.b64encode(SECRET).decode())
    listener = Listener("127.0.0.1:0", secret, root, "load", lambda text: None)
    wrong = threading.Event()

    def post(number: int) -> float:
        event = {"job": {"job": str(number)}, "state": "FAILED", "time": "2026-01-01T00:00:00Z"}
        body, now = json.dumps(event).encode(), int(time.time())
        headers = {
            "webhook-id": f"m{number}",
            "webhook-timestamp": str(now),
            "webhook-signature": webhook.sign(SECRET, f"m{number}", now, body),
        }
        began = time.monotonic()
        line = http.client.HTTPConnection("127.0.0.1", listener.port, timeout=10)
        line.request("POST", "/events", body, headers)
        if line.getresponse().status != 202:
            wrong.set()
        line.close()
        return 1e3 * (time.monotonic() - began)

    try:
        return _at_rate(WEBHOOKS_PER_S, seconds, post)
    finally:
        listener.close()
        if wrong.is_set():
            raise RuntimeError("a webhook was not taken")


def load_command(seconds: float, json_output: bool) -> int:
    """Measure and show; 0 if every event was taken."""
    load = measure(seconds)
    if json_output:
        print(json.dumps(asdict(load)))
    else:
        print(
            f"hook: {load.hook_cpu_ms:g} ms of CPU a call, {load.hook_ratio:g} of an interpreter that "
            f"does nothing ({load.interpreter_cpu_ms:g} ms)\n"
            f"{load.hooks} hooks at {HOOKS_PER_MINUTE} a minute: {load.hooks_taken} taken; "
            f"p50 {load.hook_p50_ms:g} ms, p99 {load.hook_p99_ms:g} ms\n"
            f"{load.webhooks} webhooks at {WEBHOOKS_PER_S} a second: {load.webhooks_taken} taken; "
            f"p50 {load.webhook_p50_ms:g} ms, p99 {load.webhook_p99_ms:g} ms"
        )
    whole = load.hooks_taken == load.hooks and load.webhooks_taken == load.webhooks
    return 0 if whole else 1
