"""Small files that recovery writes into a job's folder and the job reads: whole or not at all.

The folder belongs to the job's user, who may have put anything there. Either rerail writes as its
own account through the open folder (`rerail.recovery.safe_files`), which has to be the user's and
to let rerail write; or a program writes as the user (`identities.job_user`), which can harm nobody
but that user.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rerail.errors import ClusterError, RecoveryError
from rerail.recovery.safe_files import (
    MOST_BYTES,
    name_of,
    open_folder,
    open_regular,
    read_whole,
    write_new,
)

PROGRAM = "rerail-job-file"
"""The console script that writes as the user; its word for "there is no such file" is exit code 3."""
ABSENT = 3
LIMIT_S = 20.0


@dataclass(frozen=True, slots=True)
class JobFile:
    """One file that recovery orders something in.

    `owner` is the job's user; None takes this process's own account. `as_user` is put before
    `program` to write as the job's user (`sudo -n -u ann`), and is empty where rerail writes itself.
    """

    path: Path
    owner: int | None = None
    as_user: tuple[str, ...] = ()
    program: tuple[str, ...] = (PROGRAM,)

    @property
    def _owner(self) -> int:
        return os.geteuid() if self.owner is None else self.owner

    def read(self) -> bytes | None:
        """Return what stands in the file, or None where there is none.

        Raises:
            RecoveryError: It is no plain file of the user's or rerail's, or cannot be read.
        """
        if self.as_user:
            return self._run("read")
        try:
            with open_folder(self.path.parent, self._owner) as folder:
                owners = {self._owner, os.geteuid()}
                return read_whole(open_regular(self.path.name, folder=folder, owners=owners))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(error) from None

    def write(self, text: str) -> None:
        """Put `text` and a newline into the file.

        Raises:
            RecoveryError: It cannot be written; what stood there before still does.
        """
        content = text.encode() + b"\n"
        if self.as_user:
            self._run("write", content)
            return
        try:
            with open_folder(self.path.parent, self._owner) as folder:
                write_new(folder, self.path.name, content)
        except OSError as error:
            raise self._failed(error) from None

    def check(self) -> str:
        """Return as whom the file would be written; nothing is.

        Raises:
            RecoveryError: It could not be written, or what stands there cannot be read.
        """
        if self.as_user:
            self._run("check")
            return f"as {name_of(self._owner)}, the job's user ({' '.join(self.as_user)})"
        with open_folder(self.path.parent, self._owner) as folder:
            place = f"/proc/self/fd/{folder}"
            if not os.access(place, os.W_OK | os.X_OK, effective_ids=True):
                raise RecoveryError(
                    f"{self.path.parent} cannot be written by {name_of(os.geteuid())}",
                    subject=str(self.path.parent),
                    hint="identities.job_user in the policy file writes as the job's user",
                )
        self.read()
        return f"as {name_of(os.geteuid())}"

    def _failed(self, error: OSError) -> RecoveryError:
        return RecoveryError(
            f"{self.path}: {error.strerror}",
            subject=str(self.path),
            hint="identities.job_user in the policy file writes as the job's user",
        )

    def _run(self, what: str, content: bytes = b"") -> bytes | None:
        if self._owner == 0:
            raise RecoveryError("the job is root's: no order is written as root", subject="root")
        command = [*self.as_user, *self.program, what, str(self.path)]
        try:
            done = subprocess.run(
                command, input=content, capture_output=True, timeout=LIMIT_S, check=False, cwd="/"
            )
        except FileNotFoundError:
            raise RecoveryError(
                f"{command[0]} is not installed here", subject=command[0], hint="rerail doctor"
            ) from None
        except subprocess.TimeoutExpired:
            raise ClusterError(
                f"no answer within {LIMIT_S:g} s: {' '.join(command)}",
                subject=str(self.path),
                recoverable=True,
            ) from None
        if done.returncode == ABSENT:
            return None
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            raise RecoveryError(
                f"{' '.join(command)}: {lines[-1][:300] if lines else f'exit {done.returncode}'}",
                subject=str(self.path),
                hint="identities.job_user and the sudoers entry for it; docs/setup_slurm.md",
            )
        return done.stdout[: MOST_BYTES + 1]


def fill_user(prefix: Sequence[str], uid: int | None) -> tuple[str, ...]:
    """Return a prefix of the policy with `{user}` filled in; empty where no account is known."""
    if not prefix or uid is None:
        return ()
    import pwd

    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return ()
    return tuple(name if word == "{user}" else word for word in prefix)
