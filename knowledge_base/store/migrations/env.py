"""What Alembic runs for each command: the connection is given by `rerail.knowledge_base.store.migrate`."""

from __future__ import annotations

from alembic import context


def _run() -> None:
    connection = context.config.attributes["connection"]
    # The caller holds the transaction and its lock; Alembic must not open one of its own.
    context.configure(connection=connection, transactional_ddl=True)
    context.run_migrations()


_run()
