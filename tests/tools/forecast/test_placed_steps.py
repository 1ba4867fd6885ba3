"""What a placement of slow nodes costs, in percentiles: mapping, savings and their errors."""

import numpy as np
import pytest

from rerail.errors import ConfigError
from rerail.evals.forecast.brute import brute_steps
from rerail.tools.forecast.fit import ks_distance
from rerail.tools.forecast.forecast import forecast
from rerail.tools.forecast.placed_steps import placed_steps
from rerail.tools.forecast.placement import place_slow_nodes
from rerail.tools.forecast.spec import parse_spec
from rerail.tools.forecast.step import StepModel

PIPELINE = {
    "parallel": {"tp": 2, "pp": 3, "dp": 2, "rank_order": "tp-cp-pp-dp"},
    "schedule": {"micro_batches": 6},
    "stage_load": [0.8, 1.0, 1.1],
    "pools": {
        "f": {"mean_s": 1.0, "cv": 0.05},
        "c": {"distribution": "lognormal", "mean_s": 0.1, "cv": 0.2, "group": "tp"},
    },
    "passes": {"forward": ["f", "c"], "backward": ["f", "f", "c"]},
    "nodes": {"gpus_per_node": 2, "slow": [{"node": 5, "ratio": 1.4}, {"node": 2, "ratio": 1.2}]},
}


def with_nodes(slow):
    return parse_spec(PIPELINE | {"nodes": {"gpus_per_node": 2, "slow": slow}})


def moved(grid):
    """Return the spec whose nodes lie as in the grid: with this order, place = replica x 3 + stage."""
    place = {int(node): at for at, node in enumerate(grid.ravel())}
    return with_nodes(
        [{"node": place[one["node"]], "ratio": one["ratio"]} for one in PIPELINE["nodes"]["slow"]]
    )


def test_each_placement_is_the_step_of_a_job_whose_nodes_lie_so():
    model = StepModel(parse_spec(PIPELINE))
    found = place_slow_nodes(model)
    placed = placed_steps(model, found, 20_000)
    for name, spec in {
        "best": moved(found.node), "given": parse_spec(PIPELINE), "worst": moved(found.worst_node),
    }.items():  # fmt: skip
        brute = brute_steps(spec, 4000, 3)
        one = placed.step[name]
        assert ks_distance(one.table, brute) <= 0.04, name
        assert float(one.quantile(np.array([0.95]))[0]) == pytest.approx(
            np.percentile(brute, 95), rel=0.005
        )
    assert (
        placed.step["best"].mean < placed.step["given"].mean <= placed.step["worst"].mean * 1.0001
    )
    assert placed.saved_mean_s == placed.step["given"].mean - placed.step["best"].mean


def test_the_error_of_what_is_saved_is_its_spread_over_seeds_and_less_than_that_of_either():
    model = StepModel(parse_spec(PIPELINE))
    found = place_slow_nodes(model)
    drawn = [placed_steps(model, found, 2000, seed) for seed in range(16)]
    spread = float(np.std([one.saved_mean_s for one in drawn], ddof=1))
    told = float(np.mean([one.saved_mean_error_s for one in drawn]))
    assert told / 2 < spread < 2 * told
    apart = float(np.std([one.step["given"].mean for one in drawn], ddof=1)) * 2**0.5
    assert spread < 0.8 * apart  # drawn alike, the luck is shared


def test_the_numbers_are_in_json_and_frames():
    found = forecast(parse_spec(PIPELINE), samples=500)
    row = found.to_json()["placement"]
    assert row["step_time_s"].keys() == {"best", "given", "worst"}
    for one in row["step_time_s"].values():
        assert one["p5"] < one["p50"] < one["p95"] < one["p99"]
    given, best = row["step_time_s"]["given"], row["step_time_s"]["best"]
    assert row["saved_p95_s"] == pytest.approx(given["p95"] - best["p95"])
    assert row["saved_p95_standard_error_s"] > 0
    frame = found.frames()["placement_steps"]
    assert list(frame["placement"]) == ["best", "given", "worst"]
    assert frame["p95"].iloc[0] == best["p95"]


def test_a_faster_node_is_faster_and_a_node_is_named_once():
    usual = StepModel(with_nodes([])).forecast(500, errors=False).step.mean
    nodes = [{"node": n, "ratio": 0.9} for n in range(6)]
    fast = StepModel(with_nodes(nodes)).forecast(500, errors=False).step.mean
    assert 0.9 < fast / usual < 0.92  # collectives stay as they are
    with pytest.raises(ConfigError, match=r"nodes\.slow\.1\.node: node 3 was named before"):
        with_nodes([{"node": 3, "ratio": 1.2}, {"node": 3, "ratio": 1.1}])
