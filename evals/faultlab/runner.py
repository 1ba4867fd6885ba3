"""Runs scenarios: real torchrun, real processes, one at a time, everything cleaned up after.

Layout of `out/<scenario>/`: `logs/` is what a user would hand to `rerail diagnose` (the launcher's
output, torchrun's --log-dir tree, the kernel's lines), `meta.json` is what the lab knows and lies
beside it, so that the truth is never part of the evidence. While the job runs the folder has a
neutral name, because the job prints its paths.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path

from rerail.evals.faultlab import gpu, machine
from rerail.evals.faultlab.prepare import prepare
from rerail.evals.faultlab.scenarios import Scenario

TRAINING = "step 20 loss"


@dataclass(frozen=True)
class Run:
    """What is known of one run beside its logs."""

    scenario: str
    exit_code: int | None
    timed_out: bool
    wall_s: float
    leftovers: int
    versions: dict[str, str]
    hosts: tuple[str, ...] = ()
    skipped: str = ""
    facts: dict[str, str] = field(default_factory=dict)


def why_not(scenario: Scenario) -> str:
    """Return why the scenario cannot run on this machine, or an empty string."""
    if scenario.cannot:
        return scenario.cannot
    if find_spec("torch") is None:
        return "torch is not installed"
    return next((reason for need in scenario.needs if (reason := machine.missing(need))), "")


def run_scenario(scenario: Scenario, out: Path) -> Run:
    """Run one scenario into `out/<scenario>/` and return what is known of it."""
    reason = why_not(scenario)
    if reason:
        return Run(scenario.name, None, False, 0.0, 0, {}, skipped=reason)
    out.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="run-", dir=out.resolve()))
    root.chmod(0o755)
    try:
        prepare(scenario.prepare, root)
        run = _launch(scenario, root)
        for left in root.iterdir():
            if left.is_dir() and left.name != "logs":
                shutil.rmtree(left, ignore_errors=True)
            elif left.is_file():
                left.unlink()
        (root / "meta.json").write_text(json.dumps(asdict(run), indent=1) + "\n")
        final = out / scenario.name
        shutil.rmtree(final, ignore_errors=True)
        root.rename(final)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return run


def _program(scenario: Scenario, root: Path) -> list[str]:
    if scenario.launcher == "none":
        return list(scenario.script)
    here = Path(__file__).parent
    usual: tuple[str, ...] = ()
    script = here / "programs" / scenario.program
    if not scenario.program:
        script = here / "train.py"
        usual = ("--data", str(root / "data"), "--checkpoints", str(root / "ckpt"))
    if scenario.launcher == "python":
        return [sys.executable, "-u", str(script), *usual, *scenario.script]
    program = [str(script)]
    if scenario.wrapper:
        program = ["--no-python", *scenario.wrapper, sys.executable, "-u", str(script)]
    return [
        *(sys.executable, "-m", "torch.distributed.run", *scenario.torchrun),
        *("--log-dir", str(root / "logs"), "--redirects", "3", "--tee", "3", *program),
        *(*usual, *scenario.script),
    ]


def _command(scenario: Scenario, root: Path, port: int) -> list[str]:
    fill = {"{port}": str(port), "{root}": str(root)}

    def filled(text: str) -> str:
        for key, value in fill.items():
            text = text.replace(key, value)
        return text

    command = [filled(part) for part in _program(scenario, root)]
    if scenario.setup:
        setup = filled(scenario.setup)
        # A set-up that starts with exec is a wrapper; any other is run first.
        body = f'{setup} "$@"' if setup.startswith("exec ") else f'{setup} && exec "$@"'
        command = ["bash", "-c", body, "bash", *command]
    if "mount_namespace" in scenario.needs:
        command = ["unshare", "--mount", "--propagation", "private", *command]
    return command


def _environment(scenario: Scenario, token: str, root: Path) -> dict[str, str]:
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "PYTHONPATH")
    return {
        **{key: os.environ[key] for key in kept if key in os.environ},
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "JOB_TOKEN": token,
        "JOB_HOOKS": scenario.hooks,
        **(gpu.caches(root) if "cuda" in scenario.needs else {}),
        **{key: value.replace("{root}", str(root)) for key, value in scenario.env.items()},
    }


def _launch(scenario: Scenario, root: Path) -> Run:
    token = f"job-{uuid.uuid4().hex[:12]}"
    environment = _environment(scenario, token, root)
    port = machine.free_port()
    (root / "logs").mkdir()
    logged = machine.last_kernel_stamp() if scenario.kernel_log else 0.0
    started = time.monotonic()
    with ExitStack() as stack:
        if scenario.busy_port:
            stack.enter_context(machine.listen(port))
        joins = _cgroups(scenario, token, environment, stack)
        stack.callback(machine.end_processes, token)
        stack.enter_context(gpu.beside(scenario, root, environment))

        def enter() -> None:
            os.nice(5)
            for join in joins:
                join()

        with _log(scenario, root).open("wb") as log:
            process = subprocess.Popen(
                _command(scenario, root, port),
                cwd=root,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=enter,
            )
            timed_out = _wait(process, scenario, root)
            gpu.look(scenario.smi, root / "logs")
        wall = time.monotonic() - started
        leftovers = machine.end_processes(token)
    if scenario.kernel_log and (lines := machine.kernel_log(logged)):
        (root / "logs" / "dmesg.txt").write_text(lines)
    return Run(
        scenario.name,
        process.returncode,
        timed_out,
        round(wall, 1),
        leftovers,
        {**_versions(), **(gpu.versions() if "cuda" in scenario.needs else {})},
        # torchrun calls its own host localhost.
        (socket.gethostname(), "localhost"),
        facts=gpu.facts(root),
    )


def _log(scenario: Scenario, root: Path) -> Path:
    name = "torchrun.log" if scenario.launcher == "torchrun" else "job.log"
    return root / "logs" / name


def _cgroups(
    scenario: Scenario, token: str, environment: dict[str, str], stack: ExitStack
) -> list[Callable[[], None]]:
    joins: list[Callable[[], None]] = []
    if scenario.memory_limit_mb:
        size = scenario.memory_limit_mb << 20
        limits = {"memory.limit_in_bytes": size, "memory.memsw.limit_in_bytes": size}
        group = machine.Cgroup("memory", token, limits)
        stack.callback(group.close)
        joins.append(group.join)
    if scenario.pids_limit:
        group = machine.Cgroup("pids", token, {"pids.max": scenario.pids_limit})
        stack.callback(group.close)
        joins.append(group.join)
    if scenario.cpu_percent:
        limits = {"cpu.cfs_period_us": 50_000, "cpu.cfs_quota_us": 500 * scenario.cpu_percent}
        group = machine.Cgroup("cpu", token, limits)
        stack.callback(group.close)
        environment["JOB_CPU_CGROUP"] = str(group.path)
    return joins


def _wait(process: subprocess.Popen[bytes], scenario: Scenario, root: Path) -> bool:
    """Wait for the launcher, signal it if the scenario says so, kill it at the limit."""
    deadline = time.monotonic() + scenario.limit_s
    to_signal = scenario.agent_signal
    log = _log(scenario, root)
    while process.poll() is None:
        if to_signal and TRAINING in log.read_text(errors="replace"):
            process.send_signal(signal.Signals[to_signal])
            to_signal = ""
        if time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
        time.sleep(0.1)
    return False


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {"python": sys.version.split()[0], "torch": version("torch")}
