"""a task that its round leaves is merged in a later one, and a late worker gets a backup"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Until now a task was merged in its own round or in none."""
    op.add_column("tasks", sa.Column("merge_round", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute("UPDATE tasks SET merge_round = round")
    op.add_column("tasks", sa.Column("backups", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("replicas", sa.Column("expected_at", sa.Float(precision=53), nullable=True))


def downgrade() -> None:
    op.drop_column("replicas", "expected_at")
    op.drop_column("tasks", "backups")
    op.drop_column("tasks", "merge_round")
