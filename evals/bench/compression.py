"""Size of the digest, and whether it still holds the injected cause."""

from __future__ import annotations

from pathlib import Path

from rerail.domain.evidence import LogLine
from rerail.evals.bench.bars import Bar
from rerail.evals.bench.generate import CULPRIT, Dataset, Truth, write_log
from rerail.evals.bench.onepass import one_pass
from rerail.evals.bench.scan import SIGNATURES
from rerail.evals.bench.signatures import bench_signatures
from rerail.evals.bench.statements import CAUSES
from rerail.log_parsers.digest import LIMIT, Digest, build_digest
from rerail.log_parsers.scan import Scanner, Signature, make_scanner
from rerail.log_parsers.survey import FileSurvey
from rerail.log_parsers.view import LogView

SMALL_LIMIT = 12_000


def digest_of(surveys: list[FileSurvey], *, hits: bool = True, limit: int = LIMIT) -> Digest:
    """Digest surveyed files; without `hits` the miner alone must keep the cause."""
    views = [LogView(one, index, year=2026) for index, one in enumerate(surveys)]
    lines: list[LogLine] = []
    order: list[tuple[str, int]] = []
    for view in views:
        lines += [line for number in view.numbers if (line := view.line(number)) is not None]
        if hits:
            # No roles here: hits in order of line, which puts no initiating line first.
            order += [
                (view.name, hit.line) for hit in view.survey.hits if hit.line in view.survey.kept
            ]
    miners = [(one.source.name, one.miner) for one in surveys if one.miner is not None]
    return build_digest(miners, lines if hits else [], order, limit=limit)


def _kept(digest: Digest, truth: Truth) -> bool:
    file = Path(truth.path).name
    place = f"{file}:{truth.cause_line}"
    rows = [row for row in digest.text.splitlines() if row.startswith(place)]
    return any(truth.cause_text[:40] in row for row in rows)


def measure(data: Dataset, *, small: int) -> list[Bar]:
    """Digest the merged log, the rank logs, and one small log per further cause."""
    signatures = bench_signatures(SIGNATURES)
    scanner = make_scanner(signatures, cache=data.folder / "cache")
    merged = one_pass(Path(data.merged.path), signatures, scanner)
    digest = digest_of([merged])
    ranks = [one_pass(Path(truth.path), signatures, scanner) for truth in data.ranks]
    of_ranks = digest_of(ranks)
    culprit = data.ranks[CULPRIT % len(data.ranks)]
    results = [_kept(digest, data.merged)]
    if culprit.cause_line:
        results.append(_kept(of_ranks, culprit))
    alone = [_kept(digest_of([merged], hits=False), data.merged)]
    short = [_kept(digest_of([merged], limit=SMALL_LIMIT), data.merged)]
    for cause in CAUSES:
        kept = _one_cause(data.folder / f"cause_{cause}.log", cause, small, signatures, scanner)
        results.append(kept[0])
        short.append(kept[1])
        alone.append(kept[2])
    total = sum(truth.size for truth in data.ranks)
    size = len(digest.text.encode())
    largest = max(size, len(of_ranks.text.encode()))
    return [
        Bar("compression", "merged log to digest", 300, data.merged.size / size,
            "size of the log"),
        Bar("compression", f"{len(ranks)} rank logs to digest", 300,
            total / len(of_ranks.text.encode()), "size of the logs"),
        Bar("compression", "largest digest", LIMIT / 1000, largest / 1000, "64 kB", at_most=True,
            unit=" kB"),
        Bar("compression", "injected causes kept verbatim with file:line", 1.0,
            sum(results) / len(results), f"{len(results)} logs", unit=""),
        Bar("compression", f"the same in {SMALL_LIMIT // 1000} kB", 1.0, sum(short) / len(short),
            f"{len(short)} logs", unit=""),
        Bar("compression", "the same by mining alone, without any rule", 1.0,
            sum(alone) / len(alone), f"{len(alone)} logs", unit=""),
    ]  # fmt: skip


def _one_cause(
    path: Path, cause: str, size: int, signatures: list[Signature], scanner: Scanner
) -> tuple[bool, bool, bool]:
    truth = write_log(path, size, seed=23, cause=cause)
    found = one_pass(path, signatures, scanner)
    path.unlink()
    return (
        _kept(digest_of([found]), truth),
        _kept(digest_of([found], limit=SMALL_LIMIT), truth),
        _kept(digest_of([found], hits=False), truth),
    )
