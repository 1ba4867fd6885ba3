"""Opens and writes files where somebody else may have laid a trap: a link, a pipe, a swapped folder.

A folder is opened once and everything in it is reached through that open folder, so that nobody can
swap a part of the path in between. What is opened is judged by the open file, never by its name.
Source: openat(2), open(2) (O_NOFOLLOW, O_EXCL), CWE-59 and CWE-367.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from rerail.errors import RecoveryError

MOST_BYTES = 1 << 20
_OF_THE_SYSTEM = (Path("/dev"), Path("/proc"))


def name_of(uid: int) -> str:
    """Return the name of an account, or `uid N` where it has none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"uid {uid}"


@contextmanager
def open_folder(folder: Path, owner: int | None = None) -> Iterator[int]:
    """Give the open folder, for calls with `dir_fd`.

    Args:
        folder: where it lies; links on the way are followed, and what they lead to is judged.
        owner: the account that has to own it; None where any owner is right.

    Raises:
        RecoveryError: It does not exist, is no folder, or belongs to another account.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise RecoveryError(f"{folder}: {error.strerror}", subject=str(folder)) from None
    try:
        facts = os.fstat(handle)
        if owner is not None and facts.st_uid != owner:
            raise RecoveryError(
                f"{folder} belongs to {name_of(facts.st_uid)}, not to {name_of(owner)}: "
                "nothing is written or read there",
                subject=str(folder),
            )
        yield handle
    finally:
        os.close(handle)


def write_new(folder: int, name: str, content: bytes, mode: int = 0o644) -> None:
    """Put `content` into the file `name` of an open folder, whole or not at all.

    A link or a file of that name is replaced, never written through.

    Raises:
        OSError: It cannot be written; what stood there before still does.
    """
    temporary = f".{name[:100]}.{secrets.token_hex(8)}"
    how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(temporary, how, 0o600, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fchmod(out.fileno(), mode)
            os.fsync(out.fileno())
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def write_file(path: Path, content: bytes) -> None:
    """Write a file that a person asked for: whole or not at all, never through a link of that name.

    A device or a pipe is refused: as root, what is put in the place of /dev/null or /dev/stdout is missed by every
    other program.

    Raises:
        OSError: It cannot be written.
    """
    _refuse_special(path)
    mask = os.umask(0o077)
    os.umask(mask)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        write_new(folder, path.name, content, 0o666 & ~mask)
    finally:
        os.close(folder)


def _refuse_special(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise OSError(errno.EINVAL, "this is no plain file")
    folder = path.absolute().parent.resolve()
    if folder in _OF_THE_SYSTEM or Path("/proc") in folder.parents:
        raise OSError(
            errno.EINVAL, f"{folder} holds what the system needs, and no files of its users"
        )


def open_regular(
    path: str | Path,
    *,
    folder: int | None = None,
    owners: Collection[int] = (),
    follow: bool = False,
) -> int:
    """Return an open file that is a plain one; never waits for a pipe.

    Args:
        path: the file, or its name in an open `folder`.
        folder: an open folder.
        owners: accounts that may own it; empty where any may.
        follow: whether a link of that name may be followed; the file behind it is judged.

    Raises:
        FileNotFoundError: There is none.
        RecoveryError: It is a link, a pipe, a socket, a folder, or belongs to another account.
        OSError: It cannot be opened.
    """
    how = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        handle = os.open(path, how, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            what = "a link" if error.errno == errno.ELOOP else "a socket or device"
            raise RecoveryError(f"{path} is {what}; it was not read", subject=str(path)) from None
        raise
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise RecoveryError(f"{path} is {_kind(facts.st_mode)}; it was not read")
        if owners and facts.st_uid not in owners:
            raise RecoveryError(
                f"{path} belongs to {name_of(facts.st_uid)}, not to "
                f"{' or '.join(name_of(one) for one in owners)}; it was not read",
                subject=str(path),
            )
    except BaseException:
        os.close(handle)
        raise
    return handle


def read_whole(handle: int, most: int = MOST_BYTES) -> bytes:
    """Return the content of an open file, and close it.

    Raises:
        RecoveryError: It holds more than `most` bytes.
        OSError: It cannot be read.
    """
    with os.fdopen(handle, "rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise RecoveryError(f"the file holds more than {most} bytes")
    return content


def _kind(mode: int) -> str:
    for test, word in (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISLNK, "a link"),
    ):
        if test(mode):
            return word
    return "a device"
