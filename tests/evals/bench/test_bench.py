"""The benchmarks run on tiny data and know the truth; how fast they are is not tested here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rerail.errors import UsageError
from rerail.evals.bench import compression, manyfiles, memory, mining, onepass, scan, startup
from rerail.evals.bench.bars import Bar
from rerail.evals.bench.command import NAMES, bench_command
from rerail.evals.bench.generate import CULPRIT, Dataset, labelled_lines, make_dataset, write_log
from rerail.evals.bench.signatures import bench_signatures


def no_drain(*_: object) -> None:
    raise RuntimeError("no network in tests")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("bench"), 3_000_000, ranks=2)


def test_the_generator_knows_its_lines(tmp_path: Path) -> None:
    truth = write_log(tmp_path / "a.log", 4_000_000, seed=3)
    raw = (tmp_path / "a.log").read_bytes()
    lines = raw.split(b"\n")
    assert len(raw) == truth.size
    assert raw.count(b"\n") == truth.lines
    assert lines[truth.cause_line - 1].decode() == f"[rank{CULPRIT}]: {truth.cause_text}"
    assert raw.count(b"Watchdog caught collective operation timeout") == 63
    assert max(map(len, lines)) > 16_000
    assert all(b" INFO " in lines[number - 1] for number in truth.rare_lines)
    again = write_log(tmp_path / "b.log", 4_000_000, seed=3)
    assert (tmp_path / "b.log").read_bytes() == raw
    assert again.cause_line == truth.cause_line


def test_labels_and_accuracy() -> None:
    labelled = list(labelled_lines(3_000))
    assert len(labelled) == 3_000
    truth = [statement for statement, _ in labelled]
    assert mining.accuracy(truth, truth) == (1.0, 1.0)
    assert mining.accuracy([1, 1, 2, 2], [7, 7, 8, 9]) == (0.5, 0.4)
    grouping, groups = mining.accuracy(truth, mining.our_groups([line for _, line in labelled]))
    assert grouping > 0.5
    assert groups > 0.5


def test_signatures_are_two_thousand_and_differ() -> None:
    patterns = [signature.pattern for signature in bench_signatures(2_000)]
    assert len(set(patterns)) == len(patterns) == 2_000


@pytest.mark.slow
def test_the_scan_finds_the_cause_and_does_not_depend_on_chunks(data: Dataset) -> None:
    bars = scan.measure(data, runs=1)
    assert bars[-1].met


@pytest.mark.slow
def test_every_bench_runs(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mining, "drain3_run", no_drain)
    bars: list[Bar] = [
        *mining.measure(data, runs=1, lines=500),
        *onepass.measure(data, runs=1),
        *memory.measure(data, total=6_000_000),
        *compression.measure(data, small=60_000),
        *startup.measure(data, runs=1),
        *manyfiles.measure(data, files=10, size=60_000),
    ]
    by_name = {bar.what: bar for bar in bars}
    assert by_name["injected causes kept verbatim with file:line"].met
    assert by_name["the same in 12 kB"].met
    assert by_name["lines per second, templates included"].met is None
    assert all(bar.measured is None or bar.measured > 0 for bar in bars)


def test_the_command_prints_json_and_deletes_its_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mining, "drain3_run", no_drain)
    code = bench_command(["mining"], 0.003, tmp_path / "new", True, runs=1)
    found = json.loads(capsys.readouterr().out)
    assert code in (0, 1)
    assert {bar["bench"] for bar in found["bars"]} == {"mining"}
    assert not (tmp_path / "new").exists()
    with pytest.raises(UsageError):
        bench_command(["nonsense"], 0.003, tmp_path, True)
    assert "mining" in NAMES
