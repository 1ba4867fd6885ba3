"""Files of one job into its matrix: traces are summarised, summaries are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rerail.errors import EvidenceError
from rerail.tools.profiles.comparable import comparable
from rerail.tools.profiles.counter_files import with_counters
from rerail.tools.profiles.matrix import ProfileMatrix, build_matrix
from rerail.tools.profiles.read_trace import read_trace
from rerail.tools.profiles.summarise import summarise
from rerail.tools.profiles.summary import (
    REQUEST,
    SHARD_SUFFIX,
    Summary,
    is_summary,
    read_summary,
)

_HINT = "give a folder of PyTorch profiler traces (*.json, *.json.gz) or of their summaries"


def profile_files(path: Path) -> list[Path]:
    """Return the traces and summaries of a folder, or the file itself.

    Raises:
        EvidenceError: there is none.
    """
    if not path.exists():
        raise EvidenceError(f"{path} does not exist", subject=str(path), hint=_HINT)
    if not path.is_dir():
        return [path]
    found = sorted(
        p
        for p in path.rglob("*")
        if p.is_file()
        and p.name != REQUEST
        and p.name.endswith((".json", ".json.gz", SHARD_SUFFIX))
    )
    if not found:
        raise EvidenceError(f"{path} holds no profiles", subject=str(path), hint=_HINT)
    return found


def read_profile(path: Path, *, alone: bool = False) -> Summary:
    """Return the summary of one file, a trace or a summary; one that is `alone` is of rank 0 where it tells no rank.

    Raises:
        EvidenceError: the file cannot be read or is neither.
    """
    if is_summary(path):
        return read_summary(path)
    trace = with_counters(read_trace(path))
    return summarise(trace, rank=0 if alone and trace.rank is None else None)


def read_job(paths: Sequence[Path]) -> ProfileMatrix:
    """Read all profiles of one job; a file that cannot be read is a named gap.

    Raises:
        EvidenceError: no file can be read, or they are not of one run.
    """
    summaries: list[Summary] = []
    bad: list[EvidenceError] = []
    shards = [path for path in sorted(paths) if path.name.endswith(SHARD_SUFFIX)]
    files = sorted(set(paths).difference(shards))
    for path in files:
        try:
            summaries.append(read_profile(path, alone=len(files) == 1 and not shards))
        except EvidenceError as error:
            bad.append(error)
    gaps = [f"left out: {error}" for error in bad]
    if shards:
        found, more = _read_shards(shards)
        summaries += found
        gaps += more
    if not summaries:
        raise bad[0] if bad else EvidenceError(gaps[0] if gaps else "no profiles", hint=_HINT)
    kept, odd = comparable(summaries)
    return build_matrix(kept).without((*gaps, *odd))


def _read_shards(paths: Sequence[Path]) -> tuple[list[Summary], list[str]]:
    from rerail.tools.profiles.shard_work import ProfileWork, summaries_of
    from rerail.tools.shards.work import merge_shards, read_head

    gaps = []
    parts = []
    for path in paths:
        try:
            part = path.read_bytes()
            missing = read_head(part).get("missing", [])
        except (OSError, EvidenceError) as error:
            gaps.append(f"left out: {path}: {error}")
            continue
        parts.append(part)
        gaps += [f"shard {n} of {of} is missing" for n, of in missing]
    merged = merge_shards(ProfileWork(), parts)
    gaps += [f"shard {n} of {of} is missing" for n, of in merged.missing]
    found, left = summaries_of(merged.rows, str(paths[0].parent))
    return found, gaps + left
