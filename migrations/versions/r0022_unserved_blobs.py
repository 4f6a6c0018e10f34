"""blobs that a requester uploaded for its jobs to measure on, which nobody reads"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "unserved_blobs",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("digest", "token"),
    )


def downgrade() -> None:
    op.drop_table("unserved_blobs")
