"""holders of private jobs"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "holders",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("joined_at", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.ForeignKeyConstraint(["worker"], ["workers.address"]),
        sa.PrimaryKeyConstraint("job_id", "worker"),
    )


def downgrade() -> None:
    op.drop_table("holders")
