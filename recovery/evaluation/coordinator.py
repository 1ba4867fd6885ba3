"""The trial coordinator: stages the model, runs trials, starts metrics early, plans anew when needed.

It plans anew when a task fails or a set takes much longer or shorter than its prior: what running
trials have not begun is taken back where that evens them out, also when a GPU is left without work.
What has output is never inferred twice; a set with a piece that keeps failing is given up and named.
A node on which tasks die is set aside and tried out (`outages`): what ran there goes to the others, or waits.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rerail.errors import ClusterError
from rerail.recovery.evaluation.failures import Failures
from rerail.recovery.evaluation.files import RunFolder, safe_name
from rerail.recovery.evaluation.identity import hold_to
from rerail.recovery.evaluation.outages import AGAIN_S, Charge, Outages
from rerail.recovery.evaluation.runner import Kind, Runner, Task
from rerail.recovery.evaluation.running_trial import RunningTrial
from rerail.recovery.safe_files import write_file
from rerail.tools.evaluation.plan import Plan, Trial, plan_evaluation
from rerail.tools.evaluation.spec import EvaluationSpec

Answer = TypeVar("Answer")
_LEAST_DRIFT_S = 0.5
_LEAST_GAIN_S = 1.0
_SHORT_METRICS_S = 10.0


@dataclass(frozen=True)
class Ran:
    """One task that ended: its kind, the data sets of it, and when, in seconds from the start."""

    kind: Kind
    name: str
    begin_s: float
    end_s: float
    ok: bool


@dataclass
class Outcome:
    """How a run ended: metrics by set, sets given up with the reason, seconds, and every task.

    `outages` tells which nodes were set aside, what waited for them, and when they were used again.
    """

    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    makespan_s: float = 0.0
    expected_s: float = 0.0
    replanned: list[str] = field(default_factory=list)
    outages: list[str] = field(default_factory=list)
    tasks: int = 0
    retried: int = 0
    ran: list[Ran] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


class Coordinator:
    """Runs one evaluation to its end."""

    def __init__(
        self,
        spec: EvaluationSpec,
        runner: Runner,
        folder: Path,
        say: Callable[[str], None] = lambda text: None,
        again_s: float = AGAIN_S,
    ) -> None:
        self.spec = spec
        self.runner = runner
        self.run_folder = RunFolder(folder.absolute())
        self.say = say
        self.outcome = Outcome()
        self.running: dict[str, Task] = {}
        self.began: dict[str, float] = {}
        self.begin = time.monotonic()
        self.trials: dict[str, RunningTrial] = {}
        self.scoring: dict[str, tuple[str, ...]] = {}
        self.queue: list[Trial] = []
        self.failures = Failures()
        self.outages = Outages(again_s)
        self.waiting = ""  # what was said of trials that wait
        self.earlier = 0  # number of the last task of an earlier run in this folder
        self.load_s = 0.0  # the longest start of a trial so far, imports and model
        self.factor: dict[str, float] = {}
        self.planned_factor: dict[str, float] = {}

    def run(self) -> Outcome:
        """Run everything and return how it ended; tasks still running are ended on an error.

        Raises:
            ClusterError: no node can be used, or the scheduler refuses.
            ConfigError: the folder has results of another model, harness or number of items.
        """
        self.begin = time.monotonic()
        self.run_folder.prepare()
        hold_to(self.run_folder.root, self.spec)
        self.earlier = self.run_folder.last_task()
        try:
            self._stage()
            self._plan("")
            while self._work_left():
                self._start_trials()
                self._start_metrics()
                self._wait()
        finally:
            if self.running:
                self.runner.cancel(list(self.running))
        for name in self.spec.datasets:
            found = self.run_folder.metric(name)
            if found is not None:
                self.outcome.metrics[name] = found
        self.outcome.makespan_s = time.monotonic() - self.begin
        return self.outcome

    def _stage(self) -> None:
        nodes = self.runner.nodes(self.spec.cluster.nodes)
        if not nodes:
            raise ClusterError(
                "no node can be used now", subject="nodes", hint="sinfo, or ray status",
                recoverable=True,
            )  # fmt: skip
        self.outages.known = nodes
        if not (self.spec.model.path and self.spec.model.memory):
            return
        for number, node in enumerate(nodes):
            self._start("stage", f"stage-{number}", {}, node)
        while self.running:
            for name in self._ended():
                self._end(name, "the model")
        self.say(f"the model lies on {len(nodes)} nodes")

    def _left(self) -> dict[str, list[tuple[int, int]]]:
        left = {}
        for name, one in self.spec.datasets.items():
            if self._scored(name):
                continue
            gaps = self.run_folder.missing(name, one.items)
            busy = [
                (piece.first, piece.last)
                for trial in self.trials.values()
                for piece in trial.pieces
                if piece.dataset == name
            ]
            left[name] = [part for gap in gaps for part in _without(gap, busy)]
        return left

    def _plan(self, why: str) -> None:
        scored = {name for name in self.spec.datasets if self._scored(name)}
        left = {name: parts for name, parts in self._left().items() if parts}
        self.planned_factor = dict(self.factor)
        if not left:
            self.queue = []
            return
        plan: Plan = plan_evaluation(self._machines(), left, self.factor, scored, loaded=bool(why))
        self.queue = list(plan.trials)
        if why:
            self.outcome.replanned.append(why)
            self.say(f"planned anew: {why}")
        else:
            self.outcome.expected_s = plan.makespan_s

    def _machines(self) -> EvaluationSpec:
        """Return the spec with the nodes that are not set aside."""
        cluster = self.spec.cluster
        left = max(1, cluster.nodes - len(self.outages.set_aside()))
        return self.spec.model_copy(update={"cluster": cluster.model_copy(update={"nodes": left})})

    def _scored(self, name: str) -> bool:
        return name in self.outcome.failed or self.run_folder.metric(name) is not None

    def _work_left(self) -> bool:
        tries = {one.handle for one in self.outages.suspects.values()}
        return any(handle not in tries for handle in self.running) or any(
            not self._scored(name) for name in self.spec.datasets
        )

    def _start(
        self, kind: Kind, name: str, more: dict[str, Any], node: str | None = None,
        avoid: tuple[str, ...] = (),
    ) -> str:  # fmt: skip
        self.outcome.tasks += 1
        number = self.earlier + self.outcome.tasks
        folder = self.run_folder.task(f"{number:04d}-{name}")
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "kind": kind, "run": str(self.run_folder.root),
            "spec": self.spec.model_dump(mode="json"), **more,
        }  # fmt: skip
        write_file(folder / "task.json", json.dumps(content).encode())
        (folder / "result.json").unlink(missing_ok=True)
        command = (sys.executable, "-m", "rerail.recovery.evaluation.task_program", str(folder))
        task = Task(folder.name, kind, folder, command, node, avoid)
        handle = self._patiently(lambda: self.runner.start(task))
        self.running[handle] = task
        self.began[handle] = time.monotonic() - self.begin
        return handle

    def _patiently(self, call: Callable[[], Answer]) -> Answer:
        """Ask a scheduler that has worked in this run until it answers again."""
        told = False
        while True:
            try:
                return call()
            except ClusterError as error:
                if not (error.recoverable and self.outages.proven):
                    raise
                if not told:
                    self._tell_outage(f"the scheduler does not answer and is waited for: {error}")
                told = True
                time.sleep(self.outages.again_s)

    def _end(self, handle: str, name: str) -> tuple[Task, dict[str, Any]]:
        """Take a task off the running ones; return it and what it says of its end."""
        task = self.running.pop(handle)
        result = _result(task.folder)
        now = time.monotonic() - self.begin
        ok = bool(result.get("ok"))
        self.outcome.ran.append(Ran(task.kind, name, self.began.pop(handle), now, ok))
        return task, result

    def _start_trials(self) -> None:
        if not self.outages.usable():
            self._wait_for_nodes()
            return
        self.waiting = ""
        while self.queue and len(self.trials) < self._machines().gpus:
            trial = self.queue.pop(0)
            pieces = [
                {"dataset": p.dataset, "first": p.first, "last": p.last, "expected_s": p.seconds}
                for p in trial.pieces
            ]
            avoid = self.outages.avoid((p.dataset, p.first, p.last) for p in trial.pieces)
            handle = self._start("trial", "trial", {"pieces": pieces}, avoid=avoid)
            self.trials[handle] = RunningTrial(self.running[handle].folder, trial)

    def _wait_for_nodes(self) -> None:
        """Say which trials wait; give up where nothing has ever run on any node."""
        hopeless = self.outages.hopeless(self.spec.retries)
        if hopeless:
            for name in self.spec.datasets:
                if not self._scored(name):
                    self.outcome.failed[name] = hopeless
            self.queue = []
            self.say(f"given up: nothing runs on any node: {hopeless}")
            return
        names = "; ".join(
            ", ".join(f"{p.dataset}[{p.first}:{p.last}]" for p in trial.pieces)
            for trial in self.queue
        )
        out = self.outages.set_aside()
        if names and out and names != self.waiting:
            self._tell_outage(
                f"no node is left ({', '.join(out)} set aside), so these wait: {names}"
            )
            self.waiting = names

    def _tell_outage(self, text: str) -> None:
        self.outcome.outages.append(text)
        self.say(text)

    def _try_out(self) -> None:
        """Start the try-outs that are due."""
        for node in self.outages.due():
            one = self.outages.suspects[node]
            try:
                one.handle = self._start("probe", "probe", {}, node)
            except ClusterError as error:
                self.outages.tried_out(node, False, str(error))

    def _tried_out(self, node: str, handle: str) -> None:
        _, result = self._end(handle, f"tries {node} out")
        one = self.outages.suspects[node]
        ok, before = bool(result.get("ok")), one.failed
        reason = str(result.get("error", ""))
        self.outages.tried_out(node, ok, reason)
        if ok and before:
            self._tell_outage(f"node {node} is used again")
            self._plan(f"node {node} is used again")
        elif not ok and not before:
            self._tell_outage(f"node {node} is set aside: {one.reason}")
            self._plan(f"node {node} is set aside")

    def _start_metrics(self) -> None:
        if not self.outages.usable():
            return
        busy = {name for names in self.scoring.values() for name in names}
        ready = [
            name
            for name, one in self.spec.datasets.items()
            if not self._scored(name)
            and name not in busy
            and not self.run_folder.missing(name, one.items)
        ]
        for names in _packed(self.spec, ready, self.spec.cpus - len(self.scoring)):
            label = f"metric-{safe_name(names[0])}"
            handle = self._start(
                "metric", label, {"datasets": list(names)}, avoid=self.outages.avoid(())
            )
            self.scoring[handle] = names

    def _ended(self) -> set[str]:
        found = self._patiently(lambda: self.runner.ended(list(self.running)))
        if not found:
            time.sleep(self.runner.poll_s)
        return found

    def _wait(self) -> None:
        tries = {one.handle: node for node, one in self.outages.suspects.items()}
        for handle in self._ended():
            if handle in tries:
                self._tried_out(tries[handle], handle)
                continue
            trial = self.trials.pop(handle, None)
            scored = self.scoring.pop(handle, ())
            name = ", ".join(scored) if trial is None else _named(trial)
            task, result = self._end(handle, name)
            if trial is not None:
                self._learn(trial)
                why = "" if result.get("ok") else self._trial_failed(handle, task, trial, result)
                if why:
                    self._plan(why)
            elif not result.get("ok"):
                self._metrics_failed(handle, task, scored, result)
        self._try_out()
        for trial in self.trials.values():
            self._learn(trial)
        drifted = [name for name in self.factor if self._drifted(name)]
        idle = not self.queue and len(self.trials) < self._machines().gpus
        if not (drifted or idle):
            return
        uneven = self._uneven()
        if uneven:
            for trial in self.trials.values():
                trial.take_back()
        if drifted and (uneven or self.queue):
            slow = drifted[0]
            self._plan(f"{slow} takes {self.factor[slow]:.2f} times what was expected")
        elif uneven:
            self._plan("a GPU was left without work while others had more to begin")

    def _uneven(self) -> bool:
        """Return whether taking back what was not begun saves more than starting new trials costs."""
        left = [one.coming_s(self.factor, self.planned_factor) for one in self.trials.values()]
        gain = max(left, default=0.0) - sum(left) / self._machines().gpus
        return gain > max(self.load_s, self.spec.model.local_load_s) + _LEAST_GAIN_S

    def _learn(self, trial: RunningTrial) -> None:
        """Compare the pieces that a trial has done with their priors."""
        seen = _result(trial.folder, "progress.json")
        self.load_s = max(self.load_s, float(seen.get("load_s", 0.0)))
        for piece in seen.get("pieces", []):
            self.outages.proven = True
            prior = self.spec.datasets[piece["dataset"]]
            usual = prior.prepare_s + (
                (piece["last"] - piece["first"]) * prior.inference_s / prior.items
            )
            if usual > 0 and abs(piece["took_s"] - usual) > _LEAST_DRIFT_S:
                self.factor[piece["dataset"]] = max(piece["took_s"] / usual, 1e-3)

    def _drifted(self, name: str) -> bool:
        ratio = self.factor[name] / self.planned_factor.get(name, 1.0)
        return max(ratio, 1.0 / ratio) > self.spec.drift

    def _trial_failed(
        self, handle: str, task: Task, trial: RunningTrial, result: dict[str, Any]
    ) -> str:
        done = {
            (p["dataset"], p["first"])
            for p in _result(task.folder, "progress.json").get("pieces", [])
        }
        first = next((p for p in trial.pieces if (p.dataset, p.first) not in done), None)
        if first is None:
            return ""
        piece = (first.dataset, first.first, first.last)
        node = self._node_of(handle, task)

        def charge() -> None:
            # The piece that was running is to blame; those behind it were never begun.
            self.outages.failed_on(node, piece)
            self._held_against(first.dataset, self.failures.piece(*piece), result, task)

        if "error" in result and trial.has_begun(first):
            charge()
        else:
            self._suspect(node, task, result, charge)
        return f"{task.name} ended without {first.dataset} [{first.first}:{first.last}]"

    def _metrics_failed(
        self, handle: str, task: Task, names: tuple[str, ...], result: dict[str, Any]
    ) -> None:
        errors = result.get("errors", {})
        without = [name for name in names if self.run_folder.metric(name) is None]
        # A task that died was at the first set without a metric; those behind it were never begun.
        for name in [name for name in without if name in errors] or without[:1]:
            told = {"error": errors.get(name, result.get("error"))}

            def charge(name: str = name, told: dict[str, Any] = told) -> None:
                self._held_against(name, self.failures.metric(name), told, task)

            if told["error"]:
                charge()
            else:
                self._suspect(self._node_of(handle, task), task, result, charge)

    def _suspect(self, node: str, task: Task, result: dict[str, Any], charge: Charge) -> None:
        reason = str(result.get("error") or f"{task.name} died; see {task.folder}/output.log")
        if not node:
            charge()
        elif self.outages.suspect(node, reason, charge):
            self.say(f"node {node} is tried out: {reason}")

    def _node_of(self, handle: str, task: Task) -> str:
        told = _result(task.folder, "where.json").get("node")
        return str(told or self.runner.node_of(handle))

    def _held_against(self, dataset: str, often: int, result: dict[str, Any], task: Task) -> None:
        if dataset in self.outcome.failed:
            return
        reason = str(result.get("error") or f"it died; see {task.folder}/output.log")
        if often > self.spec.retries:
            self.outcome.failed[dataset] = reason
            self.say(f"given up: {dataset}: {reason}")
        else:
            self.outcome.retried += 1


def _packed(spec: EvaluationSpec, ready: list[str], room: int) -> list[tuple[str, ...]]:
    """Return the sets that each new task scores, longest metric first: short ones share a start."""
    ordered = sorted(ready, key=lambda name: -spec.datasets[name].metric_s)
    tasks = [[name] for name in ordered[: max(room, 0)]]
    if not tasks:
        return []
    for name in ordered[len(tasks) :]:
        least = min(tasks, key=lambda names: sum(spec.datasets[n].metric_s for n in names))
        if sum(spec.datasets[n].metric_s for n in (*least, name)) <= _SHORT_METRICS_S:
            least.append(name)
    return [tuple(names) for names in tasks]


def _named(trial: RunningTrial) -> str:
    return ", ".join(f"{p.dataset}[{p.first}:{p.last}]" for p in trial.pieces)


def _without(gap: tuple[int, int], busy: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of a range that no running trial holds."""
    parts = [gap]
    for first, last in busy:
        cut = []
        for a, b in parts:
            if last <= a or first >= b:
                cut.append((a, b))
                continue
            if a < first:
                cut.append((a, first))
            if last < b:
                cut.append((last, b))
        parts = cut
    return parts


def _result(folder: Path, name: str = "result.json") -> dict[str, Any]:
    try:
        found = json.loads((folder / name).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
