"""Collects the facts of a case while it is judged and closes it with a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rerail.knowledge_base.waiting.dumps import wording
from rerail.knowledge_base.waiting.dumps.board import Board
from rerail.knowledge_base.waiting.dumps.verdict import (
    DumpEvidence,
    DumpVerdict,
    Firmness,
    Kind,
    UnknownRank,
)
from rerail.log_parsers.flight_recorder.model import DumpProblem, Entry, ProcessGroup


@dataclass(slots=True)
class DumpCase:
    """What every verdict on one job carries."""

    board: Board
    problems: tuple[DumpProblem, ...]
    evidence: list[DumpEvidence] = field(default_factory=list)
    waiting: tuple[int, ...] = ()

    def cite(self, rank: int, shows: str, entry: Entry | None = None) -> None:
        """Add one fact from the dump of a rank."""
        index = None if entry is None else entry.index
        self.evidence.append(DumpEvidence(self.board.dumps[rank].file, rank, shows, index))

    def group(self, rank: int, entry: Entry) -> ProcessGroup:
        """Return the job-wide group of an entry."""
        return self.board.groups[self.board.key_of(self.board.dumps[rank], entry.group)]

    def label(self, rank: int, entry: Entry) -> str:
        """Name an operation of a rank, with global ranks if it is point-to-point."""
        return wording.label(entry, self.board.dumps[rank].peer_ranks(entry))

    def place(self, rank: int, entry: Entry) -> str:
        """Name an operation and its group."""
        return f"{self.label(rank, entry)} of {wording.group(self.group(rank, entry))}"

    def close(
        self,
        kind: Kind,
        status: Firmness,
        reason: str,
        *,
        culprits: Iterable[int] = (),
        suspects: Iterable[int] = (),
        at: tuple[int, Entry] | None = None,
        variants: tuple[tuple[str, tuple[int, ...]], ...] = (),
        leaf: str | None = None,
    ) -> DumpVerdict:
        """Build the verdict; `at` is a rank and its entry of the named collective."""
        files = {p.rank: p for p in self.problems if p.rank is not None}
        unknown = []
        for rank, why in sorted(self.board.unknown.items()):
            problem = files.get(rank)
            text = f"{why}: {problem.text}" if problem else why
            unknown.append(UnknownRank(rank, text, problem.file if problem else ""))
        for dump in self.board.duplicates:
            shows = f"an older dump of rank {dump.rank}, not used"
            self.evidence.append(DumpEvidence(dump.file, dump.rank, shows))
        return DumpVerdict(
            kind=kind,
            status=status,
            reason=reason,
            culprit_ranks=tuple(sorted(culprits)),
            suspect_ranks=tuple(sorted(suspects)),
            collective=at[1].op if at else None,
            group=self.group(*at) if at else None,
            sequence=at[1].number if at else None,
            variants=variants,
            evidence=tuple(self.evidence),
            unknown_ranks=tuple(unknown),
            waiting_ranks=self.waiting,
            world_size=len({*self.board.dumps, *self.board.unknown}) or None,
            leaf=leaf,
        )
