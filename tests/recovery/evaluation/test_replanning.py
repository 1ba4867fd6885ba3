"""What was planned is planned anew when times are wrong: a runner with a clock of its own."""

import json
from collections import Counter
from pathlib import Path

import pytest

from rerail.errors import ClusterError
from rerail.recovery.evaluation.coordinator import Coordinator
from rerail.recovery.evaluation.failures import Failures
from rerail.recovery.evaluation.files import RunFolder, claim
from rerail.tools.evaluation.plan import plan_evaluation
from rerail.tools.evaluation.spec import parse_evaluation


class ClockRunner:
    """Runs trials as the real program does, piece by piece in files, but by a clock that is set."""

    poll_s = 0.0

    def __init__(self, folder, seconds, fails=lambda name, first, last, begin, end: None, out=None):
        self.out = (
            out or {}
        )  # node: (begin, end) of the time in which all that is there dies without a word
        self.files = RunFolder(folder)
        self.fails = fails  # the time at which a piece that runs from begin to end fails, or None
        self.failed = []  # name, first and last item of each piece that failed
        self.seconds = seconds  # of a whole data set
        self.now = 0.0
        self.next = {}  # handle -> (time of its next event, generator of these)
        self.inferred = Counter()
        self.node, self.started = {}, []

    def nodes(self, count):
        return list(self.out) or ["here"]

    def node_of(self, handle):
        return self.node[handle]

    def start(self, task):
        asked = json.loads((task.folder / "task.json").read_text())
        # As a scheduler would: an idle node, and one that is out looks idle at once.
        free = [one for one in self.nodes(0) if one not in task.avoid] or self.nodes(0)
        least = min(free, key=lambda one: sum(self.node[h] == one for h in self.next))
        self.node[task.name] = task.node or least
        kinds = {"trial": self._trial, "probe": self._probe, "metric": self._metric}
        steps = self._alive(task.name, kinds[task.kind](task.folder, asked))
        self.started.append((self.now, task.kind, self.node[task.name]))
        self.next[task.name] = (next(steps), steps, task.folder)
        return task.name

    def _alive(self, handle, steps):
        """Run the steps while the node is not out."""
        begin, end = self.out.get(self.node[handle]) or (0.0, 0.0)
        at = self.now
        if begin <= at < end:
            yield at + 0.1
            return None
        while True:
            try:
                coming = next(steps)
            except StopIteration as stop:
                return stop.value
            if at < begin < coming:
                yield begin
                return None
            at = coming
            yield coming

    def _probe(self, folder, asked):
        yield self.now + 0.2
        return {"ok": True}

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
                return {"ok": False, "error": "it failed"}
            at += took
            yield at
            self.inferred.update((name, i) for i in range(first, last))
            self.files.write_output(name, first, last, [0] * (last - first))
            pieces.append({**piece, "took_s": took})
            (folder / "progress.json").write_text(json.dumps({"pieces": pieces}))
        yield at
        return {"ok": True}

    def _metric(self, folder, asked):
        yield self.now
        for name in asked["datasets"]:
            self.files.write_metric(name, {"done": 1.0})
        return {"ok": True}

    def ended(self, handles):
        if not handles:
            return set()
        handle = min(handles, key=lambda one: self.next[one][0])
        self.now, steps, folder = self.next[handle]
        try:
            self.next[handle] = (next(steps), steps, folder)
        except StopIteration as stop:
            if stop.value is not None:
                (Path(folder) / "result.json").write_text(json.dumps(stop.value))
            del self.next[handle]
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


def on_nodes(folder, out, retries=0, runs=ClockRunner):
    """Run eight sets of ten items on nodes of one GPU each, some of which are out for a time."""
    spec = parse_evaluation(
        {
            "datasets": {name: {"inference_s": 10, "items": 10} for name in "abcdefgh"},
            "cluster": {"nodes": len(out), "gpus_per_node": 1, "cpus_per_node": 1},
            "retries": retries,
        }
    )
    runner = runs(folder / "run", {name: 10.0 for name in "abcdefgh"}, out=out)
    told = []
    found = Coordinator(spec, runner, folder / "run", told.append, again_s=0.01).run()
    return found, runner, told


def test_a_node_that_is_out_costs_no_set_and_its_trials_go_to_the_others(tmp_path):
    found, runner, told = on_nodes(tmp_path, {"n1": None, "n2": (3.0, 1e9), "n3": None})
    assert not found.failed and len(found.metrics) == 8 and found.retried == 0
    assert set(runner.inferred.values()) == {1}
    assert any("node n2 is set aside" in one for one in found.outages)
    assert any("node n2 is set aside" in why for why in found.replanned)
    aside = min(at for at, kind, node in runner.started if kind == "probe")
    assert {node for at, kind, node in runner.started if at > aside and kind != "probe"} == {"n1", "n3"}  # fmt: skip
    assert told.count(next(one for one in told if "n2 is set aside: " in one)) == 1


def test_an_outage_of_all_nodes_is_waited_for_and_what_waits_is_named(tmp_path):
    # Try-outs begin again after hundredths of a second of the real clock, each takes 0.1 of the other.
    found, runner, _ = on_nodes(tmp_path, {"n1": (3.0, 3.35), "n2": (3.0, 3.35)})
    assert not found.failed and len(found.metrics) == 8
    assert any("so these wait: " in one and "a[0:10]" in one for one in found.outages)
    assert any("is used again" in one for one in found.outages)
    assert set(runner.inferred.values()) == {1}


@pytest.mark.parametrize(("told", "tries"), [("no such model", 3), (None, 7)])
def test_where_nothing_ever_runs_the_sets_are_given_up_with_the_reason(tmp_path, told, tries):
    class Broken(ClockRunner):
        """Nodes on which the model cannot be loaded, or nothing runs."""

        def _trial(self, folder, asked):
            yield self.now + 0.1
            return {"ok": False, "error": told} if told else None

        _probe = _trial

    found, runner, _ = on_nodes(tmp_path, {"n1": None, "n2": None}, retries=2, runs=Broken)
    assert list(found.failed) == list("abcdefgh")
    assert all(why.startswith(told or "0001-trial died") for why in found.failed.values())
    probes = [node for _, kind, node in runner.started if kind == "probe"]
    assert min(probes.count("n1"), probes.count("n2")) == tries


def test_a_piece_that_failed_on_a_node_is_tried_on_another(tmp_path):
    class Bad(ClockRunner):
        """One node on which every piece fails with a word, though the model loads."""

        def _trial(self, folder, asked):
            node = self.node[folder.name]
            self.fails = lambda name, first, last, begin, end: begin + 1 if node == "n1" else None
            return super()._trial(folder, asked)

    spec = parse_evaluation(
        {
            "datasets": {"a": {"inference_s": 4, "items": 4}, "b": {"inference_s": 4, "items": 4}},
            "cluster": {"nodes": 2, "gpus_per_node": 1, "cpus_per_node": 1},
            "retries": 1,
        }
    )
    runner = Bad(tmp_path / "run", {"a": 4.0, "b": 4.0}, out={"n1": None, "n2": None})
    found = Coordinator(spec, runner, tmp_path / "run").run()
    assert not found.failed and sorted(found.metrics) == ["a", "b"]


def test_a_scheduler_that_has_worked_is_waited_for(tmp_path):
    class Away(ClockRunner):
        """A scheduler that does not answer three times, once it has done something."""

        away = 3

        def ended(self, handles):
            if self.inferred and self.away:
                self.away -= 1
                raise ClusterError(
                    "squeue: no contact", subject="squeue", hint="-", recoverable=True
                )
            return super().ended(handles)

    spec = parse_evaluation(
        {"datasets": {n: {"inference_s": 9, "items": 3} for n in "ab"}, "cluster": {"gpus_per_node": 1}}
    )  # fmt: skip
    runner = Away(tmp_path / "run", {"a": 9.0, "b": 9.0})
    found = Coordinator(spec, runner, tmp_path / "run", again_s=0.001).run()
    assert runner.away == 0 and len(found.metrics) == 2
    assert found.outages == ["the scheduler does not answer and is waited for: squeue: no contact"]


def test_pieces_cut_anew_keep_what_was_held_against_their_items():
    failures = Failures()
    assert failures.piece("a", 0, 10) == 1
    assert failures.piece("a", 10, 20) == 1  # another piece
    assert failures.piece("b", 0, 10) == 1  # another set
    assert failures.piece("a", 5, 15) == 2
    assert failures.piece("a", 12, 14) == 3
    assert failures.piece("a", 15, 20) == 2
    assert failures.metric("a") == 1
