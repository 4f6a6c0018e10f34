"""what kept workers from computing, and the job that is paused by it"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("replicas", sa.Column("fault", sa.JSON(), nullable=True))
    op.add_column("jobs", sa.Column("fault", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "fault")
    op.drop_column("replicas", "fault")
