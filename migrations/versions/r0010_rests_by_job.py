"""who leaves a place unanswered rests in that job: stalls belong to a worker's account in a job"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

SILENT = "('expired', 'abandoned', 'too_late', 'withheld')"
THEIRS = "replicas.job_id = accounts.job_id AND replicas.worker = accounts.worker"
OF_WORKER = "FROM workers WHERE workers.address = accounts.worker"


def upgrade() -> None:
    """Where a job heard nothing from a worker yet, its stalls are counted from the job's replicas."""
    _add("accounts")
    op.execute(
        "UPDATE accounts SET"
        f" stalls = (SELECT count(*) FROM replicas WHERE {THEIRS} AND replicas.state IN {SILENT}),"
        f" stalled_at = (SELECT workers.stalled_at {OF_WORKER}),"
        f" rests_until = (SELECT workers.rests_until {OF_WORKER})"
        " WHERE earned = 0 AND"
        f" EXISTS (SELECT 1 FROM replicas WHERE {THEIRS} AND replicas.state IN {SILENT})"
    )
    _drop("workers")


def downgrade() -> None:
    _add("workers")
    _drop("accounts")


def _add(table: str) -> None:
    op.add_column(table, sa.Column("stalls", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column(table, sa.Column("stalled_at", sa.Float(precision=53), nullable=True))
    op.add_column(table, sa.Column("rests_until", sa.Float(precision=53), nullable=False, server_default="0"))


def _drop(table: str) -> None:
    for name in ("rests_until", "stalled_at", "stalls"):
        op.drop_column(table, name)
