"""What people were told of each incident, by which service: the memory of notifications."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "notices",
        sa.Column("incident", sa.String(32), primary_key=True),
        sa.Column("service", sa.String(48), primary_key=True),
        sa.Column("wanted", sa.BigInteger, nullable=False),
        sa.Column("told", sa.BigInteger, nullable=False),
        sa.Column("not_before", sa.Float, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("open", sa.Boolean, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("handle", sa.JSON, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
    )
    op.create_index("notices_due", "notices", ["service", "not_before"])
    op.create_index("notices_open", "notices", ["service", "open"])
