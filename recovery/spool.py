"""The spool: where a hook leaves an event without opening a database.

A scheduler waits for its hook, so the hook writes one small file, flushes it to disk and returns. A
crash at any moment leaves a file that is whole, or in the queue, or both; the queue takes each job
attempt once.
"""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from rerail.errors import RecoveryError
from rerail.recovery.leave_event import MOST_BYTES, leave
from rerail.recovery.safe_files import name_of, open_folder, open_regular, read_whole

FOLDER = "spool"
MOST_AT_ONCE = 2_000
"""Events that one round takes; a flood waits in the folder."""
REJECTED = "rejected"
__all__ = ["FOLDER", "REJECTED", "Waiting", "leave", "read", "set_aside", "waiting"]


@dataclass
class Waiting:
    """What lies in the spool: events that may be read, the oldest first, and what may not.

    `strange` names each entry that is no event of an account that may leave one, and why.
    """

    files: list[Path]
    strange: dict[Path, str]


def waiting(folder: Path, most: int = MOST_AT_ONCE) -> Waiting:
    """Return what waits. Only names and kinds are looked at: nothing is opened, nothing waited for.

    Raises:
        RecoveryError: The folder cannot be read.
    """
    found: list[tuple[int, Path]] = []
    strange: dict[Path, str] = {}
    try:
        of_folder = folder.stat()
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.endswith(".json") or entry.name.startswith("."):
                    continue
                path = folder / entry.name
                try:
                    facts = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # another process took it
                    continue
                if why := _why_strange(facts, of_folder):
                    strange[path] = why
                else:
                    found.append((facts.st_mtime_ns, path))
    except FileNotFoundError:
        return Waiting([], {})
    except OSError as error:
        raise RecoveryError(
            f"the spool {folder}: {error.strerror}", subject=str(folder), hint="rerail doctor"
        ) from None
    return Waiting([path for _, path in sorted(found)[:most]], strange)


def may_leave(uid: int, folder: os.stat_result) -> bool:
    """Tell whether an account's events count: root's, this one's, and those of the folder's group.

    The group counts where the folder lets it write: that is how a site lets its scheduler's account
    leave events. Only accounts that left something are looked up: a directory service may be slow.
    """
    import pwd

    if uid in (0, os.geteuid(), folder.st_uid):
        return True
    if not folder.st_mode & stat.S_IWGRP:
        return False
    try:
        account = pwd.getpwuid(uid)
    except KeyError:
        return False
    return folder.st_gid in os.getgrouplist(account.pw_name, account.pw_gid)


def _why_strange(facts: os.stat_result, folder: os.stat_result) -> str:
    if not stat.S_ISREG(facts.st_mode):
        return "it is no file"
    if not may_leave(facts.st_uid, folder):
        return f"it belongs to {name_of(facts.st_uid)}, who may not leave events here"
    return ""


def read(path: Path) -> bytes:
    """Return the content of an event that waits.

    Raises:
        FileNotFoundError: Another process took it.
        RecoveryError: It is no plain file (any more), too large, or cannot be read.
    """
    try:
        handle = open_regular(path)
        why = _why_strange(os.fstat(handle), path.parent.stat())
        if why:
            os.close(handle)
            raise RecoveryError(f"{path}: {why}", subject=str(path))
        return read_whole(handle, MOST_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RecoveryError(f"{path}: {error.strerror}", subject=str(path)) from None


def set_aside(path: Path) -> None:
    """Move what is no event out of the way, for a person to look at.

    Raises:
        RecoveryError: It cannot be moved.
    """
    folder = path.parent / REJECTED
    try:
        folder.mkdir(exist_ok=True, mode=0o700)
        with open_folder(folder, os.geteuid()) as into:
            if folder.is_symlink():
                raise RecoveryError(f"{folder} is a link", subject=str(folder))
            os.rename(path, f"{path.name}.{secrets.token_hex(4)}", dst_dir_fd=into)
    except OSError as error:
        raise RecoveryError(
            f"{path} could not be set aside: {error.strerror}", subject=str(path)
        ) from None
