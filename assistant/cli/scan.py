"""`rerail scan`: read profiler traces or logs beside the data, in shards, wherever they run."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerail.errors import EvidenceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rerail.tools.shards.work import ShardWork

    _Run = Callable[[ShardWork, list[str], int], tuple[dict[int, bytes], int]]


def scan_command(
    paths: list[Path], out: Path, shard: str | None, jobs: int, ray: str | None, logs: bool = False
) -> int:
    """Summarise the traces, or read the logs, and return 0, or 11 if a shard is missing.

    One shard (`--shard 3/8`, or that of `srun`) writes its file; without one, all are scanned here
    (`jobs` processes) or on Ray, and merged.

    Raises:
        UsageError: the shard is none, or does not go with Ray, or Ray is not to be had.
        EvidenceError: there is nothing to scan, or the result cannot be written.
    """
    from rerail.tools.shards.runners import run_processes, run_ray
    from rerail.tools.shards.work import merge_shards, merged_bytes, scan_shard

    if ray is not None and shard is not None:
        raise UsageError(
            "--shard and --ray do not go together", subject="--ray",
            hint="rerail scan PATHS --out DIR --ray auto",
        )  # fmt: skip
    number, count = _shard(shard) if ray is None else (0, 0)
    todo = _logs(paths) if logs else _profiles(paths)
    work, files = todo.work, todo.files
    if count:
        name = f"shard-{number:05d}-of-{count:05d}{todo.suffix}"
        _write(out / name, scan_shard(work, files, number, count), todo.mode)
        sys.stdout.write(f"shard {number} of {count} written to {out / name}\n")
        return 0

    def run(work: ShardWork, files: list[str], most: int) -> tuple[dict[int, bytes], int]:
        count = max(1, min(len(files), most))
        if ray is None:
            return run_processes(work, files, count, jobs), count
        return run_ray(work, files, count, ray), count

    most = jobs if ray is None else 4 * jobs
    cut = {} if logs or ray is None else _large(files)
    done, count = run(work, [file for file in files if file not in cut], most)
    merged = merge_shards(work, [done[n] for n in sorted(done)])
    if cut:
        merged = replace(merged, rows=_with_ranges(work, merged.rows, cut, run))
    absent = [n for n in range(count) if n not in done]
    for n in absent:
        sys.stderr.write(f"shard {n} of {count} is missing: its process ended without a result\n")
    if len(absent) == count:
        raise EvidenceError("no shard came to an end", hint="rerail scan --jobs 1")
    path = out / f"job{todo.suffix}"
    whole = replace(merged, missing=tuple((n, count) for n in absent))
    _write(path, merged_bytes(work, whole), todo.mode)
    sys.stdout.write(f"{len(files)} {todo.what} written to {path}\nrerail {todo.then} {out}\n")
    return 11 if absent else 0


def _large(files: list[str]) -> dict[str, list[tuple[int, int]]]:
    """Return the ranges of the traces that several machines read faster than one."""
    from rerail.tools.profiles.ranges import ranges_of

    found = {}
    for file in files:
        with suppress(OSError):
            found[file] = ranges_of(Path(file))
    return {file: ranges for file, ranges in found.items() if ranges}


def _with_ranges(
    work: ShardWork, rows: tuple[Any, ...], cut: dict[str, list[tuple[int, int]]], run: _Run
) -> tuple[Any, ...]:
    """Return the rows with those of large traces, whose ranges are read one trace after the other."""
    from rerail.tools.profiles.ranges import RangeWork, summary_of_ranges, units_of
    from rerail.tools.shards.work import merge_shards

    found = list(rows)
    for file, ranges in cut.items():
        units = units_of(file, ranges)
        done, _ = run(RangeWork(), units, len(units))
        parts = merge_shards(RangeWork(), list(done.values())).rows
        found.append(summary_of_ranges(file, ranges, parts))
    return tuple(sorted(found, key=work.key))


@dataclass(frozen=True)
class _Todo:
    """What is to be scanned, and how its result is called."""

    work: ShardWork
    files: list[str]
    suffix: str
    what: str
    then: str
    mode: int


def _profiles(paths: list[Path]) -> _Todo:
    from rerail.tools.profiles.collect import profile_files
    from rerail.tools.profiles.shard_work import ProfileWork
    from rerail.tools.profiles.summary import SHARD_SUFFIX

    files = sorted({str(file) for path in paths for file in profile_files(path)})
    return _Todo(ProfileWork(), files, SHARD_SUFFIX, "profiles", "localize", 0o666)


def _logs(paths: list[Path]) -> _Todo:
    from rerail.assistant.pipeline import scan_plan
    from rerail.log_parsers.collect import scanner_for
    from rerail.log_parsers.scan_work import log_work
    from rerail.log_parsers.sources import SCANNED_SUFFIX

    work, files = log_work(paths, scan_plan())
    # Once, before all shards want the compiled rules.
    scanner_for(work.plan, sum(one.size for one in work.sources.values()))
    # Lines of logs are nobody else's, whoever may read the folder.
    return _Todo(work, files, SCANNED_SUFFIX, "files of logs", "diagnose", 0o600)


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


def _write(path: Path, content: bytes, mode: int) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            part.unlink()
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        part.replace(path)
    except OSError as error:
        raise EvidenceError(f"{path}: {error.strerror}", subject=str(path)) from None
