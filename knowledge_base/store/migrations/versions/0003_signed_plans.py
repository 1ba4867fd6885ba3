"""Plans carry a signature of the site's key; plans from before carry none and are never executed."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; what is there keeps an empty one."""
    op.add_column("recovery_plans", sa.Column("signature", sa.String(64)))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("recovery_plans", "signature")
