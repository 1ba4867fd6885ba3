"""Files of one job into its matrix: traces are summarised, summaries are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rerail.errors import EvidenceError
from rerail.tools.profiles.matrix import ProfileMatrix, build_matrix
from rerail.tools.profiles.read_trace import read_trace
from rerail.tools.profiles.summarise import summarise
from rerail.tools.profiles.summary import Summary, is_summary, read_summary

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
        p for p in path.rglob("*") if p.is_file() and (p.name.endswith((".json", ".json.gz")))
    )
    if not found:
        raise EvidenceError(f"{path} holds no profiles", subject=str(path), hint=_HINT)
    return found


def read_profile(path: Path) -> Summary:
    """Return the summary of one file, a trace or a summary.

    Raises:
        EvidenceError: the file cannot be read or is neither.
    """
    return read_summary(path) if is_summary(path) else summarise(read_trace(path))


def read_job(paths: Sequence[Path]) -> ProfileMatrix:
    """Read all profiles of one job; a file that cannot be read is a named gap.

    Raises:
        EvidenceError: no file can be read, or they are not of one run.
    """
    summaries: list[Summary] = []
    bad: list[EvidenceError] = []
    for path in sorted(paths):
        try:
            summaries.append(read_profile(path))
        except EvidenceError as error:
            bad.append(error)
    if bad and not summaries:
        raise bad[0]
    matrix = build_matrix(summaries)
    gaps = tuple(f"left out: {error}" for error in bad)
    return matrix.with_notes(gaps)
