"""Template mining: lines per second and grouping accuracy, against drain3 with its defaults.

loghub may not be packaged and cannot always be had, so accuracy is measured on the statements of
the generator: they are made up, few for their number of lines, and easier than real logs. Read it
as a comparison on equal lines, not as a score.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from rerail.evals.bench.bars import Bar
from rerail.evals.bench.baselines import DRAIN3, drain3_run
from rerail.evals.bench.generate import Dataset, labelled_lines
from rerail.evals.bench.timing import Cost, best_interleaved, cost_of_call
from rerail.log_parsers.opening import open_source
from rerail.log_parsers.skeletons import SkeletonMiner
from rerail.log_parsers.sources import Source, iter_chunks
from rerail.log_parsers.templates import mine_templates, templates_of

LINES = 100_000
"""Lines given to drain3; it gets slower with more, so few lines favour it."""


def accuracy(truth: Sequence[int], found: Sequence[int]) -> tuple[float, float]:
    """Return (grouping accuracy, F1 of groups): both count groups that hold exactly one statement.

    Source: Jiang et al., "A Large-Scale Evaluation for Log Parsing Techniques" (2024), section 3.
    """
    sizes = Counter(found)
    wanted = Counter(truth)
    members: dict[int, Counter[int]] = defaultdict(Counter)
    for own, given in zip(truth, found, strict=True):
        members[given][own] += 1
    right = [
        size
        for group, size in sizes.items()
        if len(members[group]) == 1 and wanted[next(iter(members[group]))] == size
    ]
    return sum(right) / len(truth), 2 * len(right) / (len(sizes) + len(wanted))


def our_groups(lines: Sequence[bytes]) -> list[int]:
    """Return the template index of each line."""
    miner = SkeletonMiner()
    for number, line in enumerate(lines, 1):
        miner.feed(line + b"\n", number)
    entries = list(miner.entries())
    _, owner = templates_of(entries)
    by_skeleton = {entry.skeleton: at for entry, at in zip(entries, owner, strict=True)}
    found = []
    for number, line in enumerate(lines, 1):
        one = SkeletonMiner()
        one.feed(line + b"\n", number)
        found.append(by_skeleton[next(iter(one.entries())).skeleton])
    return found


def _mine(path: Path) -> tuple[int, int]:
    miner = SkeletonMiner()
    number = 1
    with open_source(Source(path, path.name)) as stream:
        for chunk in iter_chunks(stream):
            miner.feed(chunk, number)
            number += chunk.count(b"\n")
    return miner.frames, len(mine_templates(miner))


def measure(data: Dataset, *, runs: int, lines: int = LINES) -> list[Bar]:
    """Mine the merged log, and the same labelled lines with both miners."""
    path = Path(data.merged.path)
    labelled = list(labelled_lines(lines))
    sample = data.folder / "labelled.log"
    sample.write_bytes(b"\n".join(line for _, line in labelled) + b"\n")
    truth = [statement for statement, _ in labelled]
    frames = _mine(path)[0]  # also pays for imports before the clock runs
    title = "lines per second, templates included"
    try:
        groups = drain3_run(sample, data.folder).groups
    except RuntimeError as error:
        return [Bar("mining", title, 20.0, None, DRAIN3, note=str(error))]

    def drain() -> Cost:
        return Cost(drain3_run(sample, data.folder).seconds, 0.0)

    ours, theirs = best_interleaved(runs, lambda: cost_of_call(lambda: _mine(path)), drain)
    rate, base = frames / ours.cpu_s, lines / theirs.cpu_s
    own, other = (
        accuracy(truth, our_groups([line for _, line in labelled])),
        accuracy(truth, groups),
    )
    note = "the generator's statements; loghub not used"
    baseline = f"{DRAIN3}, default settings, first {lines:,} lines"
    return [
        Bar("mining", title, 20.0, rate / base, baseline,
            note=f"{rate / 1e6:.2f} M against {base / 1e3:.0f} k lines/s"),
        Bar("mining", "grouping accuracy less drain3's", 0.0, own[0] - other[0], baseline, unit="",
            note=f"{own[0]:.3f} against {other[0]:.3f}, {note}"),
        Bar("mining", "F1 of groups less drain3's", 0.0, own[1] - other[1], baseline, unit="",
            note=f"{own[1]:.3f} against {other[1]:.3f}, {note}"),
    ]  # fmt: skip
