"""Brings the tables of a store up to the newest migration; one process does it, others wait."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import DBAPIError

from rerail.errors import StoreError
from rerail.knowledge_base.store.engine import place, reading, writing

FOLDER = Path(__file__).with_name("migrations")
_ADVISORY_LOCK = 7_266_100_157  # any constant that nobody else uses in this database


@lru_cache(maxsize=1)
def head() -> str:
    """Return the newest revision: migrations are numbered and form one line."""
    return max(p.name.split("_")[0] for p in (FOLDER / "versions").glob("[0-9]*.py"))


def current(connection: Connection) -> str | None:
    """Return the revision of the store, or None for an empty one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
    return None if row is None else str(row[0])


def upgrade(engine: Engine, *, to: str = "head") -> None:
    """Apply what is missing, in one transaction; nothing is done when nothing is.

    Raises:
        StoreError: for a store that is newer than this rerail, or one that cannot be migrated.
    """
    target = head() if to == "head" else to
    with reading(engine) as connection:
        found = current(connection)
    if found == target:
        return
    if found is not None and found > head():
        raise StoreError(
            f"the store {place(engine)} has revision {found}, this rerail knows {head()}",
            subject=place(engine),
            hint="upgrade rerail, or point RERAIL_DATA_DIR to another store",
        )
    # Alembic costs a third of a second to import; a store that is up to date never pays it.
    from alembic import command
    from alembic.config import Config

    with writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        config = Config()
        config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, target)
        except DBAPIError as error:
            raise StoreError(
                f"the store {place(engine)} cannot be brought to revision {target}: {error.orig}",
                subject=place(engine),
                hint="restore a copy of the store, or report this as a bug",
            ) from error
