"""optimizer states are stored now and then, and payloads kept until then"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

KEPT = sa.text("replay_from IS NOT NULL")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("replay_from", sa.BigInteger(), server_default="0", nullable=True))
    op.create_index("jobs_replayed", "jobs", ["ended_at"], sqlite_where=KEPT, postgresql_where=KEPT)
    op.create_index("rounds_by_optimizer_state", "rounds", ["optimizer_state"])


def downgrade() -> None:
    op.drop_index("rounds_by_optimizer_state", table_name="rounds")
    op.drop_index("jobs_replayed", table_name="jobs")
    op.drop_column("jobs", "replay_from")
