"""Runs tasks on a Ray cluster: one remote function call per task."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rerail.errors import ClusterError
from rerail.recovery.evaluation.runner import Task

_MOST_NODES = 1 << 16


def _run(command: Sequence[str], output: str) -> int:
    import ray

    node = ray.get_runtime_context().get_node_id()
    with Path(output).open("ab") as out:
        done = subprocess.run(
            list(command),
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            check=False,
            env=dict(os.environ) | {"RERAIL_EVALUATION_NODE": node},
        )
    return done.returncode


def _not_there(address: str | None, error: Exception) -> ClusterError:
    """Say why there is no cluster; a node whose agents need over 15 s to start gives up (ray-project/ray#65983)."""
    if address is None:
        return ClusterError(
            f"Ray did not start on this machine: {error}. A node ends itself where its agents need more than 15 s "
            "to start, as they do where all cores are busy; raylet.out in the folder named by the hint says so",
            subject="local", recoverable=True,
            hint="tail /tmp/ray/session_latest/logs/raylet.out; run it again when the machine is less busy",
        )  # fmt: skip
    return ClusterError(
        f"the Ray cluster cannot be reached: {error}", subject=address, hint="ray status",
        recoverable=True,
    )  # fmt: skip


class RayRunner:
    """Trials take one GPU where the cluster has any, else one CPU; metrics take one CPU.

    `address` is that of a running cluster; None starts one on this machine.

    Raises:
        ClusterError: ray is not installed, or the cluster cannot be reached.
    """

    poll_s = 0.1

    def __init__(self, address: str | None = None, cpus: int | None = None) -> None:
        try:
            import ray as imported
        except ImportError:
            raise ClusterError(
                "ray is not installed", subject="ray", hint="pip install 'rerail[ray]'"
            ) from None
        ray: Any = imported
        try:
            if not ray.is_initialized():
                ray.init(
                    address=address, num_cpus=cpus, include_dashboard=False, log_to_driver=False,
                    logging_level=logging.ERROR,
                )  # fmt: skip
        except Exception as error:  # Ray raises bare ones where a node does not come up
            raise _not_there(address, error) from None
        self.ray = ray
        self.gpu = 1 if ray.cluster_resources().get("GPU") else 0
        self.running: dict[str, Any] = {}

    def nodes(self, count: int) -> list[str]:
        """Return the node ids that are alive."""
        alive = [node for node in self.ray.nodes() if node["Alive"]]
        return [str(node["NodeID"]) for node in alive][:count]

    def start(self, task: Task) -> str:
        """Call the function remotely; tasks that must be on a node are bound to it."""
        options: dict[str, Any] = {"num_cpus": 1, "max_retries": 0}
        if task.needs_gpu and self.gpu:
            options["num_gpus"] = self.gpu
        elsewhere = [one for one in self.nodes(_MOST_NODES) if one not in task.avoid]
        node = task.node
        if node is None and task.avoid and elsewhere:
            node = elsewhere[len(self.running) % len(elsewhere)]
        if node is not None:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(
                node, soft=task.node is None
            )
        call = self.ray.remote(**options)(_run)
        self.running[task.name] = call.remote(task.command, str(task.folder / "output.log"))
        return task.name

    def ended(self, handles: Sequence[str]) -> set[str]:
        """Return the handles whose call has returned or failed."""
        if not handles:
            return set()
        waiting = {self.running[one]: one for one in handles}
        done, _ = self.ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
        return {waiting[one] for one in done}

    def node_of(self, handle: str) -> str:
        """Return nothing: a task of Ray says itself where it runs."""
        return ""

    def cancel(self, handles: Sequence[str]) -> None:
        """Cancel the calls."""
        for one in handles:
            self.ray.cancel(self.running[one], force=True)
