"""audits that repeat two windows of a task, and the states that they ask of workers"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("audits", sa.Column("window", sa.BigInteger(), nullable=True))
    op.add_column("audits", sa.Column("leaves", sa.LargeBinary(), nullable=True))
    op.create_table(
        "window_states",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("replica", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("until", sa.Float(precision=53), nullable=False),
        sa.Column("brought", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"]),
        sa.PrimaryKeyConstraint("task_id", "number"),
    )
    op.create_index("window_states_of_worker", "window_states", ["worker"], unique=False)
    op.create_index("window_states_by_digest", "window_states", ["digest"], unique=False)


def downgrade() -> None:
    op.drop_index("window_states_by_digest", table_name="window_states")
    op.drop_index("window_states_of_worker", table_name="window_states")
    op.drop_table("window_states")
    op.drop_column("audits", "leaves")
    op.drop_column("audits", "window")
