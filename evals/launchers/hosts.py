"""Several hosts on one machine: a name, a network and a memory group of their own for each.

A host is a process that holds a UTS, a network and a mount namespace; it has its own name, its own
address on a bridge, its own `/etc/hosts` and an SSH daemon. Process ids are the machine's, as the kernel's
log knows them. Source: unshare(1), ip-netns(8), cgroups(7), version 1.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from rerail.errors import UsageError
from rerail.evals.faultlab import machine

SUBNET = "10.77.31"
FIRST_ADDRESS = 11
PROGRAMS = ("ip", "unshare", "nsenter", "sshd", "ssh", "ssh-keygen")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# The bridge of the lab is no part of the hosts.
NETWORK = re.compile(r"\] (?:br|v)[0-9a-f]{5}\w?[: ]")
SSH_CONFIG = """Host *
  User root
  IdentityFile {folder}/id
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  ServerAliveInterval 4
  ServerAliveCountMax 2
"""
SSHD_CONFIG = """Port 22
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/id.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PidFile none
SetEnv {environment}
"""


def cannot_run() -> str:
    """Return why hosts cannot be made on this machine, or an empty string."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (run evals/launchers/install.sh)"
    return machine.missing("memory_cgroup")


class Hosts:
    """A bridge with hosts on it; use it as a context manager.

    Args:
        names: Names of the hosts, in the order of their addresses.
        folder: Keys and settings go here; every host sees it.
        path: What stands in front of the search path on every host.
        memory_mb: Limit of each host's memory group.

    Raises:
        UsageError: The machine lacks the programs or the rights (on enter).
    """

    def __init__(
        self, names: Sequence[str], folder: Path, path: str, memory_mb: int | None = None
    ) -> None:
        self.names = tuple(names)
        self.folder = folder
        self.token = f"job-{uuid.uuid4().hex[:8]}"
        self.address = {name: f"{SUBNET}.{FIRST_ADDRESS + i}" for i, name in enumerate(self.names)}
        self.environment = {
            "PATH": f"{folder}/bin:{path}:{PATH}",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "LAB_TOKEN": self.token,
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }
        self._memory_mb = memory_mb
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._groups: dict[str, machine.Cgroup] = {}
        self._short = self.token[4:9]
        self.booted = time.clock_gettime(time.CLOCK_MONOTONIC)

    def __enter__(self) -> Hosts:
        """Make the bridge and the hosts."""
        if reason := cannot_run():
            raise UsageError(reason, subject="launchers", hint="evals/launchers/install.sh")
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every process of the hosts and take the network away."""
        self.close()

    def run(
        self, host: str, command: Sequence[str], log: Path, extra: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command on a host; what it prints goes to the end of `log`."""
        inside = ["nsenter", "--target", str(self._holders[host].pid), "--net", "--uts", "--mount"]
        inside += [f"--wd={self.folder.parent}"]
        with log.open("ab") as out:
            return subprocess.Popen(
                [*inside, "--", *command],
                env={**self.environment, **(extra or {})},
                cwd=self.folder.parent,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self._groups[host].join,
            )

    def vanish(self, host: str) -> None:
        """Take a host away at once: the link first, so that nobody hears its processes end."""
        _ip("link", "set", self._link(host), "down")
        self._end(host)

    def _end(self, host: str) -> None:
        procs = self._groups[host].path / "cgroup.procs"
        for _ in range(40):
            left = procs.read_text().split()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            if not left:
                return
            time.sleep(0.05)

    def kernel_log(self) -> str:
        """Return what the kernel said when it killed for want of memory on these hosts."""
        said = machine.kernel_log(self.booted)
        starts = [
            found.start() for found in re.finditer(r"^.*invoked oom-killer", said, re.MULTILINE)
        ]
        kills = [said[a:b] for a, b in zip(starts, [*starts[1:], len(said)], strict=True)]
        lines = "".join(kill for kill in kills if self.token in kill).splitlines(keepends=True)
        found = "".join(line for line in lines if not NETWORK.search(line))
        return re.sub(rf"{re.escape(platform.release())} #.*", "6.1.0-28-amd64 #1", found)

    def close(self) -> None:
        """End every process of the hosts and take the network away."""
        for name in self._groups:
            self._end(name)
        machine.end_processes(self.token)
        for holder in self._holders.values():
            holder.kill()
            holder.wait()
        for group in self._groups.values():
            group.close()
        for name in self.names:
            _ip("link", "del", self._link(name), check=False)
            _ip("netns", "del", self._space(name), check=False)
        _ip("link", "del", f"br{self._short}", check=False)

    def _link(self, host: str) -> str:
        return f"v{self._short}{self.names.index(host)}"

    def _space(self, host: str) -> str:
        return f"{self.token}-{self.names.index(host)}"

    def _start(self) -> None:
        self._write_files()
        bridge = f"br{self._short}"
        _ip("link", "add", bridge, "type", "bridge")
        _ip("link", "set", bridge, "up")
        for name in self.names:
            space, link = self._space(name), self._link(name)
            _ip("netns", "add", space)
            _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", link, "master", bridge, "up")
            for words in (
                ("addr", "add", f"{self.address[name]}/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
                ("link", "set", "lo", "up"),
            ):
                _ip("-n", space, *words)
            limits = {}
            if self._memory_mb:
                size = self._memory_mb << 20
                limits = {"memory.limit_in_bytes": size, "memory.memsw.limit_in_bytes": size}
            self._groups[name] = machine.Cgroup(
                "memory", f"{self.token}.{self.names.index(name)}", limits
            )
            self._holders[name] = self._hold(name, space)
        for name in self.names:
            self._start_ssh(name)

    def _hold(self, name: str, space: str) -> subprocess.Popen[bytes]:
        ready = self.folder / f"ready-{name}"
        script = (
            f"hostname {name} && mount --bind {self.folder}/hosts /etc/hosts && "
            f"mkdir -p /run/sshd && touch {ready} && exec sleep infinity"
        )
        holder = subprocess.Popen(
            [
                *("nsenter", f"--net=/run/netns/{space}", "unshare", "--uts", "--mount"),
                *("--propagation", "private", "sh", "-c", script),
            ],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for _ in range(200):
            if ready.exists():
                return holder
            if holder.poll() is not None:
                break
            time.sleep(0.05)
        raise UsageError(f"the host {name} did not start", subject="launchers", hint="dmesg")

    def _start_ssh(self, name: str) -> None:
        settings = {**self.environment}
        words = " ".join(f'{key}="{value}"' for key, value in settings.items() if key != "HOME")
        config = self.folder / f"sshd_config-{name}"
        config.write_text(
            SSHD_CONFIG.format(address=self.address[name], folder=self.folder, environment=words)
        )
        command = ["/usr/sbin/sshd", "-D", "-e", "-f", str(config)]
        log = self.folder / f"sshd-{name}.log"
        self.run(name, command, log)
        for _ in range(200):
            if "listening" in log.read_text():
                return
            time.sleep(0.05)
        raise UsageError(f"sshd of {name} did not start", subject="launchers", hint=str(log))

    def _write_files(self) -> None:
        (self.folder / "bin").mkdir(parents=True, exist_ok=True)
        lines = ["127.0.0.1 localhost"]
        lines += [f"{address} {name}" for name, address in self.address.items()]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")
        for key in ("id", "host_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key)],
                check=True,
            )
        (self.folder / "ssh_config").write_text(SSH_CONFIG.format(folder=self.folder))
        wrapper = self.folder / "bin" / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {self.folder}/ssh_config "$@"\n')
        wrapper.chmod(0o755)


def _ip(*words: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if check and done.returncode:
        raise UsageError(
            f"ip {' '.join(words)}: {done.stderr.strip()}",
            subject="launchers",
            hint="run it as root, with CAP_NET_ADMIN",
        )
