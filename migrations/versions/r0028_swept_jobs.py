"""the jobs that a sweep looks at while a round of them is under way"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Sweeps go on looking at all jobs that are there."""
    op.add_column("jobs", sa.Column("swept", sa.Boolean(), nullable=False, server_default="1"))


def downgrade() -> None:
    op.drop_column("jobs", "swept")
