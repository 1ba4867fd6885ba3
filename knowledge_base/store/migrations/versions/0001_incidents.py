"""Incidents, their diagnoses, timeline, evidence, node history, chats, drafts, rule candidates."""

import sqlalchemy as sa
from alembic import op

from rerail.knowledge_base.store.append_only import forbid_changes

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite numbers rows by INTEGER only


def _incident() -> sa.Column[str]:
    return sa.Column("incident", sa.String(32), sa.ForeignKey("incidents.id"), nullable=False)


def upgrade() -> None:
    """Create the first tables."""
    op.create_table(
        "incidents",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("identity", sa.Text, nullable=False, unique=True),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("job", sa.Text),
        sa.Column("attempt", sa.Integer),
        sa.Column("recorded_at", sa.String(32), nullable=False),
        sa.Column("occurred_at", sa.String(32)),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("failure_type", sa.Text),
        sa.Column("fingerprint", sa.String(32), nullable=False),
        sa.Column("entity", sa.String(32)),
        sa.Column("confirmed", sa.String(8)),
        sa.Column("confirmed_type", sa.Text),
        sa.Column("signed_off_at", sa.String(32)),
        sa.Column("record", sa.JSON, nullable=False),
    )
    op.create_index("incidents_by_time", "incidents", ["recorded_at"])
    op.create_index("incidents_by_fingerprint", "incidents", ["fingerprint"])
    op.create_index("incidents_by_job", "incidents", ["cluster", "job"])
    op.create_table(
        "diagnoses",
        sa.Column("id", _BIG, primary_key=True, autoincrement=True),
        _incident(),
        sa.Column("content", sa.String(64), nullable=False),
        sa.Column("recorded_at", sa.String(32), nullable=False),
        sa.Column("diagnosis", sa.JSON, nullable=False),
        sa.UniqueConstraint("incident", "content"),
    )
    op.create_table(
        "snapshots",
        sa.Column("id", _BIG, primary_key=True, autoincrement=True),
        _incident(),
        sa.Column("content", sa.String(64), nullable=False),
        sa.Column("recorded_at", sa.String(32), nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.UniqueConstraint("incident", "content"),
    )
    op.create_table(
        "timeline",
        sa.Column("id", _BIG, primary_key=True, autoincrement=True),
        _incident(),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("entry_key", sa.String(128)),
        sa.Column("time", sa.String(32), nullable=False),
        sa.Column("recorded_at", sa.String(32), nullable=False),
        sa.Column("source", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(48), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("evidence", sa.JSON, nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        sa.UniqueConstraint("incident", "number"),
        sa.UniqueConstraint("incident", "entry_key"),
    )
    op.create_table(
        "suspect_nodes",
        sa.Column("id", _BIG, primary_key=True, autoincrement=True),
        _incident(),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("time", sa.String(32), nullable=False),
        sa.Column("failure_type", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.UniqueConstraint("incident", "node", "failure_type"),
    )
    op.create_index("suspect_nodes_by_node", "suspect_nodes", ["cluster", "node", "time"])
    op.create_table(
        "chat_messages",
        sa.Column("id", _BIG, primary_key=True, autoincrement=True),
        _incident(),
        sa.Column("recorded_at", sa.String(32), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
    )
    op.create_table(
        "drafts",
        sa.Column("id", _BIG, primary_key=True, autoincrement=True),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("recorded_at", sa.String(32), nullable=False),
        sa.Column("content", sa.String(64), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
    )
    op.create_index("drafts_by_subject", "drafts", ["subject", "kind"])
    op.create_table(
        "rule_candidates",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("recorded_at", sa.String(32), nullable=False),
        sa.Column("decided_at", sa.String(32)),
        sa.Column("decided_by", sa.Text),
        sa.Column("body", sa.JSON, nullable=False),
    )
    op.create_table(
        "rule_support",
        sa.Column("id", _BIG, primary_key=True, autoincrement=True),
        sa.Column("candidate", sa.String(64), sa.ForeignKey("rule_candidates.id"), nullable=False),
        sa.Column("incident", sa.String(32), nullable=False),
        sa.Column("recorded_at", sa.String(32), nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.UniqueConstraint("candidate", "incident"),
    )
    for table in ("diagnoses", "snapshots", "timeline", "chat_messages", "drafts", "rule_support"):
        forbid_changes(op.get_bind(), table)


def downgrade() -> None:
    """Refuse: the first migration has nothing to go back to, and the timeline must not be lost."""
    raise RuntimeError("the first migration cannot be undone; move the store aside instead")
