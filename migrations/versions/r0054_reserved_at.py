"""Accounts know when money was last reserved for them, so that a job that stands reserves for one worker more."""

import sqlalchemy as sa
from alembic import op

revision = "0054"
down_revision = "0053"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("accounts", sa.Column("reserved_at", sa.Float(), nullable=True))


def downgrade() -> None:
    op.drop_column("accounts", "reserved_at")
