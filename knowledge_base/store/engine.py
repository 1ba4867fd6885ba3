"""Opens the store: SQLite in the data folder, or PostgreSQL by URL; brings its tables up to date.

SQLite runs in WAL mode with `synchronous=FULL`, so that a committed transaction survives kill -9
and a power cut, and with a busy timeout, so that a second writer waits instead of failing. A write
takes the lock when it begins (`BEGIN IMMEDIATE`): a transaction that reads first and writes later
could otherwise fail halfway with SQLITE_BUSY (https://sqlite.org/isolation.html).

Every wing that keeps something uses `open_store`, `reading` and `writing` from here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import ArgumentError as BadUrlError
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from rerail.errors import ConfigError, StoreError
from rerail.settings import Settings, load_settings

FILE_NAME = "store.sqlite"
BUSY_TIMEOUT_MS = 30_000


def data_folder(settings: Settings | None = None) -> Path:
    """Return the data folder; it may not exist yet."""
    return (settings or load_settings()).data_dir.expanduser()


def store_file(settings: Settings | None = None) -> Path:
    """Return where the SQLite store lies, whether or not it exists."""
    return data_folder(settings) / FILE_NAME


def store_exists(settings: Settings | None = None) -> bool:
    """Tell whether there is a store to read, without opening it."""
    chosen = settings or load_settings()
    return bool(chosen.store_url) or store_file(chosen).is_file()


def open_store(settings: Settings | None = None, *, migrate: bool = True) -> Engine:
    """Open the store, creating and migrating it where needed.

    Raises:
        StoreError: when it cannot be opened, created or migrated.
        ConfigError: when the URL is not usable.
    """
    chosen = settings or load_settings()
    if chosen.store_url:
        engine = _by_url(chosen.store_url)
    else:
        engine = _sqlite(store_file(chosen))
    if migrate:
        from rerail.knowledge_base.store.migrate import upgrade

        try:
            upgrade(engine)
        except BaseException:
            engine.dispose()
            raise
    return engine


def open_read_only(settings: Settings | None = None, *, file: Path | None = None) -> Engine:
    """Open a store to read it where it lies, on a read-only medium or from a backup as well.

    Nothing is created, migrated or taken in. `file` is an SQLite store in place of the configured.

    Raises:
        StoreError: There is none, or its newest entries cannot be read there.
        ConfigError: when the URL is not usable.
    """
    if file is None:
        chosen = settings or load_settings()
        url = chosen.store_url or ""
        if url and not url.startswith("sqlite:///"):
            return _by_url(url)
        file = Path(url.removeprefix("sqlite:///")) if url else store_file(chosen)
    path = file
    if not path.is_file():
        raise StoreError(
            f"there is no store at {path}",
            subject=str(path),
            hint="nothing was recorded yet, or it was removed; RERAIL_DATA_DIR, RERAIL_STORE_URL",
        )
    engine = _sqlite_as_it_is(path, "mode=ro")
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")
        return engine
    except DBAPIError:
        engine.dispose()
    # Where no index of the log can be made beside it, SQLite reads a file only as one that nobody
    # changes, and passes over the log.
    log = path.with_name(f"{path.name}-wal")
    if log.is_file() and log.stat().st_size:
        raise StoreError(
            f"the newest entries of {path} lie in {log.name}, which cannot be read on a read-only medium",
            subject=str(path),
            hint=f"copy {path.name} and {log.name} into a folder that can be written",
        )
    return _sqlite_as_it_is(path, "mode=ro&immutable=1")


def _sqlite_as_it_is(path: Path, how: str) -> Engine:
    import sqlite3

    place = f"file:{quote(str(path.absolute()))}?{how}"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(place, uri=True, isolation_level=None, check_same_thread=False)

    engine = create_engine(f"sqlite:///{path}", creator=connect)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Run one consistent read.

    Raises:
        StoreError: when the store cannot be read.
    """
    with _explained(engine), engine.connect() as connection, connection.begin():
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Run one transaction that writes: all of it is kept, or nothing.

    Raises:
        StoreError: when the store cannot be written.
    """
    with _explained(engine), engine.connect() as plain:
        connection = plain.execution_options(rerail_writes=True)
        with connection.begin():
            yield connection


@contextmanager
def _explained(engine: Engine) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise StoreError(
            f"the store {place(engine)}: {str(error.orig).strip()}",
            subject=place(engine),
            hint="check that it can be written and that its server runs; RERAIL_STORE_URL, RERAIL_DATA_DIR",
            recoverable=not isinstance(error.orig, AssertionError),
        ) from error


def place(engine: Engine) -> str:
    """Return where the store is, without a password."""
    if engine.dialect.name == "sqlite":
        return str(engine.url.database)
    return engine.url.render_as_string(hide_password=True)


def _by_url(url: str) -> Engine:
    for scheme in ("postgresql://", "postgres://"):
        if url.startswith(scheme):
            url = "postgresql+psycopg://" + url.removeprefix(scheme)
    if url.startswith("sqlite:///"):
        return _sqlite(Path(url.removeprefix("sqlite:///")))
    if not url.startswith("postgresql+psycopg://"):
        raise ConfigError(
            "store_url is neither postgresql:// nor sqlite:///",
            subject="store_url",
            hint="RERAIL_STORE_URL=postgresql://user@host/database",
        )
    try:
        return create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": 5})
    except ModuleNotFoundError:
        raise ConfigError(
            "the PostgreSQL driver is not installed",
            subject="store_url",
            hint="pip install 'rerail[postgres]'",
        ) from None
    except (BadUrlError, SQLAlchemyError, ValueError) as error:
        raise ConfigError(
            f"store_url: {error}", subject="store_url", hint="check RERAIL_STORE_URL"
        ) from None


def _sqlite(path: Path) -> Engine:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(
            f"the data folder {path.parent}: {error.strerror}",
            subject=str(path.parent),
            hint="set RERAIL_DATA_DIR to a folder that can be written",
        ) from None
    if not path.exists():
        _create_private(path)
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": BUSY_TIMEOUT_MS / 1000})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _create_private(path: Path) -> None:
    """Create the file readable by its owner alone: logs quote paths, users and code."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError as error:
        raise StoreError(
            f"{path}: {error.strerror}",
            subject=str(path),
            hint="set RERAIL_DATA_DIR to a folder that can be written",
        ) from None


def _prepare_sqlite(dbapi_connection: Any, _: object) -> None:
    # The driver must not begin transactions on its own; `_begin_sqlite` does.
    dbapi_connection.isolation_level = None
    cursor = dbapi_connection.cursor()
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("rerail_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
