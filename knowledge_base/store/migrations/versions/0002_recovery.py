"""Recovery: the event queue, plans, action states, approvals, the audit log, groups, control."""

import sqlalchemy as sa
from alembic import op

from rerail.knowledge_base.store.append_only import forbid_changes

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables of recovery."""
    op.create_table(
        "recovery_queue",
        sa.Column("id", _BIG, primary_key=True, autoincrement=True),
        sa.Column("key", sa.String(255), nullable=False, unique=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("event", sa.JSON, nullable=False),
        sa.Column("received_at", sa.Float, nullable=False),
        sa.Column("not_before", sa.Float, nullable=False),
        sa.Column("claimed_by", sa.Text),
        sa.Column("claimed_until", sa.Float),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("note", sa.Text),
        sa.Column("incident", sa.String(32)),
        sa.Column("done_at", sa.Float),
    )
    op.create_index("recovery_queue_due", "recovery_queue", ["state", "not_before"])
    op.create_table(
        "recovery_plans",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("incident", sa.String(32), nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("made_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
    )
    op.create_index("recovery_plans_by_incident", "recovery_plans", ["incident"])
    op.create_index("recovery_plans_by_job", "recovery_plans", ["cluster", "job"])
    op.create_table(
        "recovery_actions",
        sa.Column("plan", sa.String(32), sa.ForeignKey("recovery_plans.id"), primary_key=True),
        sa.Column("step", sa.Integer, primary_key=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("changed_at", sa.Float, nullable=False),
        sa.Column("not_before", sa.Float, nullable=False),
        sa.Column("carried_out_at", sa.Float),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("holder", sa.Text),
        sa.Column("note", sa.Text, nullable=False),
    )
    op.create_index("recovery_actions_by_state", "recovery_actions", ["state"])
    op.create_table(
        "recovery_approvals",
        sa.Column("id", _BIG, primary_key=True, autoincrement=True),
        sa.Column("plan", sa.String(32), nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("decision", sa.String(16), nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("made_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.Column("signature", sa.String(64), nullable=False),
    )
    op.create_table(
        "recovery_audit",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("time", sa.String(32), nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("what", sa.String(48), nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )
    op.create_table(
        "recovery_groups",
        sa.Column("incident", sa.String(32), primary_key=True),
        sa.Column("parent", sa.String(32), nullable=False),
        sa.Column("root", sa.Text, nullable=False),
        sa.Column("joined_at", sa.Float, nullable=False),
    )
    op.create_index("recovery_groups_by_parent", "recovery_groups", ["parent"])
    op.create_table(
        "recovery_control",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("value", sa.JSON, nullable=False),
    )
    for table in ("recovery_approvals", "recovery_audit"):
        forbid_changes(op.get_bind(), table)


def downgrade() -> None:
    """Refuse: the audit log must not be lost."""
    raise RuntimeError("the audit log cannot be undone; move the store aside instead")
