"""What is searched, kept with an index of its words; indexes for what is alike, by cause and time."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_WHEN = "coalesce(occurred_at, recorded_at)"
_TYPE = "coalesce(confirmed_type, failure_type)"


def upgrade() -> None:
    """Create the tables; what is signed off waits in the queue and is indexed at the next search."""
    op.create_table(
        "documents",
        sa.Column("id", _BIG, primary_key=True, autoincrement=True),
        sa.Column("incident", sa.String(32), nullable=False, unique=True),
        sa.Column("time", sa.String(32), nullable=False),
        sa.Column("fingerprint", sa.String(32), nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("words", sa.Text, nullable=False),
    )
    op.create_index("documents_by_fingerprint", "documents", ["fingerprint", "time"])
    op.create_table(
        "document_terms",
        sa.Column("term", sa.Text, primary_key=True),
        sa.Column("documents", sa.Integer, nullable=False),
        sa.Column("words", _BIG, nullable=False),
    )
    op.create_table("document_queue", sa.Column("incident", sa.String(32), primary_key=True))
    op.execute(
        "INSERT INTO document_queue (incident) SELECT id FROM incidents WHERE signed_off_at IS NOT NULL"
    )
    op.create_index("incidents_by_when", "incidents", [sa.text(_WHEN)])
    op.create_index("incidents_by_print", "incidents", ["fingerprint", sa.text(_WHEN)])
    op.create_index("incidents_by_entity", "incidents", ["entity", sa.text(_WHEN)])
    op.create_index("incidents_by_type", "incidents", [sa.text(_TYPE), sa.text(_WHEN)])
    if op.get_bind().dialect.name == "sqlite":
        # https://sqlite.org/fts5.html, external content; its triggers are those of section 4.4.3.
        for statement in (
            "CREATE VIRTUAL TABLE documents_words USING fts5(words, content='documents', content_rowid='id', "
            "tokenize=\"unicode61 tokenchars '_'\")",
            "CREATE TRIGGER documents_words_add AFTER INSERT ON documents BEGIN "
            "INSERT INTO documents_words(rowid, words) VALUES (new.id, new.words); END",
            "CREATE TRIGGER documents_words_drop AFTER DELETE ON documents BEGIN "
            "INSERT INTO documents_words(documents_words, rowid, words) VALUES ('delete', old.id, old.words); END",
        ):
            op.execute(statement)
        return
    # https://www.postgresql.org/docs/15/functions-textsearch.html: the words are cut already.
    op.execute(
        "CREATE INDEX documents_by_words ON documents USING gin "
        "(array_to_tsvector(string_to_array(words, ' ')))"
    )


def downgrade() -> None:
    """Drop what can be built anew."""
    for table in (
        "incidents_by_when",
        "incidents_by_print",
        "incidents_by_entity",
        "incidents_by_type",
    ):
        op.drop_index(table, "incidents")
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TABLE documents_words")
    for name in ("document_queue", "document_terms", "documents"):
        op.drop_table(name)
