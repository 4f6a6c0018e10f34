"""strikes by job and operator, in place of one number a worker"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "strikes",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("operator", sa.String(), nullable=False),
        sa.Column("weight", sa.Float(precision=53), nullable=False),
        sa.Column("withheld", sa.Float(precision=53), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("until", sa.Float(precision=53), nullable=False),
        sa.Column("withheld_until", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.PrimaryKeyConstraint("job_id", "operator"),
    )
    op.create_index("strikes_of_operator", "strikes", ["operator"], unique=False)
    op.drop_column("workers", "strikes")


def downgrade() -> None:
    op.add_column("workers", sa.Column("strikes", sa.BigInteger(), nullable=False, server_default="0"))
    op.drop_index("strikes_of_operator", table_name="strikes")
    op.drop_table("strikes")
