"""a second earned row where an answer is paid by worth too"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

ONE, TWO = ["job_id", "task_id", "replica_id"], ["job_id", "task_id", "replica_id", "by_worth"]
NAMED = {"uq": "%(table_name)s_%(column_0_N_name)s_key"}
"""PostgreSQL's own name of a constraint without one; SQLite has none."""
UNNAMED = "earned_job_id_task_id_replica_id_key"


def upgrade() -> None:
    column: sa.Column[bool] = sa.Column("by_worth", sa.Boolean(), nullable=False, server_default=sa.false())
    with op.batch_alter_table("earned", naming_convention=NAMED) as table:
        table.add_column(column)
        table.drop_constraint(UNNAMED, type_="unique")
        table.create_unique_constraint("earned_once", TWO)


def downgrade() -> None:
    """What waits for a batch is taken together with its answer's price; refused where a batch has both already."""
    op.execute(
        "UPDATE earned SET units = units + (SELECT coalesce(sum(more.units), 0) FROM earned AS more"
        " WHERE more.by_worth AND more.replica_id = earned.replica_id) WHERE NOT by_worth AND batch_id IS NULL"
    )
    op.execute("DELETE FROM earned WHERE by_worth AND batch_id IS NULL")
    with op.batch_alter_table("earned") as table:
        table.drop_constraint("earned_once", type_="unique")
        table.drop_column("by_worth")
        table.create_unique_constraint(UNNAMED, ONE)
