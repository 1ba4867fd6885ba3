"""The inbox: where a diagnosis leaves its incident without opening a database.

Importing the database layer costs more than a small diagnosis. So `diagnose` writes one file,
flushes it and its folder to disk, and only then names the incident: that is the acknowledgement.
Every other command moves the files into the store first. A crash at any moment leaves a file that
is whole, or in the store, or both; taking it in twice changes nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from rerail.domain.incident import Incident
from rerail.errors import StoreError
from rerail.settings import Settings, load_settings

if TYPE_CHECKING:
    from sqlalchemy import Engine

FOLDER = "inbox"
REJECTED = "rejected"
AT_ONCE = 100


def inbox_folder(settings: Settings | None = None) -> Path:
    """Return the folder of the inbox; it may not exist yet."""
    return (settings or load_settings()).data_dir.expanduser() / FOLDER


def submit(incident: Incident, settings: Settings | None = None) -> Path:
    """Write an incident to the inbox; when this returns, a crash cannot lose it.

    Raises:
        StoreError: when it cannot be written.
    """
    folder = inbox_folder(settings)
    body = incident.model_dump_json().encode()
    target = folder / f"{incident.id}-{sha256(body).hexdigest()[:12]}.json"
    temporary = folder / f".{target.name}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(handle, "wb", closefd=False) as out:
                out.write(body)
            os.fsync(handle)
        finally:
            os.close(handle)
        temporary.replace(target)
        _sync_folder(folder)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise StoreError(
            f"the incident could not be kept in {folder}: {error.strerror}",
            subject=str(folder),
            hint="set RERAIL_DATA_DIR to a folder that can be written, or use --no-store",
            recoverable=True,
        ) from None
    return target


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def pending(settings: Settings | None = None) -> list[Path]:
    """Return the files that wait, the oldest first."""
    folder = inbox_folder(settings)
    if not folder.is_dir():
        return []
    files = [p for p in folder.iterdir() if p.suffix == ".json" and not p.name.startswith(".")]
    return sorted(files, key=lambda p: (_age(p), p.name))


def _age(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # another process took it in
        return 0


def ingest(engine: Engine, settings: Settings | None = None) -> list[str]:
    """Move what waits into the store; return the ids. A file that is no incident is set aside.

    Raises:
        StoreError: when the store cannot be written; the files stay.
    """
    from rerail.knowledge_base.store.engine import writing
    from rerail.knowledge_base.store.incidents import record

    taken = []
    waiting = pending(settings)
    for at in range(0, len(waiting), AT_ONCE):
        # One transaction for many: each costs a flush to disk. Files go only once they are kept.
        part = [(path, one) for path in waiting[at : at + AT_ONCE] if (one := _read(path))]
        # In one order for all writers, so that two transactions never wait for each other.
        part.sort(key=lambda item: item[1].id)
        with writing(engine) as connection:
            for _, incident in part:
                record(connection, incident)
        for path, incident in part:
            path.unlink(missing_ok=True)
            taken.append(incident.id)
    return taken


def _read(path: Path) -> Incident | None:
    try:
        return Incident.model_validate_json(path.read_bytes())
    except FileNotFoundError:  # another process took it in
        return None
    except ValueError:
        _set_aside(path)
        return None


def _set_aside(path: Path) -> None:
    folder = path.parent / REJECTED
    folder.mkdir(exist_ok=True)
    path.replace(folder / path.name)
