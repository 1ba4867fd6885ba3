"""Where shards are scanned: processes of this machine, or Ray tasks. Slurm runs `rerail scan`.

Each shard has a process of its own, so that one that dies takes no other with it; it is reported as
missing under its number.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from rerail.errors import EvidenceError, UsageError
from rerail.tools.shards.work import ShardWork, scan_shard


def run_processes(
    work: ShardWork, files: Sequence[str], shards: int, jobs: int
) -> dict[int, bytes]:
    """Scan all shards, `jobs` at a time, and return the results of those that came to an end.

    Raises:
        EvidenceError: a shard refused its files; the first such refusal.
    """
    context = multiprocessing.get_context("spawn")
    left = list(range(shards))
    running: dict[Connection, tuple[int, Any]] = {}
    done: dict[int, bytes] = {}
    try:
        while left or running:
            while left and len(running) < max(jobs, 1):
                number = left.pop(0)
                ours, theirs = context.Pipe()
                process = context.Process(target=_scan_and_send, args=(theirs,))
                process.start()
                theirs.close()
                # What `start` itself sends to a process that dies at once would never be taken.
                with suppress(OSError):
                    ours.send((work, list(files), number, shards))
                running[ours] = (number, process)
            answered = set(wait(list(running)))
            for ready in [pipe for pipe in running if pipe in answered]:
                number, process = running.pop(ready)
                try:
                    answer = ready.recv()
                except (EOFError, OSError):  # the process died and said nothing, or not all
                    answer = None
                process.join()
                if isinstance(answer, EvidenceError):
                    raise answer
                if answer is not None:
                    done[number] = answer
    finally:
        for _, process in running.values():
            process.terminate()
    return done


def _scan_and_send(pipe: Connection) -> None:
    work, files, number, count = pipe.recv()
    try:
        pipe.send(scan_shard(work, files, number, count))
    except EvidenceError as error:
        pipe.send(error)


def run_ray(work: ShardWork, files: Sequence[str], shards: int, address: str) -> dict[int, bytes]:
    """Scan all shards as Ray tasks of a cluster ("auto" or host:port) and return their results.

    The files must be readable on Ray's nodes under the same paths.

    Raises:
        UsageError: Ray is not installed, or the cluster does not answer.
    """
    try:
        import ray
    except ImportError:
        raise UsageError("Ray is not installed", hint="pip install 'rerail[ray]'") from None
    started = not ray.is_initialized()
    try:
        if started:
            ray.init(address=address, log_to_driver=False)
    except Exception as error:  # Ray raises bare Exception where a node does not come up
        raise UsageError(
            f"no Ray cluster answers at {address} ({error})", hint="ray start --head"
        ) from None
    try:
        task = ray.remote(max_retries=1)(scan_shard)
        asked = {task.remote(work, list(files), n, shards): n for n in range(shards)}
        done: dict[int, bytes] = {}
        waiting = list(asked)
        while waiting:
            ready, waiting = ray.wait(waiting)
            for one in ready:
                try:
                    done[asked[one]] = ray.get(one)
                except ray.exceptions.RayError:
                    continue  # its number is missing from the answer
        return done
    finally:
        if started:
            ray.shutdown()
