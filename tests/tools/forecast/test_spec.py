"""What a spec may say, and which key is named where it may not."""

import copy
import json

import numpy as np
import pytest

from rerail.errors import ConfigError, EvidenceError
from rerail.tools.durations import counted, digits, seconds
from rerail.tools.forecast.durations import normal, total
from rerail.tools.forecast.forecast import forecast
from rerail.tools.forecast.job import forecast_job
from rerail.tools.forecast.placement import place_slow_nodes
from rerail.tools.forecast.spec import parse_spec, read_spec
from rerail.tools.forecast.step import StepModel
from rerail.tools.forecast.svg_plot import render as svg

INF = float("inf")
SPEC = {
    "parallel": {"tp": 2, "pp": 4, "dp": 4, "rank_order": "tp-cp-pp-dp"},
    "schedule": {"micro_batches": 8},
    "layers_per_stage": 2,
    "pools": {
        "f": {"mean_s": 0.01, "cv": 0.05, "kernel": "gemm"},
        "b": {"mean_s": 0.02, "cv": 0.05, "kernel": "gemm"},
        "c": {"distribution": "lognormal", "mean_s": 0.001, "cv": 0.1, "group": "tp"},
        "s": {"distribution": "constant", "mean_s": 0.0005},
        "d": {"distribution": "gamma", "mean_s": 0.05, "cv": 0.1, "group": "dp"},
    },
    "passes": {"forward": ["f", "c"], "backward": ["b", "c"]},
    "transfer": "s",
    "step": ["d"],
    "nodes": {"gpus_per_node": 2},
}


def spec(**changes):
    content = copy.deepcopy(SPEC)
    for path, value in changes.items():
        *folders, last = path.split("__")
        at = content
        for folder in folders:
            at = at.setdefault(folder, {})
        at[last] = value
    return content


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("pools.f.mean_s", {"pools__f__mean_s": -1}),
        ("pools.f.mean_s", {"pools__f__mean_s": float("nan")}),
        ("pools.f.samples_s", {"pools__f": {"distribution": "empirical", "samples_s": []}}),
        ("pools.f.samples_s.1", {"pools__f": {"distribution": "fit", "samples_s": [1.0, -2.0]}}),
        ("pools.f.mean_s", {"pools__f": {"cv": 0.1}}),
        ("pools.f.tier", {"pools__f": {"bytes": 1e6, "tier": "ib"}}),
        ("pools.f.speed", {"pools__f__speed": 3}),
        ("pools", {"pools": {}}),
        ("parallel.tp", {"parallel__tp": 0}),
        ("parallel.ep", {"parallel__ep": 3}),
        ("parallel.fsdp", {"parallel__fsdp": 8}),
        ("schedule.micro_batches", {"schedule": {"kind": "interleaved", "micro_batches": 7}}),
        ("schedule.micro_batches", {"schedule__micro_batches": 10_000_000}),
        ("schedule.chunks", {"schedule__chunks": 2}),
        ("graph", {"passes": None, "graph": {}}),
        (
            "effects",
            {
                "passes": None,
                "graph": {"x": {"pool": "f", "rank": 9999}},
                "effects": {"rank_cv": 0.1},
            },
        ),
        ("graph.x.rank", {"passes": None, "graph": {"x": {"pool": "f", "rank": -5}}}),
        ("passes.weights", {"schedule__kind": "zero_bubble"}),
        ("passes.forward.0", {"passes__forward": ["nothing"]}),
        ("layers_per_stage", {"layers_per_stage": [1, 2]}),
        ("stage_load", {"stage_load": [1.0]}),
        ("nodes.slow.0.node", {"nodes__slow": [{"node": 99, "ratio": 1.2}]}),
        ("job.steps", {"job": {"steps": 0}}),
        ("job.steps", {"job": {"steps": 10**26}}),
        ("job.repair_s", {"job": {"steps": 10, "repair_s": INF}}),
        ("job.deadline_s", {"job": {"steps": 10, "deadline_s": INF}}),
        ("job.failures_per_node_day", {"job": {"steps": 10, "failures_per_node_day": INF}}),
        ("stage_load.2", {"stage_load": [1, 1, INF, 1]}),
        ("pools.f.scale", {"pools__f__scale": INF}),
        ("pools.f.spread", {"pools__f__spread": INF}),
        ("pools.f.bytes", {"pools__f__bytes": INF}),
        ("pools.f.mean_s", {"pools__f__mean_s": 1e308}),
        ("pools.f.sd_s", {"pools__f": {"mean_s": 1e-9, "sd_s": 1e8}}),
        ("pools", {"pools": {name: {"mean_s": 0} for name in "fbcsd"}}),
        ("effects.regime.scale", {"effects": {"regime": {"share": 0.1, "scale": INF}}}),
        ("layers_per_stage", {"layers_per_stage": 10**9}),
        ("parallel", {"parallel": {"tp": 1 << 17}}),
        ("parallel.tp", {"parallel": {"tp": True}}),
        ("pools.f.samples_s", {"pools__f": {"samples_s": [0.1, False]}}),
        ("pools.f.mean_s", {"pools__f__mean_s": False}),
        ("effects.regime.scale", {"effects": {"regime": {"share": 0.1, "scale": 0.5}}}),
    ],
)
def test_the_wrong_key_is_named(key, changes):
    with pytest.raises(ConfigError, match=r"spec: ") as raised:
        parse_spec(spec(**changes))
    assert raised.value.subject == key
    assert key in raised.value.message


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("nodes.slow.0.node", {"nodes": {"gpus_per_node": 1, "slow": [{"node": 3, "ratio": 2}]}}),
        ("transfer", {"transfer": "f"}),
        ("schedule", {"schedule": {"micro_batches": 4}}),
        ("parallel", {"parallel": {"dp": 4}}),
    ],
)
def test_what_a_graph_would_ignore_is_refused(key, changes):
    content = {"pools": {"f": {"mean_s": 1}}, "graph": {"x": {"pool": "f", "rank": 0}}}
    assert parse_spec(content).world_size == 1
    with pytest.raises(ConfigError) as raised:
        parse_spec(content | changes)
    assert raised.value.subject == key


@pytest.mark.parametrize(
    ("key", "job"),
    [
        ("job.steps", {"steps": 10**12, "deadline_s": 10}),
        ("job.checkpoint_every_s", {"steps": 100, "checkpoint_every_s": 1e-200}),
    ],
)
def test_a_job_beyond_all_bounds_is_refused(key, job):
    content = parse_spec(spec(job=job, pools__f__mean_s=10))
    with pytest.raises(ConfigError) as raised:
        forecast(content, samples=300, explain=False)
    assert raised.value.subject == key


def test_a_sum_of_very_many_has_the_moments_of_its_parts():
    found = total([(normal(1.0, 0.1), 30_000)])
    assert found.mean == pytest.approx(30_000)
    assert found.sd == pytest.approx(0.1 * 30_000**0.5)
    standard = (found.table - found.mean) / found.sd
    assert np.percentile(standard, [5, 50, 95]) == pytest.approx([-1.645, 0, 1.645], abs=0.03)


def test_a_circle_of_ops_is_named():
    pools = {"x": {"mean_s": 1.0}}
    graph = {
        "a": {"pool": "x", "after": ["c"]},
        "b": {"pool": "x", "after": ["a"]},
        "c": {"pool": "x", "after": ["b"]},
    }
    with pytest.raises(ConfigError, match="wait for each other") as raised:
        StepModel(parse_spec({"pools": pools, "graph": graph}))
    assert raised.value.subject.startswith("graph.")
    graph["a"]["after"] = ["nobody"]
    with pytest.raises(ConfigError, match=r"graph\.a\.after"):
        StepModel(parse_spec({"pools": pools, "graph": graph}))


def test_a_file_that_is_no_yaml_is_refused_with_its_line(tmp_path):
    file = tmp_path / "spec.yaml"
    file.write_text("pools:\n  f: [1, 2\nparallel: {")
    with pytest.raises(ConfigError, match=r"spec\.yaml:\d"):
        read_spec(file)
    with pytest.raises(ConfigError, match="No such file"):
        read_spec(tmp_path / "none.yaml")


def test_a_file_nested_without_end_is_refused(tmp_path):
    path = tmp_path / "deep.yaml"
    path.write_text("a: " + "[" * 5000 + "]" * 5000)
    with pytest.raises(ConfigError, match=r"deep\.yaml: its values are nested too deeply"):
        read_spec(path)


def test_a_key_that_is_said_twice_is_refused_with_both_lines(tmp_path):
    path = tmp_path / "twice.yaml"
    path.write_text("pools:\n  f: {mean_s: 1}\n  g: {mean_s: 2, sd_s: 1, mean_s: 3}\n")
    with pytest.raises(ConfigError, match=r"twice\.yaml:3: mean_s stands on line 3 already"):
        read_spec(path)


def test_an_unknown_preset_is_refused_before_anything_is_drawn():
    with pytest.raises(
        ConfigError, match=r"there is no preset 'llama9', but .*llama3_405b"
    ) as told:
        parse_spec(spec(job={"steps": 10, "preset": "llama9"}))
    assert told.value.subject == "job.preset"


def test_no_noise_gives_the_deterministic_step():
    content = spec(step=[])
    for pool in content["pools"].values():
        pool.update(cv=0.0, distribution="constant")
    found = StepModel(parse_spec(content)).forecast(500)
    # 11 slots of forward and backward, plus the transfers on the way there and back.
    expected = (8 + 3) * 2 * (0.011 + 0.021) + 6 * 0.0005
    assert found.percentile(5) == pytest.approx(found.percentile(95))
    assert found.percentile(50) == pytest.approx(expected, rel=0.02)


def test_a_slow_node_costs_where_it_stands():
    def p50(node):
        content = spec(nodes__slow=[{"node": node, "ratio": 1.3}], stage_load=[0.9, 1, 1, 1.2])
        return StepModel(parse_spec(content)).forecast(2000).percentile(50)

    first, last = p50(0), p50(3)  # nodes of replica 0: stage 0 and stage 3
    assert last > 1.1 * first


def test_expert_and_sharded_groups_wait_for_more_ranks():
    expert = spec(parallel={"tp": 2, "pp": 4, "dp": 4, "ep": 4})
    expert["pools"]["a"] = {"mean_s": 0.0, "distribution": "constant", "group": "ep"}
    expert["passes"] = {"forward": ["f", "a"], "backward": ["b", "a"]}
    narrow = spec(step=[])
    narrow["passes"] = {"forward": ["f"], "backward": ["b"]}
    model = StepModel(parse_spec(expert | {"step": []}))
    assert sum(model.classes().values()) == 1
    wide = model.forecast(2000)
    assert wide.step.mean > StepModel(parse_spec(narrow)).forecast(2000).step.mean

    sharded = spec(parallel={"pp": 1, "dp": 16, "fsdp": 16}, schedule={"micro_batches": 1})
    sharded["layers_per_stage"] = 8
    sharded["pools"]["g"] = {"mean_s": 0.009, "cv": 0.1, "group": "fsdp", "overlap": True}
    sharded["passes"] = {"forward": ["f", "g"], "backward": ["b", "g"]}
    hidden = StepModel(parse_spec(sharded)).forecast(2000).step.mean
    sharded["pools"]["g"]["overlap"] = False
    shown = StepModel(parse_spec(sharded)).forecast(2000).step.mean
    assert 16 * 0.008 < shown - hidden < 16 * 0.0095


@pytest.mark.parametrize("wide", ["fsdp", "ep"])
def test_only_compute_is_slowed_where_groups_lie_inside_each_other(wide):
    def step(**changes):
        one = {"mean_s": 1.0, "distribution": "constant"}
        content = {
            "parallel": {"tp": 4, "dp": 4, wide: 4},
            "pools": {"f": one, "c": one | {"group": "tp"}, "w": one | {"group": wide}},
            "passes": {"forward": ["f", "c", "w"], "backward": ["f", "c", "w"]},
            "nodes": {"gpus_per_node": 4},
        }
        return StepModel(parse_spec(content | changes)).forecast(300).step.mean

    assert step() == pytest.approx(6)
    assert step(stage_load=[2.0]) == pytest.approx(8)
    for node in (0, 3):
        slow = {"gpus_per_node": 4, "slow": [{"node": node, "ratio": 2}]}
        assert step(nodes=slow) == pytest.approx(8)
        # Forward passes meet in tensor-parallel groups alone; the slow one is waited for later.
        narrow = {"forward": ["f", "c"], "backward": ["f", "c", "w"]}
        assert step(nodes=slow, passes=narrow) == pytest.approx(7)
    assert step(effects={"regime": {"share": 1, "scale": 2}}) == pytest.approx(10)
    # Three layers, each gathered before it runs: nothing is counted twice.
    ahead = {"forward": ["w", "f"], "backward": ["w", "f"]}
    assert step(passes=ahead, layers_per_stage=3) == pytest.approx(12)


def test_a_collective_is_hidden_behind_slow_compute_as_well():
    def step(ratio):
        one = {"mean_s": 1.0, "distribution": "constant"}
        content = {
            "parallel": {"dp": 4, "fsdp": 4},
            "pools": {"f": one, "w": one | {"mean_s": 1.5, "group": "fsdp", "overlap": True}},
            "passes": {"forward": ["f", "w"], "backward": ["f", "w"]},
            "nodes": {"gpus_per_node": 1, "slow": [{"node": 1, "ratio": ratio}]},
        }
        return StepModel(parse_spec(content)).forecast(300).step.mean

    assert step(1.2) == pytest.approx(3.0)
    assert step(2.0) == pytest.approx(4.0)


def test_link_tiers_give_transfers_their_time():
    content = spec(tiers={"ib": {"bytes_per_s": 1e9, "latency_s": 1e-3}})
    content["pools"]["s"] = {"bytes": 1e6, "tier": "ib"}
    assert parse_spec(content).duration("s").mean == pytest.approx(2e-3)


def test_regimes_are_mixed_and_last():
    content = spec(effects={"regime": {"share": 0.2, "scale": 20, "steps": 50}})
    found = StepModel(parse_spec(content)).forecast(4000)
    calm, congested = (part.step.mean for part in found.parts)
    assert congested > calm * 1.2
    assert found.step.mean == pytest.approx(0.8 * calm + 0.2 * congested, rel=1e-3)
    job = parse_spec(content | {"job": {"steps": 1000}}).job
    lasting = forecast_job(found, job, 16)
    brief = parse_spec(spec(effects={"regime": {"share": 0.2, "scale": 20, "steps": 1.25}}))
    alone = forecast_job(StepModel(brief).forecast(4000), job, 16)
    assert np.std(lasting.time_s) > 3 * np.std(alone.time_s)


def test_what_persists_does_not_average_out_over_a_job():
    job = parse_spec(spec(job={"steps": 10_000})).job
    drawn = {}
    for cv in (0.0, 0.05):
        found = StepModel(parse_spec(spec(effects={"rank_cv": cv}))).forecast(4000)
        drawn[cv] = forecast_job(found, job, 16)
    relative = {cv: float(np.std(one.time_s) / np.mean(one.time_s)) for cv, one in drawn.items()}
    assert relative[0.05] > 0.005 > 20 * relative[0.0]


def test_what_persists_in_a_graph_is_that_of_the_same_pipeline():
    pools = {"f": {"mean_s": 1.0, "cv": 0.01}, "b": {"mean_s": 2.0, "cv": 0.01}}
    common = {"pools": pools, "effects": {"rank_cv": 0.05}, "nodes": {"gpus_per_node": 1}}
    passes = {"forward": ["f"], "backward": ["b"]}
    graph = {"a": {"pool": "f", "rank": 0}, "c": {"pool": "b", "rank": 0, "after": ["a"]}}
    job = parse_spec(spec(job={"steps": 100_000})).job
    for content in ({"passes": passes}, {"graph": graph}):
        found = StepModel(parse_spec(common | content)).forecast(2000)
        assert found.persistent_sd_s == pytest.approx(0.15, rel=0.15)
        drawn = forecast_job(found, job, 1)
        assert drawn.percentile(95) - drawn.percentile(5) == pytest.approx(
            2 * 1.645 * 0.15 * 100_000, rel=0.2
        )


def test_the_results_come_as_frames():
    content = spec(job={"steps": 1000, "deadline_s": 600}, nodes__slow=[{"node": 1, "ratio": 1.2}])
    found = forecast(parse_spec(content), samples=500)
    frames = found.frames()
    assert set(frames) >= {
        "step",
        "distribution",
        "sensitivity",
        "critical_path",
        "job",
        "placement",
    }
    assert frames["distribution"]["step_time_s"].is_monotonic_increasing
    assert frames["critical_path"]["share"].sum() == pytest.approx(1.0)
    assert len(frames["placement"]) == 16
    moved = frames["sensitivity"].set_index(["kernel", "change"])
    assert 0.05 < moved.loc[("gemm", "10 % longer"), "p50_change"] < 0.1


def test_an_empty_pool_is_refused_by_the_library_too():
    from rerail.tools.forecast.fit import fit_pool

    with pytest.raises(EvidenceError, match="empty"):
        fit_pool(np.array([]), "pools.x")
    with pytest.raises(EvidenceError, match="not a duration"):
        fit_pool(np.array([1.0, -1.0]), "pools.x")


@pytest.mark.parametrize("order", ["tp-cp-pp-dp", "tp-cp-dp-pp"])
def test_the_placement_names_the_slow_node_itself_and_its_new_place(order):
    slow = [{"node": 6, "ratio": 1.4}]
    content = spec(parallel__rank_order=order, nodes__slow=slow, stage_load=[0.7, 1.0, 1.0, 1.1])
    found = place_slow_nodes(StepModel(parse_spec(content)))
    assert found is not None and found.best_s < found.given_s
    _, stage = np.argwhere(found.node == 6)[0]
    assert stage == 0  # 0.7 x 1.4 is below the last stage's 1.1
    assert sorted(found.node.ravel()) == list(range(16))


def test_a_job_that_never_fails_and_saves_nothing_trains_all_of_its_time():
    found = forecast(parse_spec(spec(job={"steps": 100})), samples=300, explain=False)
    row = json.loads(json.dumps(found.to_json(), allow_nan=False))["job"]
    assert row["goodput"] == 1.0
    assert row["checkpoint_every_s"] is None and row["mean_between_failures_s"] is None


def test_checkpoints_that_leave_no_time_are_named_and_no_failures_are_blamed():
    job = {"steps": 100, "checkpoint_s": 1e9, "checkpoint_every_s": 1.0}
    with pytest.raises(ConfigError, match="every 1 s of training leave the job no time") as told:
        forecast(parse_spec(spec(job=job)), samples=300, explain=False)
    assert told.value.subject == "job.checkpoint_every_s" and "inf" not in str(told.value)


def test_long_names_leave_room_for_the_plot(recwarn):
    long_name = "void_at_native_elementwise_kernel_" * 6
    content = spec(name=long_name, passes={"forward": [long_name, "c"], "backward": ["b", "c"]})
    content["pools"][long_name] = content["pools"].pop("f") | {"kernel": long_name}
    found = forecast(parse_spec(content), samples=300)
    text = svg(found)
    assert not recwarn.list
    assert long_name not in text and "void_at_native" in text and "..." in text


def test_numbers_of_things_are_said_as_people_say_them():
    alone = parse_spec(
        {"pools": {"f": {"mean_s": 1.0}}, "passes": {"forward": ["f"], "backward": ["f"]}}
    )
    assert forecast(alone, samples=300).size() == "1 rank, 1 replica, 300 drawn pipelines"
    assert [counted(n, "node") for n in (0, 1, 16_384)] == ["0 nodes", "1 node", "16,384 nodes"]
    assert [seconds(v) for v in (4e-5, 5e-4, 0.0, 3.0)] == ["40 us", "500 us", "0 ms", "3 s"]
    assert [digits(v) for v in (1.451, 12.5, 81120.3)] == ["1.4510", "12.500", "81120"]


def test_what_a_small_variation_moves_is_not_drowned_by_the_luck_of_a_heavy_one():
    content = {
        "parallel": {"dp": 64, "pp": 2},
        "schedule": {"micro_batches": 4},
        "pools": {
            "f": {"mean_s": 0.1, "cv": 0.002},
            "s": {"mean_s": 0.01, "cv": 5, "distribution": "lognormal"},
        },
        "passes": {"forward": ["f"], "backward": ["f"]},
        "transfer": "s",
    }
    told = {
        (e.kernel, e.change): e for e in forecast(parse_spec(content), samples=2000).sensitivity
    }
    assert abs(told["f", "no variation"].p95_change) < 0.002
    assert told["s", "no variation"].p95_change < -0.1
