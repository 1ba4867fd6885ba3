"""What goes wrong in the scenarios' jobs; plain names, because they show in tracebacks."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

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


FAULTS: dict[str, tuple[int, Callable[[int], None]]] = {
    "killed": (1, _killed),
    "killed_always": (1, _killed_always),
    "typo": (1, _typo),
    "hoard": (1, _hoard),
    "stuck": (1, _stuck),
    "xid_in_output": (1, _xid_in_output),
    "xid_once": (1, _xid_once),
}


def misbehave(name: str, rank: int, step: int, attempt: int) -> None:
    """Do what the fault does, on its rank, before its step."""
    if name:
        on, act = FAULTS[name]
        if rank == on and step == AT:
            act(attempt)
