"""several auditors of separate operators compute an audited task"""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "panel_seats",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("operator", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("auditor", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("signer", sa.String(), nullable=True),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("signature", sa.LargeBinary(), nullable=True),
        sa.Column("salt", sa.LargeBinary(), nullable=True),
        sa.Column("root", sa.String(), nullable=True),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("claimed_at", sa.Float(), nullable=True),
        sa.Column("claimed_until", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"]),
        sa.PrimaryKeyConstraint("task_id", "run", "operator"),
    )
    op.create_index("panel_seats_of_job", "panel_seats", ["job_id", "operator"])
    op.create_index("panel_seats_claimed", "panel_seats", ["claimed_until"])


def downgrade() -> None:
    op.drop_table("panel_seats")
