"""What stops all writing, asked before each side effect: the breaker, and files that only have to be there.

The breaker lies in the store and holds for everybody who shares it. A stop file works without a
store, without rerail and for an account that may only create a file: `touch DATA_DIR/STOP`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from rerail.recovery.store import control

STOP_FILE = "STOP"


@dataclass(frozen=True)
class Brake:
    """`files` are the stop files of this site."""

    files: tuple[Path, ...] = ()

    def why(self, connection: Connection) -> str:
        """Return why nothing may be written to the cluster or to jobs now, or an empty string."""
        if found := self.stop_file():
            return found
        if why := control.breaker_reason(connection):
            return f"the breaker is open: {why}"
        return ""

    def stop_file(self) -> str:
        """Return which stop file is there, or an empty string; one that cannot be looked for counts."""
        for path in self.files:
            try:
                path.lstat()
            except FileNotFoundError:
                continue
            except OSError as error:
                return f"the stop file {path} cannot be looked for: {error.strerror}"
            return f"the stop file {path} is there"
        return ""


def brake_for(data: Path, further: Sequence[str]) -> Brake:
    """Return the brake of a site: `STOP` in its data folder, and `stop_files` of its policy."""
    return Brake((data / STOP_FILE, *(Path(one).expanduser() for one in further)))
