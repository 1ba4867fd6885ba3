"""What the lab borrows from the machine: cgroups, ports, the kernel log; all given back."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PROGRAMS = {"nvcc": "nvcc", "compute_sanitizer": "compute-sanitizer"}
MODULES = ("triton", "cupy", "jax", "lightning", "transformers")


def missing(need: str) -> str:
    """Return why the machine cannot offer `need`, or an empty string if it can."""
    if need == "cuda":
        return _no_gpu()
    if need in PROGRAMS:
        return "" if shutil.which(PROGRAMS[need]) else f"{PROGRAMS[need]} is not installed"
    if need in MODULES:
        return "" if find_spec(need) else f"{need} is not installed"
    if os.geteuid() != 0:
        return f"{need} needs root"
    if need == "mount_namespace":
        command = ["unshare", "--mount", "true"]
        if not shutil.which("unshare") or subprocess.run(command, capture_output=True).returncode:
            return "private mount namespaces are not allowed here"
    if need.endswith("_cgroup"):
        controller = need.removesuffix("_cgroup")
        if not os.access(CGROUPS / controller, os.W_OK):
            return f"no writable cgroup v1 controller {controller!r}"
    return ""


@cache
def _no_gpu() -> str:
    if version("torch").endswith("+cpu"):
        return "torch is built for the CPU only"
    command = ["nvidia-smi", "-L"]
    if not shutil.which("nvidia-smi") or subprocess.run(command, capture_output=True).returncode:
        return "no NVIDIA GPU here"
    return ""


class Cgroup:
    """One cgroup (v1) of the lab, removed when the run is over."""

    def __init__(self, controller: str, name: str, limits: dict[str, int]) -> None:
        self.path = CGROUPS / controller / name
        self.path.mkdir()
        for key, value in limits.items():
            try:
                (self.path / key).write_text(str(value))
            except FileNotFoundError:
                if "memsw" not in key:
                    raise

    def join(self) -> None:
        """Move the calling process into the group (before exec)."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def close(self) -> None:
        """Remove the group once its processes are gone."""
        for _ in range(50):
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.1)
            else:
                return


def callers() -> set[int]:
    """Return this process, those that started it, and all others of its terminal session.

    Who exported a run's variables in the shell has them in `timeout`, `tee` and the shell as well.
    """
    found, process = {os.getpid()}, os.getpid()
    while process > 1:
        try:
            # The name in brackets may hold anything, blanks too.
            rest = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            break
        process = int(rest[1])
        found.add(process)
    own = os.getsid(0)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == own:
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def processes_of(token: str) -> list[int]:
    """Return the processes whose environment holds the token of a run."""
    found = []
    needle = token.encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if needle in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def end_processes(token: str, *, spare_callers: bool = False) -> int:
    """Kill what a run left behind, stopped processes too; return how many there were.

    `spare_callers` is for runs whose processes have sessions of their own.
    """
    total = 0
    for _ in range(20):
        spared = callers() if spare_callers else set()
        left = [one for one in processes_of(token) if one not in spared]
        if not left:
            break
        total = max(total, len(left))
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.1)
    return total


def free_ports(count: int) -> list[int]:
    """Return TCP ports that nobody holds now and that the kernel gives to no connection.

    A port of the ephemeral range that is free now may belong to a connection of any other process
    when its user listens seconds later; Linux tells the range in `ip_local_port_range`.
    """
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = range(10_000, low) if low > 11_000 else range(61_000, 65_536)
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", random.choice(candidates)))
            except OSError:
                continue
            found.append(int(probe.getsockname()[1]))
        return found


def free_port() -> int:
    """Return one port as `free_ports` does."""
    return free_ports(1)[0]


def listen(port: int) -> socket.socket:
    """Occupy a port on all addresses."""
    server = socket.socket(socket.AF_INET6)
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.bind(("::", port))
    server.listen()
    return server


def last_kernel_stamp() -> float:
    """Return the time of the kernel log's last line; its clock is not quite that of any process."""
    return max((stamp for stamp, _ in _kernel_lines()), default=0.0)


def kernel_log(since: float) -> str:
    """Return the lines that the kernel logged after `since` (seconds since boot, by its clock)."""
    return "".join(line + "\n" for stamp, line in _kernel_lines() if stamp > since)


def _kernel_lines() -> Iterator[tuple[float, str]]:
    shown = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace")
    for line in shown.stdout.splitlines():
        stamp = re.match(r"\[\s*(\d+\.\d+)\]", line)
        if stamp:
            yield float(stamp[1]), line
