"""The statistics of a site: exact where a table or a short calculation gives the truth."""

import pytest

from rerail.errors import EvidenceError
from rerail.tools.fleet.efficiency import Loss, efficiency
from rerail.tools.fleet.outliers import by_job, by_time
from rerail.tools.fleet.reliability import mean_time, reliability
from rerail.tools.fleet.runs import Run, read_runs

HEAD = "JobID|User|State|Submit|Start|End|NodeList|AllocTRES\n"


def run(job, hours, gpus=8, attempt=0, start=0.0):
    return Run(job, attempt, "u", "COMPLETED", ("n1",), gpus, start, start, start + hours * 3600)


def test_the_worst_of_many_equal_nodes_is_chance_and_one_far_beyond_is_not():
    exposure = {f"n{i}": 100.0 for i in range(1000)}
    healthy = {f"n{i}": count for i, count in enumerate([6, 5, 5, 4, 4, 4] + [1] * 900)}
    assert not any(one.stands_out for one in by_time(healthy, exposure))
    first, second, *_ = by_time({**healthy, "n7": 25, "n8": 21}, exposure)
    assert {first.name, second.name} == {"n7", "n8"} and first.stands_out and second.stands_out
    assert not any(one.stands_out for one in by_time({**healthy, "n7": 25}, exposure)[1:])


def test_a_node_in_more_jobs_is_in_more_failures():
    exposure = {f"n{i}": 10.0 for i in range(100)} | {"busy": 1000.0}
    counts = {f"n{i}": 1 for i in range(10)} | {"busy": 12}
    busy = next(one for one in by_time(counts, exposure) if one.name == "busy")
    assert not busy.stands_out and busy.expected == pytest.approx(11)
    assert by_time({"n1": 3}, {}) == [] and by_time({}, exposure) == []


def test_users_are_judged_by_their_jobs():
    jobs = {f"u{i}": 100 for i in range(20)}
    failed = {f"u{i}": 10 for i in range(20)} | {"u3": 60}
    found = by_job(failed, jobs)
    assert [one.name for one in found if one.stands_out] == ["u3"]


def test_intervals_are_those_of_the_tables():
    """Garwood 1936: 95 % limits of a Poisson mean for 0, 1 and 10 counts."""
    for count, low, high in ((1, 0.0253, 5.5716), (10, 4.7954, 18.3904)):
        one = mean_time(100.0, count)
        assert one.hours == 100 / count
        assert 100 / one.high == pytest.approx(low, rel=1e-3)
        assert 100 / one.low == pytest.approx(high, rel=1e-4)
    none = mean_time(100.0, 0)
    assert none.hours is None and none.high is None and 100 / none.low == pytest.approx(3.6889, rel=1e-4)  # fmt: skip


def test_sizes_that_share_a_rate_are_projected_and_others_are_doubted():
    runs = [run(f"s{i}", 10, 8) for i in range(1000)] + [run(f"b{i}", 10, 128) for i in range(100)]
    alike = [(f"s{i}", 0) for i in range(40)] + [(f"b{i}", 0) for i in range(64)]
    fit = reliability(runs, alike)
    assert [(s.least, s.most, s.failures) for s in fit.sizes] == [(1, 8, 40), (65, 128, 64)]
    assert fit.per_gpu_hour == pytest.approx(104 / 208_000) and fit.one_rate > 0.5
    assert fit.projection[0][0] == 256 and fit.projection[0][1].hours == pytest.approx(208_000 / 256 / 104)  # fmt: skip
    odd = reliability(runs, [(f"s{i}", 0) for i in range(40)] + [(f"b{i}", 0) for i in range(5)])
    assert odd.one_rate < 0.01
    assert reliability(runs, []).projection == () and reliability([], []).sizes == ()


def test_ettr_counts_waits_and_goodput_does_not():
    runs = [run("a", 10), run("a", 10, attempt=1, start=12 * 3600.0)]
    told = efficiency(runs, {("a", 0): Loss(1800.0, 5400.0)})
    assert told.ettr == pytest.approx(18 / 22) and told.goodput == pytest.approx(18 / 20)
    assert (told.jobs, told.failures, told.known, told.lost_gpu_hours) == (
        1,
        1,
        1,
        pytest.approx(16),
    )
    assert efficiency(runs, {("a", 0): Loss(None, 60.0)}).known == 0
    assert efficiency([], {}).ettr is None


def test_a_record_of_sacct_is_read_with_its_attempts_and_its_odd_rows_passed_over(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(
        HEAD
        + "7|ito|FAILED|1000|1100|4700|gpu[01-02]|cpu=2,gres/gpu=16,node=2\n"
        + "7|ito|COMPLETED|4700|5000|8600|gpu01|gres/gpu:h100=8,gres/gpu=8\n"
        + "8_3|ann|CANCELLED by 0|2026-01-01T00:00:00|2026-01-01T00:00:10|2026-01-01T01:00:10|gpu[|\n"
        + "9|ann|PENDING|1000|Unknown|Unknown|None assigned|\nhalf a row\n"
    )
    found = read_runs(path)
    assert [(r.job, r.attempt, r.gpus, r.nodes) for r in found.runs] == [
        ("7", 0, 16, ("gpu01", "gpu02")), ("7", 1, 8, ("gpu01",)), ("8_3", 0, 0, ()),
    ]  # fmt: skip
    assert found.runs[0].hours == 1.0 and found.runs[2].state == "CANCELLED"
    assert found.passed_over == 2
    path.write_text("JobID|User\n")
    with pytest.raises(EvidenceError, match="line 1: no column State"):
        read_runs(path)
