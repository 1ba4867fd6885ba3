"""`rerail scan`: summarise profiler traces beside the data, in shards, wherever they run."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from rerail.errors import EvidenceError, UsageError


def scan_command(
    paths: list[Path], out: Path, shard: str | None, jobs: int, ray: str | None
) -> int:
    """Summarise the traces and return 0, or 11 if a shard is missing.

    One shard (`--shard 3/8`, or that of `srun`) writes its file; without one, all are scanned here
    (`jobs` processes) or on Ray, and merged.

    Raises:
        UsageError: the shard is none, or Ray is not to be had.
        EvidenceError: there are no traces, or the result cannot be written.
    """
    from rerail.tools.profiles.collect import profile_files
    from rerail.tools.profiles.shard_work import ProfileWork
    from rerail.tools.profiles.summary import SHARD_SUFFIX
    from rerail.tools.shards.runners import run_processes, run_ray
    from rerail.tools.shards.work import merge_shards, merged_bytes, scan_shard

    work = ProfileWork()
    files = sorted({str(file) for path in paths for file in profile_files(path)})
    number, count = _shard(shard)
    if count:
        name = f"shard-{number:05d}-of-{count:05d}{SHARD_SUFFIX}"
        _write(out / name, scan_shard(work, files, number, count))
        sys.stdout.write(f"shard {number} of {count} written to {out / name}\n")
        return 0
    if ray is not None:
        count = max(1, min(len(files), 4 * jobs))
        done = run_ray(work, files, count, ray)
    else:
        count = max(1, min(len(files), jobs))
        done = run_processes(work, files, count, jobs)
    merged = merge_shards(work, [done[n] for n in sorted(done)])
    absent = [n for n in range(count) if n not in done]
    for n in absent:
        sys.stderr.write(f"shard {n} of {count} is missing: its process ended without a result\n")
    if len(absent) == count:
        raise EvidenceError("no shard came to an end", hint="rerail scan --jobs 1")
    path = out / f"job{SHARD_SUFFIX}"
    _write(path, merged_bytes(work, type(merged)(merged.rows, tuple((n, count) for n in absent))))
    sys.stdout.write(f"{len(merged.rows)} profiles written to {path}\nrerail localize {out}\n")
    return 11 if absent else 0


def _shard(given: str | None) -> tuple[int, int]:
    """Return (number, count) of the shard that is asked for, (0, 0) for all."""
    if given is None:
        tasks = int(os.environ.get("SLURM_NTASKS", "1"))
        inside = "SLURM_PROCID" in os.environ and tasks > 1
        return (int(os.environ["SLURM_PROCID"]), tasks) if inside else (0, 0)
    found = re.fullmatch(r"(\d+)/(\d+)", given)
    if not found or not int(found[1]) < int(found[2]):
        raise UsageError(f"--shard {given} is no shard", hint="--shard 0/8 is the first of eight")
    return int(found[1]), int(found[2])


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        raise EvidenceError(f"{path}: {error.strerror}", subject=str(path)) from None
