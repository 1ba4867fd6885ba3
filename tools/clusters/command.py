"""Runs one program of a scheduler: bounded time, no shell, clear errors."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from rerail.errors import ClusterError
from rerail.tools.clusters.scheduler_answers import AWAY, meaning


def run_command(
    argv: Sequence[str], *, environment: Mapping[str, str] | None = None, limit_s: float = 20.0
) -> str:
    """Run a command and return its standard output.

    Raises:
        ClusterError: The program is absent, exceeded `limit_s` or failed. `recoverable` is true
            where the same command may succeed later.
    """
    shown = " ".join(argv)
    try:
        done = _bounded(argv, environment, limit_s)
    except FileNotFoundError:
        raise ClusterError(
            f"{argv[0]} is not installed here", subject=argv[0], hint="rerail doctor"
        ) from None
    except OSError as error:
        raise ClusterError(
            f"{argv[0]} could not be started: {error.strerror}", subject=argv[0], recoverable=True
        ) from None
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"no answer within {limit_s:g} s: {shown}",
            subject=argv[0],
            hint="is the controller up? scontrol ping",
            recoverable=True,
        ) from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        message = said[-1][:300] if said else f"exit code {done.returncode}"
        away = meaning(done.stderr) == AWAY
        raise ClusterError(
            f"{shown}: {message}", subject=argv[0], hint="rerail doctor", recoverable=away
        )
    return done.stdout


def _bounded(
    argv: Sequence[str], environment: Mapping[str, str] | None, limit_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command and end it at the limit, with what it started; who does not end is not waited for.

    `subprocess.run` waits for everybody who holds the pipe, and cannot end what sudo started.
    """
    child = subprocess.Popen(
        list(argv),
        env=None if environment is None else dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=0,
    )
    try:
        out, err = child.communicate(timeout=limit_s)
    except BaseException:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.2)
        raise
    return subprocess.CompletedProcess(argv, child.returncode, out, err)
