"""What was planned is planned anew when times are wrong: a runner with a clock of its own."""

import json
from collections import Counter
from pathlib import Path

import pytest

from rerail.recovery.evaluation.coordinator import Coordinator
from rerail.recovery.evaluation.failures import Failures
from rerail.recovery.evaluation.files import RunFolder, claim
from rerail.tools.evaluation.plan import plan_evaluation
from rerail.tools.evaluation.spec import parse_evaluation


class ClockRunner:
    """Runs trials as the real program does, piece by piece in files, but by a clock that is set."""

    poll_s = 0.0

    def __init__(self, folder, seconds, fails=lambda name, first, last, begin, end: None):
        self.files = RunFolder(folder)
        self.fails = fails  # the time at which a piece that runs from begin to end fails, or None
        self.failed = []  # name, first and last item of each piece that failed
        self.seconds = seconds  # of a whole data set
        self.now = 0.0
        self.next = {}  # handle -> (time of its next event, generator of these)
        self.inferred = Counter()

    def nodes(self, count):
        return ["here"]

    def start(self, task):
        asked = json.loads((task.folder / "task.json").read_text())
        steps = self._trial(task.folder, asked) if task.kind == "trial" else self._metric(asked)
        self.next[task.name] = (next(steps), steps, task.folder)
        return task.name

    def _trial(self, folder, asked):
        at, pieces = self.now, []
        for number, piece in enumerate(asked["pieces"]):
            name, first, last = piece["dataset"], piece["first"], piece["last"]
            if not claim(folder, number):
                continue
            took = self.seconds[name] * (last - first) / asked["spec"]["datasets"][name]["items"]
            end = self.fails(name, first, last, at, at + took)
            if end is not None:
                self.failed.append((name, first, last))
                yield end
                return False
            at += took
            yield at
            self.inferred.update((name, i) for i in range(first, last))
            self.files.write_output(name, first, last, [0] * (last - first))
            pieces.append({**piece, "took_s": took})
            (folder / "progress.json").write_text(json.dumps({"pieces": pieces}))
        yield at
        return True

    def _metric(self, asked):
        yield self.now
        for name in asked["datasets"]:
            self.files.write_metric(name, {"done": 1.0})
        return True

    def ended(self, handles):
        handle = min(handles, key=lambda one: self.next[one][0])
        self.now, steps, folder = self.next[handle]
        try:
            self.next[handle] = (next(steps), steps, folder)
        except StopIteration as stop:
            (Path(folder) / "result.json").write_text(json.dumps({"ok": stop.value}))
            return {handle}
        return set()

    def cancel(self, handles):
        pass


def evaluated(folder, prior, seconds, gpus=2, **more):
    spec = parse_evaluation(
        {
            "datasets": {name: {"inference_s": s, "items": 10} for name, s in prior.items()},
            "cluster": {"nodes": 1, "gpus_per_node": gpus, "cpus_per_node": 4},
            **more,
        }
    )
    runner = ClockRunner(folder / "run", seconds)
    found = Coordinator(spec, runner, folder / "run").run()
    assert len(found.metrics) == len(prior) and not found.failed
    assert set(runner.inferred.values()) == {1}  # no item twice
    assert sum(runner.inferred.values()) == 10 * len(prior)
    kept = max(
        sum(seconds[p.dataset] * (p.last - p.first) / 10 for p in trial.pieces)
        for trial in plan_evaluation(spec).trials
    )
    return found, runner.now, kept


@pytest.mark.parametrize(("times", "at_most"), [(2.5, 0.95), (6.0, 0.8)])
def test_what_a_slow_set_holds_up_is_given_to_other_gpus(tmp_path, times, at_most):
    prior = {name: 10.0 for name in "abcdefgh"}
    found, took, kept = evaluated(tmp_path, prior, prior | {"a": 10.0 * times})
    assert took <= at_most * kept  # `kept`: had the first plan been kept
    assert found.replanned


def test_a_plan_whose_times_are_right_is_kept(tmp_path):
    prior = {name: 10.0 for name in "abcdefgh"}
    found, took, kept = evaluated(tmp_path, prior, prior)
    assert not found.replanned
    assert took == pytest.approx(kept)


def test_what_starting_a_trial_costs_more_than_it_saves_is_left_where_it_is(tmp_path):
    prior = {name: 10.0 for name in "abcdefgh"}
    slow = prior | {"a": 25.0}
    found, took, kept = evaluated(tmp_path, prior, slow, model={"local_load_s": 60.0})
    assert not found.replanned
    assert took == pytest.approx(kept)


def test_the_drift_is_named_and_a_gpu_without_work_as_well(tmp_path):
    prior = {name: 10.0 for name in "abcdefgh"}
    found, _, _ = evaluated(tmp_path, prior, prior | {"a": 25.0})
    assert any(why.startswith("a takes 2.50 times") for why in found.replanned)
    found, _, _ = evaluated(tmp_path / "2", prior, prior | {"a": 60.0})
    assert any("GPU was left without work" in why for why in found.replanned)


def with_failures(folder, fails, **more):
    """Run one set of 40 items on four GPUs, with the failures given."""
    spec = parse_evaluation(
        {
            "datasets": {"big": {"inference_s": 40, "items": 40}},
            "cluster": {"nodes": 1, "gpus_per_node": 4, "cpus_per_node": 1},
            **more,
        }
    )
    runner = ClockRunner(folder / "run", {"big": 40.0}, fails)
    return Coordinator(spec, runner, folder / "run").run(), runner


def outage(at):
    """Everything that runs at this time fails."""
    return lambda name, first, last, begin, end: at if begin < at < end else None


@pytest.mark.parametrize("retries", [1, 2])
def test_one_outage_that_ends_all_pieces_of_a_set_counts_once_for_each(tmp_path, retries):
    found, runner = with_failures(tmp_path, outage(2.5), retries=retries)
    assert len(runner.failed) == 4 and found.retried == 4
    assert found.metrics == {"big": {"done": 1.0}} and not found.failed
    assert sorted(runner.inferred.values()) == [1] * 40


def test_a_set_is_given_up_for_one_item_that_fails_again_and_again(tmp_path):
    def fails(name, first, last, begin, end):
        return begin + 1.0 if first <= 17 < last else None

    found, runner = with_failures(tmp_path, fails, retries=2)
    assert list(found.failed) == ["big"] and not found.metrics
    assert len(runner.failed) == 3 and found.retried == 2


def test_pieces_cut_anew_keep_what_was_held_against_their_items():
    failures = Failures()
    assert failures.piece("a", 0, 10) == 1
    assert failures.piece("a", 10, 20) == 1  # another piece
    assert failures.piece("b", 0, 10) == 1  # another set
    assert failures.piece("a", 5, 15) == 2
    assert failures.piece("a", 12, 14) == 3
    assert failures.piece("a", 15, 20) == 2
    assert failures.metric("a") == 1
