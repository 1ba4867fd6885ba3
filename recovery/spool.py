"""The spool: where a hook leaves an event without opening a database.

A scheduler waits for its hook, so the hook writes one small file, flushes it to disk and returns. A
crash at any moment leaves a file that is whole, or in the queue, or both; the queue takes each job
attempt once.
"""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from pathlib import Path

from rerail.errors import RecoveryError

FOLDER = "spool"
MOST_BYTES = 1 << 20
REJECTED = "rejected"


def leave(folder: Path, body: bytes) -> Path:
    """Write one event; when this returns, a crash cannot lose it.

    Raises:
        RecoveryError: It is too large or the folder cannot be written.
    """
    if len(body) > MOST_BYTES:
        raise RecoveryError(
            f"an event of {len(body)} bytes; the limit is {MOST_BYTES}", subject="event"
        )
    name = f"{uuid.uuid4().hex}.json"
    temporary = folder / f".{name}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Where a scheduler's hook runs as another account than the daemon, the site shares the
        # folder with a group (mode 2770), which then has to read what the other one wrote.
        shared = bool(folder.stat().st_mode & stat.S_ISGID)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        if shared:
            os.fchmod(handle, 0o640)
        try:
            written = 0
            while written < len(body):  # a disk that fills up takes a part first
                written += os.write(handle, body[written:])
            os.fsync(handle)
        finally:
            os.close(handle)
        temporary.replace(folder / name)
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise RecoveryError(
            f"the event could not be kept in {folder}: {error.strerror}",
            subject=str(folder),
            hint="set RERAIL_DATA_DIR to a folder that can be written",
        ) from None
    return folder / name


def waiting(folder: Path) -> list[Path]:
    """Return the files that wait, the oldest first."""
    if not folder.is_dir():
        return []
    found = []
    for path in folder.iterdir():
        if path.suffix == ".json" and not path.name.startswith("."):
            try:
                found.append((path.stat().st_mtime_ns, path))
            except FileNotFoundError:  # another process took it
                continue
    return [path for _, path in sorted(found)]


def set_aside(path: Path) -> None:
    """Move a file that is no event out of the way, for a person to look at."""
    folder = path.parent / REJECTED
    folder.mkdir(exist_ok=True)
    path.replace(folder / path.name)
