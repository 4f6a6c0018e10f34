"""a referee hears answers that differ"""

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0043"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("audits_of_round", "audits", ["job_id", "round"])
    op.create_table(
        "disputed_tasks",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("over", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"]),
        sa.PrimaryKeyConstraint("task_id"),
    )
    op.create_index("disputed_tasks_under_way", "disputed_tasks", ["over", "at"])
    op.create_table(
        "hearings",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("one", sa.String(), nullable=False),
        sa.Column("other", sa.String(), nullable=False),
        sa.Column("one_root", sa.String(), nullable=False),
        sa.Column("other_root", sa.String(), nullable=False),
        sa.Column("answer_s", sa.BigInteger(), nullable=False),
        sa.Column("most_values", sa.BigInteger(), nullable=False),
        sa.Column("across", sa.Boolean(), nullable=False),
        sa.Column("questions", sa.JSON(), nullable=False),
        sa.Column("most_bytes", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.Float(), nullable=True),
        sa.Column("ruling", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"]),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"]),
        sa.PrimaryKeyConstraint("task_id", "number"),
    )
    op.create_index("hearings_due", "hearings", ["due_at"])
    op.create_index("hearings_of_one", "hearings", ["one", "due_at"])
    op.create_index("hearings_of_other", "hearings", ["other", "due_at"])
    op.create_table(
        "hearing_values",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("question", sa.BigInteger(), nullable=False),
        sa.Column("side", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"]),
        sa.PrimaryKeyConstraint("task_id", "number", "question", "side"),
    )


def downgrade() -> None:
    op.drop_index("audits_of_round", "audits")
    op.drop_table("disputed_tasks")
    op.drop_table("hearing_values")
    op.drop_table("hearings")
