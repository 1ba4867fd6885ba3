"""A system of its own for accounts, sudoers and services: mounts that only this process tree sees.

The set-up page makes accounts and writes below /etc, /opt and /var. Here it does so for real, in a
mount namespace whose /etc, /opt, /home and /var/lib are overlays that vanish with their processes.
Source: unshare(2), CLONE_NEWNS; kernel documentation, filesystems/overlayfs.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from rerail.errors import UsageError

CLONE_NEWNS = 0x00020000
COVERED = ("etc", "opt", "home", "var/lib", "var/log", "var/cache")
OPEN = 0o755
_entered = False


def entered() -> bool:
    """Return whether this process has a private system."""
    return _entered


def enter() -> None:
    """Give this process, and all that it starts from now on, a private system; once.

    Raises:
        UsageError: The kernel does not allow it here.
    """
    global _entered
    if _entered:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        why = os.strerror(ctypes.get_errno())
        raise UsageError(
            f"accounts of its own need a private mount namespace: {why}",
            subject="cluster",
            hint="run it as root, in a container with CAP_SYS_ADMIN",
        )
    _mount("--make-rprivate", "/")
    # Only root can make an entry there; the folder stays, empty, since a mount cannot lie on nothing.
    top = Path("/run/rerail-system")
    top.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "rerail", str(top))
    for name in COVERED:
        upper, work, lower = top / "upper" / name, top / "work" / name, Path("/") / name
        if not lower.is_dir():
            continue
        upper.mkdir(parents=True)
        work.mkdir(parents=True)
        upper.chmod(OPEN)
        how = f"lowerdir={lower},upperdir={upper},workdir={work}"
        _mount("-t", "overlay", "overlay", "-o", how, str(lower))
    _open_interpreter(top)
    _entered = True


def _mount(*arguments: str) -> None:
    done = subprocess.run(("mount", *arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(
            f"mount {' '.join(arguments)}: {done.stderr.strip()}",
            subject="cluster",
            hint="run it as root, in a container with CAP_SYS_ADMIN",
        )


def _open_interpreter(top: Path) -> None:
    """Let every account run this interpreter, wherever it lies: in root's home, for example."""
    wanted = [Path(sys.executable), Path(os.path.realpath(sys.executable)), Path(sys.prefix)]
    wanted += [Path(sys.base_prefix), *(Path(one) for one in sys.path if one)]
    for path in wanted:
        closed = next((one for one in reversed(path.parents) if _closed(one)), None)
        if closed is not None:
            _let_through(closed, path.relative_to(closed).parts[0], top)


def _closed(folder: Path) -> bool:
    return folder.is_dir() and folder.stat().st_mode & 0o005 != 0o005


def _let_through(folder: Path, name: str, top: Path) -> None:
    """Cover a closed folder with an open one that holds nothing but one entry of it."""
    kept = top / "kept" / name.lstrip(".")
    kept.mkdir(parents=True)
    _mount("--bind", str(folder / name), str(kept))
    _mount("-t", "tmpfs", "-o", "mode=755", "rerail", str(folder))
    (folder / name).mkdir()
    _mount("--bind", str(kept), str(folder / name))
