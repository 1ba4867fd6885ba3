"""How long a step takes is read in any wording, or off the stamps of the lines; a rate is no time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from rerail.assistant.pipeline import diagnose_paths
from rerail.assistant.step_logs import read_step_log
from rerail.tools.detectors.detect import detect

SLOW_FROM = 120


def took(at: int, slow: bool = True) -> float:
    return (1.5 if slow and at >= SLOW_FROM else 0.6) * (1 + 0.02 * (at * 7 % 5 - 2))


FORMS = [
    "step {i} loss {x:.4f} | {ms:.0f} ms/it",
    "step {i} loss {x:.4f} | {rate:.3f} it/s",
    "step {i} loss {x:.4f} spent {s:.3f} sec",
    "iter {i} loss {x:.4f} iter_seconds={s:.3f}",
    "batch {i} | loss={x:.4f} | dur={s:.3f}s",
    "step {i} loss {x:.4f} step {s:.3f} s, data 0.0{d} s, eta {eta:.1f} s",
    "step {i} loss {x:.4f} time/step {s:.3f}s",
    "Paso {i}: pérdida {x:.4f}, tiempo {s:.3f} s",
    "update {i}\n   loss -> {x:.4f}\n   time per update -> {s:.3f}",
    "{i}: nll {x:.4f}, {s:.3f} seconds for each",
    "wrote out/step_{i:06d}.json (loss {x:.4f}, {s:.3f} sec)",
    "a{i:07d} loss {x:.4f}±0.01 step {ms:.1f}ms",
    "Étape {i} : perte = {comma}, durée 0,{ms3:03d} s",
]


def line(form: str, at: int, slow: bool) -> str:
    s, x = took(at, slow), 3 - at / 400
    return form.format(
        i=at, x=x, s=s, ms=s * 1000, rate=1 / s, d=at % 7 + 1, eta=(300 - at) * 0.6,
        comma=f"{x:.4f}".replace(".", ","), ms3=int(s * 400),
    )  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_time_is_read_in_any_wording(form: str, tmp_path: Path) -> None:
    for slow in (False, True):
        path = tmp_path / f"{slow}.log"
        path.write_text("\n".join(line(form, at, slow) for at in range(1, 301)) + "\n")
        (series,) = read_step_log(path)
        report = detect(series)
        assert report.outcome.value == ("fail_slow" if slow else "healthy")
        assert report.baseline_s == pytest.approx(0.24 if "ms3" in form else 0.6, rel=0.05)
        if slow:
            assert abs(report.episodes[0].first_step - SLOW_FROM) <= 1


def test_the_line_of_the_time_is_the_evidence(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("\n".join(line(FORMS[8], at, True) for at in range(1, 301)) + "\n")
    found = diagnose_paths([path]).diagnosis
    assert found.failure_type == "fail_slow_unexplained" and found.first_fault is not None
    assert "time per update" in found.first_fault.text


def stamped(path: Path, slow: bool, every_s: float, form: str, pauses: bool = False) -> Path:
    at, lines = datetime(2026, 5, 1, 8, tzinfo=UTC), []
    for step in range(1, 301):
        at += timedelta(seconds=took(step, slow) / 0.6 * every_s)
        lines.append(f"{at:{form}} INFO step {step * 10} loss {3 - step / 400:.4f}")
        if pauses and step > 100:
            at += timedelta(seconds=9 * every_s)
            lines.append(f"{at:{form}} INFO evaluated 200 samples")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("every_s", "form"),
    [(6.0, "%Y-%m-%d %H:%M:%S,%f"), (6.0, "%Y-%m-%d %H:%M:%S"), (0.9, "%Y-%m-%d %H:%M:%S")],
)
def test_stamps_of_the_lines_tell_the_time_of_a_step(
    every_s: float, form: str, tmp_path: Path
) -> None:
    (good,) = read_step_log(stamped(tmp_path / "good.log", False, every_s, form))
    (bad,) = read_step_log(stamped(tmp_path / "bad.log", True, every_s, form))
    assert detect(good).outcome.value == "healthy"
    assert detect(good).baseline_s == pytest.approx(every_s / 10, rel=0.05)
    report = detect(bad)
    assert report.outcome.value == "fail_slow"
    assert abs(report.episodes[0].first_step - 10 * SLOW_FROM) <= 200


def test_what_the_program_does_between_steps_is_no_slow_step(tmp_path: Path) -> None:
    path = stamped(tmp_path / "a.log", False, 6.0, "%Y-%m-%d %H:%M:%S,%f", pauses=True)
    (series,) = read_step_log(path)
    assert detect(series).outcome.value == "healthy"
    assert np.isnan(series.step_time_s[150])


def test_a_rate_alone_tells_no_seconds_and_with_stamps_those_of_the_clock(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    lines = [
        f"iteration {i}/900 | lm loss: {3 - i / 400:.4f} | tokens/sec: {33000 / took(i):.1f}"
        for i in range(1, 301)
    ]
    path.write_text("\n".join(lines) + "\n")
    report = detect(read_step_log(path)[0])
    assert report.outcome.value == "fail_slow" and report.lost_s == 0.0 and report.lost_share > 0.3
    assert np.isnan(report.baseline_s) and "a rate and no time" in report.notes[-1]
    at, stamped_lines = datetime(2026, 5, 1, 8, tzinfo=UTC), []
    for i, text in enumerate(lines, 1):
        at += timedelta(seconds=took(i))
        stamped_lines.append(f"{at:%Y-%m-%d %H:%M:%S,%f} {text}")
    path.write_text("\n".join(stamped_lines) + "\n")
    report = detect(read_step_log(path)[0])
    assert report.outcome.value == "fail_slow" and report.lost_s > 60


def test_a_counter_of_each_epoch_is_no_restart(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    spike = range(130, 140)
    path.write_text(
        "".join(
            f"ep {i // 50} / it {i % 50}: loss={(9 if i in spike else 3) - i / 400:.4f}\n"
            for i in range(250)
        )
    )
    report = detect(read_step_log(path)[0])
    assert report.notes[0].startswith("the counter begins anew with each epoch, 4 times")
    assert [event.kind.value for event in report.events][:1] == ["loss_spike"]


def test_a_folder_without_a_series_is_no_error_of_rerail_and_damage_is_told(tmp_path: Path) -> None:
    from rerail.errors import EvidenceError

    (tmp_path / "a.log").write_text("hello\n")
    with pytest.raises(EvidenceError, match="no step lines"):
        read_step_log(tmp_path)
    history = ", ".join(f'{{"step": {i}, "loss": {3 - i / 400:.3f}}}' for i in range(1, 50))
    path = tmp_path / "trainer_state.json"
    path.write_text(f'{{"best_metric": null, "log_history": [{history}, {{"step": 50, "lo')
    (series,) = read_step_log(path)
    assert any("cut or damaged" in note for note in detect(series).notes)


def test_a_table_of_several_runs_is_read_for_the_first(tmp_path: Path) -> None:
    path = tmp_path / "panel.csv"
    path.write_text(
        '"Step","blue-1 - train/loss","blue-1 - train/loss__MIN","blue-1 - train/loss__MAX","red-2 - train/loss"\n'
        + "".join(f'"{i}","{3 - i / 400}","0","9","7"\n' for i in range(1, 60))
    )
    (series,) = read_step_log(path)
    assert series.loss is not None and series.loss[0] == pytest.approx(3 - 1 / 400)
    assert any("only 'blue-1' was read" in note for note in detect(series).notes)
