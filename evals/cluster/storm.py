"""A storm: a thousand job failures within a minute, a daemon that is killed in the middle of it.

No scheduler is needed: the events bring their logs and nodes, as those of any other hook do. Three
in ten share a switch, one in ten a file system, the rest are failures of their own.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import yaml
from sqlalchemy import func, select

from rerail.domain.job import Allocation, JobEvent, JobRef, NodeShare
from rerail.evals.cluster.site import RERAIL, wait_for
from rerail.knowledge_base.store.clock import now_iso
from rerail.knowledge_base.store.engine import open_store, reading
from rerail.knowledge_base.store.tables import INCIDENTS
from rerail.recovery import spool
from rerail.recovery.store import audit, queue
from rerail.recovery.store.tables import GROUPS, PLANS
from rerail.settings import Settings

SWITCH_NODES = tuple(f"gpu-{number:04d}" for number in range(400, 432))
STEPS = "".join(
    f"2026-03-01 10:00:{n:02d} [rank0] INFO step {n} loss 2.{n:02d} step_time 1.00s\n"
    for n in range(20)
)
OWN = {
    "bug": 'Traceback (most recent call last):\n  File "train.py", line 40, in step\n'
    "KeyError: 'labels'\n",
    "memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
    "total capacity of 79.11 GiB of which 1.00 GiB is free.\n",
    "limit": "slurmstepd: error: *** JOB 7 ON gpu-0001 CANCELLED AT 2026-03-01T10:00:30 DUE TO TIME "
    "LIMIT ***\n",
}
STORAGE = "[rank0]: OSError: [Errno 116] Stale file handle: '/lustre/run/ckpt/step_20.pt'\n"
LINK = (
    "[rank0]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a "
    "network error\ngpu:1:2 [0] NCCL WARN NET/IB: Got completion from peer 10.0.0.1<1> with status=12 "
    "opcode=0 len=0 vendor err 129 (Send) hca mlx5_0\n"
)


@dataclass(frozen=True)
class Storm:
    """What happened to the events; seconds and counts."""

    events: int
    sent_s: float
    recorded_s: float
    done_s: float
    hook_ms: float
    hooks: int
    incidents: int
    twice: int
    lost: int
    parents: dict[str, int]
    messages: int
    automatic: int
    audit_intact: bool


def run_storm(events: int, seed: int = 1, hooks: int = 20) -> Storm:
    """Send the events, kill the daemon once, wait until all are worked off."""
    root = Path(tempfile.mkdtemp(prefix="rerail-storm-"))
    daemon: subprocess.Popen[bytes] | None = None
    try:
        environment = _site(root)
        made = _events(root, events, seed)
        began = time.monotonic()
        took = []
        for number, event in enumerate(made):
            body = event.model_dump_json().encode()
            if number < hooks:
                started = time.monotonic()
                subprocess.run(
                    [*RERAIL, "hook", "-"],
                    input=body,
                    env=environment,
                    check=True,
                    capture_output=True,
                )
                took.append(time.monotonic() - started)
            else:
                spool.leave(root / "data" / spool.FOLDER, body)
            if number == events // 4:
                daemon = _daemon(root, environment)
        for event in made[:: max(1, events // 50)]:  # the same once more, as schedulers do
            spool.leave(root / "data" / spool.FOLDER, event.model_dump_json().encode())
        sent = time.monotonic() - began
        engine = open_store(Settings(data_dir=root / "data"))

        def counts() -> dict[str, int]:
            with reading(engine) as connection:
                return queue.counts(connection)

        wait_for(lambda: counts().get("done", 0) > events // 5, 300)
        if daemon is not None:
            daemon.kill()  # kill -9 in the middle of it
            daemon.wait()
        daemon = _daemon(root, environment)
        wait_for(lambda: sum(counts().values()) >= events, 300)
        recorded = time.monotonic() - began
        wait_for(lambda: counts().get("done", 0) + counts().get("failed", 0) >= events, 900)
        time.sleep(2)  # the last messages
        done = time.monotonic() - began - 2
        daemon.terminate()
        daemon.wait()
        with reading(engine) as connection:
            rows = connection.execute(select(INCIDENTS.c.job, INCIDENTS.c.attempt)).all()
            jobs = Counter((row.job, row.attempt) for row in rows if row.job is not None)
            groups = connection.execute(
                select(GROUPS.c.root, func.count()).group_by(GROUPS.c.parent, GROUPS.c.root)
            ).all()
            bodies = connection.execute(select(PLANS.c.body)).all()
            intact = audit.verify(connection).broken_at is None
        engine.dispose()
        sent_messages = (root / "messages.jsonl").read_text().splitlines()
        acting = [
            one
            for row in bodies
            for one in row.body["actions"]
            if not one["needs_approval"] and one["kind"] not in ("notify", "ticket")
        ]
        return Storm(
            events=events,
            sent_s=round(sent, 1),
            recorded_s=round(recorded, 1),
            done_s=round(done, 1),
            hook_ms=round(1e3 * sum(took) / max(1, len(took)), 1),
            hooks=len(took),
            incidents=len(jobs),
            twice=sum(count - 1 for count in jobs.values()),
            lost=events - len(jobs),
            parents={str(root): int(count) for root, count in groups if count >= 3},
            messages=len(sent_messages),
            automatic=len(acting),
            audit_intact=intact,
        )
    finally:
        if daemon is not None and daemon.poll() is None:
            daemon.kill()
            daemon.wait()
        shutil.rmtree(root, ignore_errors=True)


def _site(root: Path) -> dict[str, str]:
    content = {
        "dry_run": True,
        "default_mode": "propose",
        "jobs": {"group_wait_s": 0.0},
        "roots": {"switch-12": list(SWITCH_NODES)},
        "notify": {"file": str(root / "messages.jsonl")},
    }
    (root / "policy.yaml").write_text(yaml.safe_dump(content))
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RERAIL_")}
    cache = os.environ.get("RERAIL_CACHE_DIR")
    return {
        **kept,
        **({"RERAIL_CACHE_DIR": cache} if cache else {}),
        "RERAIL_DATA_DIR": str(root / "data"),
        "RERAIL_POLICY_FILE": str(root / "policy.yaml"),
        "RERAIL_WORKERS": "1",
    }


def _daemon(root: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with (root / "watch.log").open("ab") as log:
        return subprocess.Popen(
            [*RERAIL, "watch", "--interval", "0.2"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _events(root: Path, count: int, seed: int) -> list[JobEvent]:
    draw = random.Random(seed)
    made = []
    for number in range(count):
        place = number % 10
        if place < 3:
            nodes, text = tuple(draw.sample(SWITCH_NODES, 4)), LINK
        else:
            nodes = tuple(f"gpu-{4 * number + k + 1000}" for k in range(4))
            text = STORAGE if place == 3 else OWN[draw.choice(sorted(OWN))]
        folder = root / "logs" / str(number)
        folder.mkdir(parents=True)
        (folder / "train.log").write_text(STEPS + text)
        made.append(
            JobEvent(
                job=JobRef(cluster="storm", job=str(number)),
                source="storm",
                state="FAILED",
                time=now_iso(),
                logs=(str(folder),),
                allocation=Allocation(nodes=tuple(NodeShare(node=name) for name in nodes)),
            )
        )
    return made


def storm_command(events: int, json_output: bool) -> int:
    """Run a storm and show it; 0 if nothing was lost or done twice, and nothing acted by itself."""
    storm = run_storm(events)
    right = (
        storm.lost == 0
        and storm.twice == 0
        and storm.audit_intact
        and storm.automatic == 0
        and {"switch-12", "shared file system"} <= set(storm.parents)
    )
    if json_output:
        print(json.dumps(storm.__dict__))
        return 0 if right else 1
    folded = ", ".join(f"{root}: {count} jobs" for root, count in storm.parents.items())
    print(
        f"{storm.events} events sent within {storm.sent_s:g} s, all in the queue after {storm.recorded_s:g} s, "
        f"all worked off after {storm.done_s:g} s ({storm.events / storm.done_s:.1f} a second)\n"
        f"hook: {storm.hook_ms:g} ms, mean of {storm.hooks}\n"
        f"daemon killed once: {storm.lost} lost, {storm.twice} twice; audit log "
        f"{'intact' if storm.audit_intact else 'BROKEN'}\n"
        f"parents: {folded or 'none'}\n"
        f"messages: {storm.messages}; automatic actions: {storm.automatic}",
        file=sys.stdout,
    )
    return 0 if right else 1
