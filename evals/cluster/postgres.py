"""A PostgreSQL of this process, from Debian's package, on a socket in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rerail.errors import UsageError

_TOOLS = Path("/usr/lib/postgresql")


@contextmanager
def running_postgres() -> Iterator[str]:
    """Start a server and yield its URL; PostgreSQL refuses root, so root starts it as its own user.

    Raises:
        UsageError: when the package is not installed, or it cannot be started.
    """
    found = sorted(_TOOLS.glob("*/bin/initdb"))
    if not found:
        raise UsageError(
            f"PostgreSQL is not installed: no {_TOOLS}/*/bin/initdb",
            subject="postgresql",
            hint="evals/cluster/install.sh postgresql",
        )
    folder = Path(tempfile.mkdtemp(prefix="rerail-pg-"))
    become: list[str] = []
    if os.geteuid() == 0:
        try:
            shutil.chown(folder, "postgres", "postgres")
        except LookupError:
            shutil.rmtree(folder)
            raise UsageError(
                "PostgreSQL does not run as root, and there is no user postgres",
                subject="postgresql",
                hint="evals/cluster/install.sh postgresql",
            ) from None
        become = ["runuser", "-u", "postgres", "--"]
    tools = found[-1].parent

    def run(*command: str) -> None:
        done = subprocess.run(
            [*become, *command], cwd=folder, stdin=subprocess.DEVNULL, check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
        if done.returncode != 0:
            raise UsageError(f"PostgreSQL: {done.stderr.strip()}", subject="postgresql", hint="")

    data = str(folder / "data")
    try:
        run(str(tools / "initdb"), "-D", data, "-U", "rerail", "-A", "trust", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        run(str(tools / "pg_ctl"), "-D", data, "-w", "-o", options, "-l", f"{folder}/log", "start")
        try:
            yield f"postgresql://rerail@/postgres?host={folder}"
        finally:
            run(str(tools / "pg_ctl"), "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
