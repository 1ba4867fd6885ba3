"""Leaves one event in the spool: a whole file on disk, or nothing.

Imported by a hook that a scheduler waits for, so only what a Python process has loaded anyway is
imported here.
"""

from __future__ import annotations

import os
import stat

from rerail.errors import RecoveryError

MOST_BYTES = 1 << 20


def leave(folder: str | os.PathLike[str], body: bytes) -> str:
    """Write one event and return its path; when this returns, a crash cannot lose it.

    Raises:
        RecoveryError: It is too large or the folder cannot be written.
    """
    if len(body) > MOST_BYTES:
        raise RecoveryError(
            f"an event of {len(body)} bytes; the limit is {MOST_BYTES}", subject="event"
        )
    place = os.fspath(folder)
    name = f"{os.urandom(16).hex()}.json"
    directory, temporary = -1, f".{name}"
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(temporary, how, 0o600, dir_fd=directory)
        try:
            # Where a scheduler's hook runs as another account than the daemon, the site shares the
            # folder with a group (mode 2770), which then has to read what the other one wrote.
            if os.fstat(directory).st_mode & stat.S_ISGID:
                os.fchmod(handle, 0o640)
            written = 0
            while written < len(body):  # a disk that fills up takes a part first
                written += os.write(handle, body[written:])
            os.fsync(handle)
        finally:
            os.close(handle)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        os.fsync(directory)
    except OSError as error:
        if directory >= 0:
            try:
                os.unlink(temporary, dir_fd=directory)
            except OSError:
                pass
        raise RecoveryError(
            f"the event could not be kept in {place}: {error.strerror}",
            subject=place,
            hint="set RERAIL_DATA_DIR to a folder that can be written",
        ) from None
    finally:
        if directory >= 0:
            os.close(directory)
    return os.path.join(place, name)
