"""tasks that an auditor computed before any worker answered them"""

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "planted_answers",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("determinism_class", sa.String(), nullable=False),
        sa.Column("root", sa.String(), nullable=True),
        sa.Column("auditor", sa.String(), nullable=False),
        sa.Column("claims", sa.BigInteger(), nullable=False),
        sa.Column("claimed_until", sa.Float(), nullable=True),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"]),
        sa.PrimaryKeyConstraint("task_id"),
    )
    op.create_index("planted_answers_of_job", "planted_answers", ["job_id"])


def downgrade() -> None:
    op.drop_table("planted_answers")
