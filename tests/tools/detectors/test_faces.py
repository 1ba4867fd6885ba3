import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from rerail.assistant.cli.detect import detect_command
from rerail.domain.series import StepSeries
from rerail.errors import EvidenceError, UsageError
from rerail.tools.detectors import svg_plot, terminal_plot
from rerail.tools.detectors.detect import detect
from rerail.tools.detectors.read_series import read_series


def write(tmp_path, text, name="steps.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def table(values, rank=None):
    tail = "" if rank is None else f",{rank}"
    return "".join(f"{i},{v:.5f}{tail}\n" for i, v in enumerate(values))


def slow_values():
    values = np.exp(np.random.default_rng(0).normal(0, 0.01, 200))
    values[100:160] *= 1.5
    return values


def test_reads_ranks_units_and_empty_cells(tmp_path):
    text = "Step;step_time_ms;loss;rank\n1;500;;0\n2;510;2.5;0\n1;480;na;1\n\n2;490;2.4;1\n"
    first, second = read_series(write(tmp_path, text))
    assert (first.rank, second.rank) == (0, 1)
    assert first.step_time_s.tolist() == pytest.approx([0.5, 0.51])
    assert np.isnan(first.loss[0])
    assert first.loss[1] == 2.5


def test_step_times_from_the_clock(tmp_path):
    (series,) = read_series(write(tmp_path, "step,time\n10,100\n20,120\n30,140\n"))
    assert series.step_time_s.tolist()[1:] == [2.0, 2.0]


def test_dates_are_a_clock_and_two_runs_in_a_file_are_told(tmp_path):
    path = tmp_path / "dated.csv"
    rows = [f"{i % 20},2026-01-01T00:00:{i:02d}" for i in range(40)]
    path.write_text("step,time\n" + "\n".join(rows) + "\n")
    [series] = read_series(path)
    assert series.step_time_s[1] == 1.0 and np.isnan(series.step_time_s[20])
    [note] = detect(series).notes
    assert "steps go back from 19 to 0" in note
    path.write_text(
        "step,step_time_s\n" + "".join(f"{i},{'nan' if i == 5 else 1}\n" for i in range(20))
    )
    assert detect(read_series(path)[0]).notes[0].startswith("1 of 20 rows")


def test_restart_is_kept_and_shuffled_rows_are_sorted(tmp_path):
    restart = "step,step_time_s\n" + table([1.0] * 20) + table([1.0] * 20)
    assert read_series(write(tmp_path, restart))[0].step[20] == 0
    rows = table(np.linspace(1, 2, 50)).splitlines(keepends=True)
    shuffled = "step,step_time_s\n" + "".join(
        rows[i] for i in np.random.default_rng(0).permutation(50)
    )
    assert (np.diff(read_series(write(tmp_path, shuffled))[0].step) == 1).all()


def test_repeated_step_counts_once(tmp_path):
    (series,) = read_series(write(tmp_path, "step,step_time_s\n1,1\n1,2\n2,1\n"))
    assert series.step.tolist() == [1, 2]
    assert series.step_time_s.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step,step_time_s\n1,2\n2,abc\n", r"line 3 column step_time_s: 'abc' is not a number"),
        ("step,step_time_s\n1.5,2\n", r"line 2 column step: 1.5 is not a whole number"),
        ("step,step_time_s\n1,-2\n", r"line 2 column step_time_s: a step cannot take -2"),
        ("step,step_time_s\n1,0\n", r"line 2 column step_time_s: a step cannot take 0"),
        ("a,b\n1,2\n", r"line 1: need the columns step and step_time_s, found a, b"),
        ("step,step_time_s,step_time_ms\n1,2,3\n", r"line 1: columns .* are both step_time_s"),
        ("step,step_time_s\n", "has no data rows"),
        ("", "is empty"),
        (
            "step,step_time_s\n" + "".join(f"{i},{0.5 if i < 10 else 500}\n" for i in range(20)),
            "line 12 column step_time_s: step times fall in two groups",
        ),
    ],
)
def test_bad_tables_are_refused_with_their_place(tmp_path, text, message):
    with pytest.raises(EvidenceError, match=message):
        read_series(write(tmp_path, text))


def test_missing_file(tmp_path):
    with pytest.raises(EvidenceError, match="does not exist"):
        read_series(tmp_path / "none.csv")
    with pytest.raises(EvidenceError, match="does not exist"):
        read_series(tmp_path / "none.parquet")


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "steps.parquet"
    parquet.write_table(pa.table({"step": [1, 2, 3], "step_time_s": [1.0, None, 1.2]}), path)
    (series,) = read_series(path)
    assert np.isnan(series.step_time_s[1])
    broken = write(tmp_path, "not parquet", "broken.parquet")
    with pytest.raises(EvidenceError, match="not a Parquet file"):
        read_series(broken)


def test_plots_of_a_slow_phase_and_of_nothing():
    series = StepSeries("a <b>", np.arange(200), slow_values())
    report = detect(series)
    text = terminal_plot.render(series, report)
    assert "#" in text
    assert "^" in text
    assert text.isascii()
    root = ET.fromstring(svg_plot.render([(series, report)]))
    assert root.tag.endswith("svg")
    assert any("lost" in (node.text or "") for node in root.iter())
    empty = StepSeries("none", [], [])
    assert terminal_plot.render(empty, detect(empty)) == ""
    ET.fromstring(svg_plot.render([(empty, detect(empty))]))


def test_command_prints_json_and_writes_a_plot(tmp_path, capsys):
    path = write(tmp_path, "step,step_time_s\n" + table(slow_values()))
    plot = tmp_path / "steps.svg"
    assert detect_command([path], True, plot) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["schema_version"] == 1
    assert out["series"][0]["outcome"] == "fail_slow"
    ET.fromstring(plot.read_text())


def test_command_prints_tables(tmp_path, capsys):
    ranks = "step,step_time_s,rank\n" + table(slow_values(), 3) + table(np.ones(200), 1)
    assert detect_command([write(tmp_path, ranks)], no_color=True) == 0
    out = capsys.readouterr().out
    assert "rank 3" in out
    assert "slow_onset" in out
    assert "\x1b" not in out


def test_command_exit_codes(tmp_path):
    assert detect_command([write(tmp_path, "step,step_time_s\n" + table(np.ones(50)))]) == 3
    assert detect_command([write(tmp_path, "step,step_time_s\n1,1\n")]) == 10
    with pytest.raises(UsageError):
        detect_command([])
    with pytest.raises(UsageError):
        detect_command([tmp_path / "a.csv"], plot=tmp_path / "a.pdf")
