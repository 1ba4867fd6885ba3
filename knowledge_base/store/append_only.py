"""Triggers that forbid to change or delete rows; used by migrations of every wing."""

from __future__ import annotations

from sqlalchemy import Connection, text


def forbid_changes(connection: Connection, table: str) -> None:
    """Make a table append-only: UPDATE, DELETE (and TRUNCATE on PostgreSQL) raise an error."""
    if connection.dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            connection.execute(
                text(
                    f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                    f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
                )
            )
        return
    connection.execute(
        text(
            "CREATE OR REPLACE FUNCTION rerail_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
        )
    )
    connection.execute(
        text(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION rerail_append_only()"
        )
    )
    connection.execute(
        text(
            f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION rerail_append_only()"
        )
    )
