"""Evaluation plans: what they cover, what they expect, and the rules they stand beside."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerail.errors import ConfigError
from rerail.evals.evaluation.toy import toy_speedups
from rerail.tools.evaluation import plan as plan_module
from rerail.tools.evaluation.baselines import one_job_per_set, size_partitioned
from rerail.tools.evaluation.page import render as page
from rerail.tools.evaluation.plan import plan_evaluation
from rerail.tools.evaluation.rows import Report, plan_frames, planned, ran
from rerail.tools.evaluation.spec import parse_evaluation


def spec(times, nodes=1, gpus=2, **more):
    sets = {
        f"d{i}": {"inference_s": t, "items": n, "metric_s": m} for i, (t, n, m) in enumerate(times)
    }
    cluster = {"nodes": nodes, "gpus_per_node": gpus, "cpus_per_node": 4}
    return parse_evaluation({"datasets": sets, "cluster": cluster, **more})


SETS = st.lists(
    st.tuples(st.floats(0, 500), st.integers(1, 300), st.floats(0, 50)), min_size=1, max_size=12
)


@settings(max_examples=40, deadline=None)
@given(SETS, st.integers(1, 3), st.integers(1, 5))
def test_every_item_is_inferred_once_and_no_bound_is_beaten(times, nodes, gpus):
    one = spec(times, nodes, gpus)
    plan = plan_evaluation(one)
    for name, data in one.datasets.items():
        parts = sorted(
            (p.first, p.last) for t in plan.trials for p in t.pieces if p.dataset == name
        )
        assert parts[0][0] == 0 and parts[-1][1] == data.items
        assert all(a[1] == b[0] for a, b in pairwise(parts))
    assert plan.makespan_s >= plan.bound_s - 1e-6


def test_no_gpu_and_no_cpu_does_two_things_at_once():
    rng = np.random.default_rng(1)
    one = spec([(float(t), 50, float(t) / 3) for t in rng.lognormal(3, 1, 20)], 2, 3)
    slots = plan_evaluation(one).slots
    for kind in ("inference", "metric"):
        for place in range(8):
            mine = sorted((s.begin_s, s.end_s) for s in slots if (s.kind, s.place) == (kind, place))
            assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(mine))
    end = {s.name.split("[")[0]: 0.0 for s in slots}
    for s in slots:
        if s.kind == "inference":
            name = s.name.split("[")[0]
            end[name] = max(end[name], s.end_s)
    assert all(s.begin_s >= end[s.name] for s in slots if s.kind == "metric")


def test_a_set_longer_than_a_gpu_s_share_is_split_and_one_item_is_not():
    plan = plan_evaluation(spec([(100, 100, 0), (1, 1, 0)], gpus=4))
    assert len([p for t in plan.trials for p in t.pieces if p.dataset == "d0"]) >= 4
    assert plan.makespan_s < 30
    whole = plan_evaluation(spec([(100, 1, 0), (1, 1, 0)], gpus=4))
    assert whole.makespan_s == pytest.approx(100)


def test_the_longest_metric_is_not_left_to_the_end():
    plan = plan_evaluation(spec([(10, 1, 0)] * 6 + [(10, 1, 40)], gpus=1))
    assert plan.makespan_s == pytest.approx(70)


def test_large_plans_weigh_as_many_pieces_as_are_allowed_and_no_more(monkeypatch):
    weighed = []
    clock = plan_module.expected

    def counted(spec, trials, *more):
        weighed.append(sum(len(trial.pieces) for trial in trials))
        return clock(spec, trials, *more)

    monkeypatch.setattr(plan_module, "expected", counted)
    one = spec([(1e4, 10**6, 1)] + [(36, 1000, 1)] * 20, nodes=8, gpus=8)
    plan = plan_evaluation(one)
    whole = sum(weighed)
    monkeypatch.setattr(plan_module, "_MOST_PIECES", whole // 4)
    weighed.clear()
    assert plan.makespan_s <= plan_evaluation(one).makespan_s < 3 * plan.bound_s
    assert sum(weighed) < whole / 2


def test_what_is_left_is_planned_with_the_times_that_were_seen():
    one = spec([(10, 10, 0), (10, 10, 0)], gpus=1)
    plan = plan_evaluation(one, {"d0": [(6, 10)]}, {"d0": 3.0}, scored={"d1"}, loaded=True)
    assert {(p.dataset, p.first, p.last) for t in plan.trials for p in t.pieces} == {("d0", 6, 10)}
    assert plan.makespan_s == pytest.approx(12)


def test_the_rule_of_opencompass_splits_evenly_and_packs_in_falling_order():
    one = spec([(1, 5000, 0), (1, 1500, 0), (1, 900, 0), (1, 400, 0), (1, 100, 0)])
    _, tasks = size_partitioned(one)
    sizes = [[(p.dataset, p.last - p.first) for p in t.pieces] for t in tasks]
    # 5,000 items of cost 20 are 100,000: three parts of 1,667; then 30,000; 18,000 + 8,000 + 2,000.
    assert sizes[:3] == [[("d0", 1667)], [("d0", 1667)], [("d0", 1666)]]
    assert sizes[3:] == [[("d1", 1500)], [("d2", 900), ("d3", 400), ("d4", 100)]]


def test_jobs_that_load_together_load_longer():
    alone = spec([(0, 1, 0)], gpus=4, model={"load_s": 40, "contention": 0.05})
    four = spec([(0, 1, 0)] * 4, gpus=4, model={"load_s": 40, "contention": 0.05})
    assert one_job_per_set(alone) == pytest.approx(40)
    assert one_job_per_set(four) == pytest.approx(40 * 1.15)


def test_the_toy_of_the_paper_s_size_gains_at_least_what_the_paper_reports():
    one, four = toy_speedups(150, nodes=1), toy_speedups(40, nodes=4)
    assert np.median(one.over_jobs) >= 1.3
    assert np.median(four.over_jobs) >= 1.8
    assert np.median(one.over_sizes) >= 1.0 and np.median(four.over_sizes) >= 1.0


@pytest.mark.parametrize(
    ("key", "content"),
    [
        ("datasets", {"datasets": {}}),
        ("datasets.a.inference_s", {"datasets": {"a": {"inference_s": -1}}}),
        ("datasets.a.items", {"datasets": {"a": {"inference_s": 1, "items": 0}}}),
        ("cluster.nodes", {"datasets": {"a": {"inference_s": 1}}, "cluster": {"nodes": 0}}),
        ("cluster.nodes", {"datasets": {"a": {"inference_s": 1}}, "cluster": {"nodes": 10**9}}),
        ("datasets.a.items", {"datasets": {"a": {"inference_s": 1, "items": 10**12}}}),
        ("harness", {"datasets": {"a": {"inference_s": 1}}, "harness": {"kind": "command"}}),
        ("spec", ["datasets"]),
        ("drift", {"datasets": {"a": {"inference_s": 1}}, "drift": float("inf")}),
        ("drift", {"datasets": {"a": {"inference_s": 1}}, "drift": float("nan")}),
        ("drift", {"datasets": {"a": {"inference_s": 1}}, "drift": 1e300}),
        ("datasets.a.inference_s", {"datasets": {"a": {"inference_s": 1e300}}}),
        ("datasets.a.metric_s", {"datasets": {"a": {"inference_s": 1, "metric_s": float("inf")}}}),
        ("model.contention", {"datasets": {"a": {"inference_s": 1}}, "model": {"contention": 1e9}}),
        ("cluster.gpus_per_node", {"datasets": {"a": {"inference_s": 1}}, "cluster": {"nodes": 30_000, "gpus_per_node": 64}}),
        ("cluster.cpus_per_node", {"datasets": {"a": {"inference_s": 1}}, "cluster": {"nodes": 30_000, "gpus_per_node": 1}}),
        ("datasets", {"datasets": {n: {"inference_s": 1, "items": 6 * 10**7} for n in "ab"}}),
        ("datasets", {"datasets": {f"d{i}": {"inference_s": 1} for i in range(10_001)}}),
        ("harness.kind", {"datasets": {"a": {"inference_s": 1}}, "harness": {"kind": "x"}}),
    ],
)  # fmt: skip
def test_the_wrong_key_is_named(key, content):
    with pytest.raises(ConfigError) as raised:
        parse_evaluation(content)
    assert raised.value.subject == key


def test_a_plan_is_drawn_and_its_names_are_escaped(tmp_path):
    sets = {"<b>&": {"inference_s": 30.0, "items": 10}, "b": {"inference_s": 10.0, "metric_s": 5.0}}
    one = parse_evaluation({"datasets": sets, "cluster": {"gpus_per_node": 2}})
    plan = plan_evaluation(one)
    tasks = [("stage", "the model", 0.0, 1.0), ("trial", "b[0:1]", 1.0, 9.0), ("metric", "b", 9.0, 12.0)]  # fmt: skip
    report = Report(
        "x", one, plan, {"this plan": plan.makespan_s}, (planned(one, plan), ran(tasks))
    )
    run = {"metrics": {"b": {"acc": 0.5}}, "failed": {"<b>&": "<i>"}, "replanned": []}
    text = page(report, run | {"makespan_s": 12.0, "expected_s": 40.0, "tasks": 3, "retried": 0})
    assert "<b>&" not in text and "&lt;b&gt;&amp;" in text and "&lt;i&gt;" in text
    assert "acc 0.5" in text and "<svg" in text
    assert [bar.kind for bar in report.timelines[1].bars] == ["load", "inference", "metric"]
    assert [bar.row for bar in report.timelines[1].bars] == [0, 0, 1]


def test_two_tasks_at_a_time_are_two_rows():
    rows = ran([("trial", "a", 0.0, 5.0), ("trial", "b", 1.0, 3.0), ("trial", "c", 3.0, 4.0)])
    assert rows.rows == ("GPU 0", "GPU 1")
    assert [bar.row for bar in rows.bars] == [0, 1, 1]


def test_a_plan_as_frames():
    one = spec([(100, 100, 3), (10, 10, 0)])
    plan = plan_evaluation(one)
    frames = plan_frames(plan)
    covered = (
        frames["pieces"].assign(n=lambda t: t["last"] - t["first"]).groupby("dataset")["n"].sum()
    )
    assert covered.to_dict() == {"d0": 100, "d1": 10}
    assert frames["slots"]["end_s"].max() == pytest.approx(plan.makespan_s)
