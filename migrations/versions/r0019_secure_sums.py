"""secure aggregations of private jobs' rounds, and their messages"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "secure_sums",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("round", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("beacon", sa.LargeBinary(), nullable=False),
        sa.Column("expected", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.Float(precision=53), nullable=True),
        sa.Column("sharers", sa.LargeBinary(), nullable=True),
        sa.Column("survivors", sa.LargeBinary(), nullable=True),
        sa.Column("total", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("job_id", "round"),
    )
    op.create_table(
        "secure_messages",
        sa.Column("sum_id", sa.String(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.BigInteger(), nullable=False),
        sa.Column("said", sa.LargeBinary(), nullable=False),
        sa.Column("vector", sa.String(), nullable=True),
        sa.Column("told", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["sum_id"], ["secure_sums.id"]),
        sa.PrimaryKeyConstraint("sum_id", "attempt", "step", "holder"),
    )


def downgrade() -> None:
    op.drop_table("secure_messages")
    op.drop_table("secure_sums")
