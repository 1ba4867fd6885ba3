"""A line may hold several frames, drawn over by carriage returns, and each may be another's."""

from __future__ import annotations

import pytest

from rerail.assistant.pipeline import diagnose_texts
from rerail.cached_yaml import load_cached
from rerail.log_parsers.frames import written_by
from rerail.log_parsers.labels import PATH
from rerail.log_parsers.prefixes import parse_line

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
BARS = "".join(
    f"\r{n // 3:3d}%|{'#' * (n // 30):<10}| {n}/300 [{n // 60:02d}:{n % 60:02d}<04:00,  1.00s/it]"
    for n in range(120)
)


@pytest.mark.parametrize(
    ("line", "rank", "node"),
    [
        (f"{BARS}\r[rank3]: {OOM}", 3, None),
        (f"{BARS}[rank3]: {OOM}", 3, None),  # the bar's end is not written before it is full
        (f"[rank3]: {OOM}{BARS}", 3, None),
        (f"[rank3]: hello\r[rank3]: {OOM}", 3, None),
        (f"[rank1]: hello{BARS}\r[rank3]: {OOM}", None, None),
        (f"gn-01: hello\rgn-02: {OOM}", None, None),
        (f"gn-01: [rank1]: hello\rgn-01: [rank3]: {OOM}", None, "gn-01"),
        (f"gn-01: {BARS}\rgn-02: {OOM}", None, "gn-02"),
    ],
)
def test_the_writer_of_a_line_is_who_all_its_frames_name(
    line: str, rank: int | None, node: str | None
) -> None:
    first = diagnose_texts({"job.log": f"starting\n{line}\n"}).diagnosis.first_fault
    assert first is not None and (first.rank, first.node) == (rank, node)


def test_a_log_whose_lines_end_with_carriage_returns_accuses_nobody_else() -> None:
    rows = [f"2026-03-03 10:00:01 [rank{n % 8}]: step {n // 8} loss 2.5" for n in range(400)]
    rows += ["[rank3]: Traceback (most recent call last):", f"[rank3]: {OOM}"]
    found = diagnose_texts({"job.log": "\r".join(rows)}).diagnosis
    assert found.failure_type == "cuda_oom"
    assert set(found.suspects.ranks) <= {3}


def test_the_bar_is_known_by_its_example() -> None:
    text = load_cached(PATH)["bar_in_front"]["example"]
    whole = parse_line("x.log", 1, text, year=2026)
    assert whole.rank is None
    line = written_by(whole, text.encode(), lambda one: parse_line("x.log", 1, one, year=2026))
    assert line.rank == 3
