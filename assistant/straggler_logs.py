"""Straggler reports that a framework printed into its log, as findings for `rerail localize`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from rerail.log_parsers.redaction import redact
from rerail.log_parsers.straggler_lines import StragglerNote, straggler_notes
from rerail.log_parsers.text import clean
from rerail.tools.localize.findings import Finding, Localization, outcome_of

_MOST_BYTES = 256 << 20


def read_straggler_log(path: Path) -> Localization | None:
    """Return what NVRx and Megatron straggler lines of a log say, or None where there are none."""
    with path.open("rb") as stream:
        raw = stream.read(_MOST_BYTES)
    if b"Score=" not in raw and b"/Rnk: " not in raw and b"STRAGGLER" not in raw:
        return None
    notes = straggler_notes((i, redact(clean(line))) for i, line in enumerate(raw.split(b"\n"), 1))
    by_rank: dict[int, list[StragglerNote]] = defaultdict(list)
    for note in notes:
        by_rank[note.rank].append(note)
    findings = [_finding(path, rank, ones) for rank, ones in by_rank.items()]
    findings.sort(key=lambda one: -one.ratio)
    return Localization(str(path), outcome_of(findings), findings)


def _finding(path: Path, rank: int, notes: list[StragglerNote]) -> Finding:
    scored = [note for note in notes if note.score]
    worst = min(scored, key=lambda note: note.score or 1.0) if scored else notes[0]
    node = next((note.node for note in notes if note.node), None)
    said = f"score {worst.score:.2f}, " if worst.score else ""
    return Finding(
        kind="rank", function=worst.metric, workers=(rank,), dimension="beta",
        reason=(
            f"the job itself reports rank {rank} slow: {said}"
            f"{len(notes)} times, first at {path}:{notes[0].line}"
        ),
        ratio=1 / worst.score if worst.score else 1.0, lost_per_step_s=0.0, lost_s=0.0,
        layer="infrastructure", failure_type="slow_gpu", nodes=(node,) if node else (),
    )  # fmt: skip
