"""the log of a job, and the heads of it that batches carry"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "log_leaves",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("about", sa.String(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job_id", "number"),
        sa.UniqueConstraint("job_id", "kind", "about", name="log_leaf_once"),
    )
    op.add_column("batches", sa.Column("log_size", sa.BigInteger(), nullable=True))
    op.add_column("batches", sa.Column("log_root", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    op.drop_column("batches", "log_root")
    op.drop_column("batches", "log_size")
    op.drop_table("log_leaves")
