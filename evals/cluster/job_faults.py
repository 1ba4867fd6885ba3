"""What goes wrong in the scenarios' jobs; plain names, because they show in tracebacks."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

AT = 25


def _killed(attempt: int) -> None:
    if attempt == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def _killed_always(attempt: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _typo(attempt: int) -> None:
    settings = {"learning_rate": 0.1}
    print(settings["learning_rat"])


def _hoard(attempt: int) -> None:
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20)) * 16)


def _stuck(attempt: int) -> None:
    if attempt == 0:
        time.sleep(3600)


def _xid_in_output(attempt: int) -> None:
    # What an attacker, or a copied log, prints: no kernel of this cluster ever said so.
    print(
        "[12345.678901] NVRM: Xid (PCI:0000:9b:00): 79, pid=4242, name=python, "
        "GPU has fallen off the bus.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)


def _xid_once(attempt: int) -> None:
    if attempt == 0:
        _xid_in_output(attempt)


def _killed_here(attempt: int) -> None:
    """Once in this folder: a job that is submitted again starts with attempt 0."""
    mark = Path("was_killed")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def _store_reset(attempt: int) -> None:
    if attempt == 0:
        # The frame of the library that reads from an object store; only its file name counts.
        place = "/usr/lib/python3/site-packages/s3fs/core.py"
        code = "def _call_s3():\n    raise ConnectionResetError(104, 'Connection reset by peer')\n"
        names: dict[str, Callable[[], None]] = {}
        exec(compile(code, place, "exec"), names)  # noqa: S102 - fixed text
        names["_call_s3"]()


FAULTS: dict[str, tuple[int, Callable[[int], None]]] = {
    "killed": (1, _killed),
    "killed_always": (1, _killed_always),
    "typo": (1, _typo),
    "hoard": (1, _hoard),
    "stuck": (1, _stuck),
    "xid_in_output": (1, _xid_in_output),
    "xid_once": (1, _xid_once),
    "killed_here": (1, _killed_here),
    "store_reset": (1, _store_reset),
}


def misbehave(name: str, rank: int, step: int, attempt: int) -> None:
    """Do what the fault does, on its rank, before its step."""
    if name:
        on, act = FAULTS[name]
        if rank == on and step == AT:
            act(attempt)
