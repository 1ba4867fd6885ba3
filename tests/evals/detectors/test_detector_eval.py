import gzip
import json

import numpy as np
from rich.console import Console

from rerail.evals.detectors.command import detectors_command
from rerail.evals.detectors.methods import METHODS, focus
from rerail.evals.detectors.real_logs import judge, judge_mlperf
from rerail.evals.detectors.scoring import Alarm, Score
from rerail.evals.detectors.step_sets import FAMILIES, Labelled, TrueChange, falcon_set


def labelled(n=1000):
    changes = (TrueChange(300, 300, 1, 0.3, 300), TrueChange(600, 600, -1, 0.3, 600))
    return Labelled("x", np.ones(n), changes, True)


def test_score_counts_hits_misses_and_false_alarms():
    score = Score()
    score.add(labelled(), [Alarm(305, 1, 300), Alarm(310, 1, 306), Alarm(50, 1, 50)])
    assert (score.hits, score.true_changes, score.false) == (1, 2, 1)
    assert score.delay == 5
    assert score.accuracy == 1.0


def test_wrong_sign_is_no_hit():
    score = Score()
    score.add(labelled(), [Alarm(305, -1, 300)])
    assert (score.hits, score.false) == (0, 1)


def test_generators_are_reproducible_and_labelled():
    for make in FAMILIES.values():
        a, b = (make(np.random.default_rng(5), 6000) for _ in range(2))
        assert np.array_equal(a.values, b.values)
        assert (a.values > 0).all()
        assert all(0 <= change.at < 6000 for change in a.changes)
    jobs = falcon_set("comm", 1, 2000)
    assert (len(jobs), sum(job.fail_slow for job in jobs)) == (107, 43)


def test_every_family_is_judged_right_by_the_detector():
    score = Score()
    for make in FAMILIES.values():
        for seed in range(2):
            item = make(np.random.default_rng((77, seed)), 8000)
            score.add(item, METHODS[1].run(item.values[None, :])[0])
    assert score.f1 >= 0.97


def test_focus_finds_a_jump():
    values = np.exp(np.random.default_rng(0).normal(0, 0.01, 600))
    values[300:] *= 1.3
    (alarm,) = focus(values)
    assert abs(alarm.at - 300) <= 2


def test_real_log_lines_are_read(tmp_path):
    slow = [105.18, 105.15, 105.16, 105.17, 106.25, 110.17, 111.14, 111.2, 111.09, 111.17]
    lines = [
        f"iteration {i}/ 100 | elapsed time per iteration (s): {t} | lm loss: 2.0E+00 |"
        for i, t in enumerate(slow)
    ]
    assert judge(lines, "c", "fail_slow").outcomes == ("fail_slow",)
    (tmp_path / "index.json").write_text(json.dumps([{"file": "0.log.gz", "label": "fail_slow"}]))
    with gzip.open(tmp_path / "0.log.gz", "wt") as handle:
        handle.write("\n".join(lines))
    assert judge_mlperf(tmp_path)[0].outcomes == ("fail_slow",)


def test_command_prints_a_table_and_bars(capsys):
    console = Console(width=120)
    assert detectors_command(quick=True, only="healthy", console=console) in (0, 1)
    assert "D1" in capsys.readouterr().out
